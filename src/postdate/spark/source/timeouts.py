"""`format("postdate.timeouts")`: old timeouts, in Azure tables or SQL, to look at before they are moved.

Cut into ranges like a migration; each task reads its own, with the bodies.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from postdate.errors import UsageError
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.spark import schema as columns
from postdate.spark.migrating.documents import Documents
from postdate.spark.migrating.job import ROWS_PER_PART
from postdate.spark.migrating.opening import old_timeouts, ranges
from postdate.spark.migrating.sources import AzureSource, Range, Source, SqlSource
from postdate.spark.migrating.taking import Found
from postdate.spark.reference import SettingsReference
from postdate.spark.tasks import azure_backend, iterate, opened

_SQL_OPTIONS = ("database", "variable", "connect", "schema", "prefix")
_OPTIONS = frozenset({"source", "rowsperpartition", *_SQL_OPTIONS})
#: A reader has no run; nothing is staged.
_NO_RUN = "reading"


class TimeoutsSource(DataSource):
    """Old timeouts of an endpoint; read only.

    Options: those of `SettingsReference`; `source` (azure, or a dialect of `SqlSource`), `database`,
    `variable`, `connect`, `schema`, `prefix` as there, and `rowsPerPartition`.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "postdate.timeouts"

    def schema(self) -> StructType:
        """The columns, with units in their comments."""
        return columns.TIMEOUTS

    def reader(self, schema: StructType) -> "TimeoutsReader":
        """Reads; `schema` holds the columns that are asked for."""
        options = {name.lower(): value for name, value in self.options.items()}
        rows = options.get("rowsperpartition", str(ROWS_PER_PART))
        if not rows.isdecimal() or not int(rows):
            raise UsageError(f"option rowsPerPartition: {rows!r} is not a number of rows")
        kind = options.get("source", "azure")
        source: Source = AzureSource()
        if kind != "azure":
            told = {name: options[name] for name in _SQL_OPTIONS if name in options}
            source = SqlSource(kind, **told).check()
        reference = SettingsReference.from_options(self.options, others=_OPTIONS)
        return TimeoutsReader(reference, source, schema, int(rows))


@dataclass
class TimeoutRange(InputPartition):
    """One range."""

    within: Range | None


class TimeoutsReader(DataSourceReader):
    """Reads timeouts, range by range."""

    def __init__(self, reference: SettingsReference, source: Source, schema: StructType, rows: int) -> None:
        self._reference = reference
        self._source = source
        self._schema = schema
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of about even size; Spark wants one at least."""
        found = [TimeoutRange(one) for one in ranges(self._reference, self._source, None, self._rows)]
        return found or [TimeoutRange(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The timeouts of a range."""
        assert isinstance(partition, TimeoutRange)
        within = partition.within
        return iterate(lambda: self._batches(within)) if within is not None else iter(())

    async def _batches(self, within: Range) -> AsyncGenerator[pa.RecordBatch, None]:
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        async with opened(self._reference) as endpoint:
            documents = Documents(azure_backend(endpoint).bulk, _NO_RUN)
            async with old_timeouts(endpoint, self._source, documents) as old:
                async for batch in old.read(within, None):
                    rows = [_row(one) for one in batch]
                    arrays = [pa.array([row[field.name] for row in rows], type=field.type) for field in arrow]
                    yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _row(one: Found) -> dict[str, object]:
    whole = one if isinstance(one, LegacyTimeout) else None
    return {
        "id": one.id,
        "destination": whole and whole.destination,
        "due_time": one.due_at,
        "headers": whole and whole.headers,
        "body": whole and whole.body,
        "owner": whole and whole.owner,
        "saga_id": whole and whole.saga_id,
        "unreadable": None if isinstance(one, LegacyTimeout) else one.reason,
    }
