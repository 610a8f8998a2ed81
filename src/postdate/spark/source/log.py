"""`format("postdate.log")`: the delivery log of an endpoint, to read at once or as a stream.

A filter on `logged_at` limits the hours whose files are read at all. As a stream its offset is, for each
file, how many bytes were read: files only grow, so nothing is read twice, and nothing is missed. Files that
were deleted leave the offset.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from postdate.errors import PoisonMessage, UsageError
from postdate.model.delivery_log import decode_record, hour_of
from postdate.ports import LogFile
from postdate.spark import schema as columns
from postdate.spark.log_pieces import Piece, cut, lines_in
from postdate.spark.ranges import DueWindow
from postdate.spark.reference import SettingsReference
from postdate.spark.source.filters import narrowed
from postdate.spark.tasks import iterate, opened, run

#: Bytes of one partition, unless option bytesPerPartition says otherwise.
BYTES_PER_PARTITION = 16 * 1024 * 1024
UNREADABLE = "unreadable"
_OPTIONS = frozenset({"bytesperpartition"})
_TIME = ("logged_at",)
_STEP = timedelta(microseconds=1)
_SHOWN_CHARACTERS = 200


class LogSource(DataSource):
    """The delivery log of an endpoint.

    Options: `endpoint`, `delaysTable`, `settingsFile`, `settingsFactory` (see `SettingsReference`), and
    `bytesPerPartition` (default 16 MiB).
    """

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "postdate.log"

    def schema(self) -> StructType:
        """The columns, with units in their comments."""
        return columns.LOG

    def reader(self, schema: StructType) -> "LogReader":
        """Reads what is there now; `schema` holds the columns that are asked for."""
        return LogReader(*self._asked(), schema)

    def streamReader(self, schema: StructType) -> "LogStream":  # noqa: N802 - Spark's name
        """Reads what comes, batch by batch."""
        return LogStream(*self._asked(), schema)

    def _asked(self) -> tuple[SettingsReference, int]:
        size = self.options.get("bytesPerPartition", str(BYTES_PER_PARTITION))
        if not size.isdecimal() or not int(size):
            raise UsageError(
                f"option bytesPerPartition: {size!r} is not a number of bytes; write 16777216, for example"
            )
        return SettingsReference.from_options(self.options, others=_OPTIONS), int(size)


@dataclass
class LogPart(InputPartition):
    """Pieces of files."""

    pieces: list[Piece]


class LogReader(DataSourceReader):
    """Reads the files of the hours that are asked for, as long as they are when the query is planned."""

    def __init__(self, reference: SettingsReference, size: int, schema: StructType) -> None:
        self._reference = reference
        self._size = size
        self._schema = schema
        self._window = DueWindow()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what limits the time; Spark checks every filter again."""
        for one in filters:
            self._window = narrowed(self._window, one, _TIME)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """The files of these hours, cut into parts of about even size."""
        window = self._window
        first = None if window.start is None else hour_of(window.start)
        last = None if window.end is None else hour_of(window.end - _STEP)
        spans = ((file.name, 0, file.length) for file in list_files(self._reference, first, last))
        # Spark wants one at least.
        return [LogPart(pieces) for pieces in cut(spans, self._size)] or [LogPart([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part."""
        assert isinstance(partition, LogPart)
        return read_part(self._reference, self._schema, partition)


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what files have grown by."""

    def __init__(self, reference: SettingsReference, size: int, schema: StructType) -> None:
        self._reference = reference
        self._size = size
        self._schema = schema
        self._until: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Nothing is read."""
        return {}

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: dict[str, int],  # noqa: ARG002 - Spark's signature
        limit: ReadLimit,  # noqa: ARG002 - Spark's signature
    ) -> dict[str, int]:
        """Everything that is there, or was when an `AvailableNow` query began."""
        return self._there() if self._until is None else self._until

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note the end that such a query goes to."""
        self._until = self._there()

    def _there(self) -> dict[str, int]:
        return {file.name: file.length for file in list_files(self._reference)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """What files have grown by between two offsets."""
        spans = ((name, start.get(name, 0), length) for name, length in sorted(end.items()))
        return [LogPart(pieces) for pieces in cut(spans, self._size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part."""
        assert isinstance(partition, LogPart)
        return read_part(self._reference, self._schema, partition)


def list_files(
    reference: SettingsReference, first: str | None = None, last: str | None = None
) -> list[LogFile]:
    """The files of some hours, by name."""

    async def listed() -> list[LogFile]:
        async with opened(reference) as endpoint:
            return [file async for file in endpoint.parts.backend.delivery_log.files(first, last)]

    return run(listed)


def read_part(reference: SettingsReference, schema: StructType, part: LogPart) -> Iterator[pa.RecordBatch]:
    """The records of a part, as columns of a schema."""
    arrow = to_arrow_schema(schema, timezone="UTC")

    async def batches() -> AsyncGenerator[pa.RecordBatch, None]:
        async with opened(reference) as endpoint:
            log = endpoint.parts.backend.delivery_log
            for piece in part.pieces:
                async for lines in lines_in(piece, log.read):
                    rows = [columns_of(line) for line in lines]
                    arrays = [pa.array([row.get(f.name) for row in rows], type=f.type) for f in arrow]
                    yield pa.RecordBatch.from_arrays(arrays, schema=arrow)

    return iterate(batches)


def columns_of(line: bytes) -> dict[str, Any]:
    """A line's values by column; of a line that can't be read, that and its beginning."""
    try:
        record = decode_record(line)
    except PoisonMessage:
        return {"outcome": UNREADABLE, "reason": line[:_SHOWN_CHARACTERS].decode("utf-8", "replace")}
    return {name: getattr(record, name) for name in record.__struct_fields__}
