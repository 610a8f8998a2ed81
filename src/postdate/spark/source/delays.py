"""`format("postdate")`: the waiting rows of an endpoint, to read and to append to.

Reading is cut into ranges of row keys; a filter on `due_time` limits the hours that are read at all, and only
columns that are asked for are read. Every task opens the storage account for itself.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from postdate.backends.azure_storage.scan import KEYS
from postdate.errors import UsageError
from postdate.model.rowcodec import DUE_TIME
from postdate.spark import schema as columns
from postdate.spark.looks import looked
from postdate.spark.ranges import DueWindow, Hour, KeyRange, hours, joined
from postdate.spark.reference import SettingsReference
from postdate.spark.source.columns import STORED, columns_of, due_of
from postdate.spark.source.delays_writer import DelaysWriter
from postdate.spark.source.filters import narrowed
from postdate.spark.tasks import azure_backend, iterate, opened, run

#: Rows of one range, unless option rowsPerPartition says otherwise.
ROWS_PER_PARTITION = 10_000
_OPTIONS = frozenset({"rowsperpartition", "run"})


class DelaysSource(DataSource):
    """The waiting rows of an endpoint.

    Options: `endpoint`, `delaysTable`, `settingsFile`, `settingsFactory` (see `SettingsReference`), and
    `rowsPerPartition` (default 10,000).
    """

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "postdate"

    def schema(self) -> StructType:
        """The columns, with units in their comments."""
        return columns.DELAYS

    def reader(self, schema: StructType) -> "DelaysReader":
        """Reads; `schema` holds the columns that are asked for."""
        reference, rows = self.asked()
        return DelaysReader(reference, schema, rows)

    def asked(self) -> tuple[SettingsReference, int]:
        """Where the settings are, and rows of one range.

        Raises:
            UsageError: an option is wrong.
        """
        rows = self.options.get("rowsPerPartition", str(ROWS_PER_PARTITION))
        if not rows.isdecimal() or not int(rows):
            raise UsageError(
                f"option rowsPerPartition: {rows!r} is not a number of rows; write 10000, for example"
            )
        return SettingsReference.from_options(self.options, others=_OPTIONS), int(rows)

    def writer(self, schema: StructType, overwrite: bool) -> DelaysWriter:
        """Writes; option `run` names the manifest. Only appending makes sense, since rows are due and go."""
        if overwrite:
            raise UsageError("mode overwrite would drop messages that wait; use mode append")
        reference = SettingsReference.from_options(self.options, others=_OPTIONS)
        return DelaysWriter(reference, schema, self.options.get("run"))


@dataclass
class RangePartition(InputPartition):
    """One range of row keys."""

    keys: KeyRange


class DelaysReader(DataSourceReader):
    """Reads waiting rows, range by range."""

    def __init__(self, reference: SettingsReference, schema: StructType, rows: int) -> None:
        self._reference = reference
        self._schema = schema
        self._rows = rows
        self._window = DueWindow()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what limits the due time; Spark checks every filter again."""
        for one in filters:
            self._window = narrowed(self._window, one)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of about even size, found by looks at a few keys."""
        within = hours(self._window)
        # Spark wants one at least.
        ranges = list(joined(run(partial(self._looked, within)), self._rows)) or [within]
        return [RangePartition(keys) for keys in ranges]

    async def _looked(self, within: KeyRange) -> list[Hour]:
        async with opened(self._reference) as endpoint:
            scan = azure_backend(endpoint).scan()
            return await looked(lambda keys, most: scan.first_keys(keys.filter(), most), within, self._rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, a page at a time."""
        assert isinstance(partition, RangePartition)
        return iterate(lambda: self._batches(partition.keys))

    async def _batches(self, keys: KeyRange) -> AsyncGenerator[pa.RecordBatch, None]:
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        names = self._schema.names
        stored = {column for name in names for column in STORED.get(name, ())}
        # A row is judged by its due time, whatever is asked for.
        select = sorted({*KEYS, DUE_TIME, *stored})
        async with (
            opened(self._reference) as endpoint,
            aclosing(azure_backend(endpoint).scan().pages(keys.filter(), select)) as pages,
        ):
            async for page in pages:
                due = [(one, due_of(one)) for one in page]
                held = [pair for pair in due if self._window.holds(pair[1])]
                known = {"due_time": [at for _, at in held]}
                columns = columns_of([one for one, _ in held], arrow, known)
                yield pa.RecordBatch.from_arrays(columns, schema=arrow)
