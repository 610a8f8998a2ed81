"""Writing messages by `df.write.format("postdate")`: the interface that users of Spark know.

Each task stores its rows; the driver then writes a manifest. Rows are keyed by message id, destination and
due time, so a task that runs twice, or beside itself, writes nothing twice. An abort can't take rows back
that a leader may have handed over already: it leaves them and says so; the same frame again completes it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType

from postdate.backends.azure_storage.bulk_blobs import check_run
from postdate.engine.receiving import need_delays
from postdate.errors import UsageError
from postdate.spark.reference import SettingsReference
from postdate.spark.scheduling.messages import BYTES, JSON, TEXT
from postdate.spark.scheduling.storing import Stored, store
from postdate.spark.tasks import azure_backend, opened, run

_NEEDED = {
    "message_id": ((StringType,), "text; a task that runs twice must write the same rows"),
    "destination": ((StringType,), "text"),
    "due_time": ((TimestampType,), "a timestamp (one without a zone could be any instant)"),
    "body": ((object,), ""),
}


@dataclass
class Written(WriterCommitMessage):
    """What a task stored."""

    stored: Stored


class DelaysWriter(DataSourceArrowWriter):
    """Appends messages as waiting rows."""

    def __init__(self, reference: SettingsReference, schema: StructType, name: str | None) -> None:
        check_schema(schema)
        self._reference = reference
        self._folder = f"write/{check_run(name or uuid4().hex)}"
        kind = schema["body"].dataType
        self._kind = BYTES if isinstance(kind, BinaryType) else TEXT if isinstance(kind, StringType) else JSON

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Store the rows of a task."""

        async def work() -> Stored:
            async with opened(self._reference) as endpoint:
                need_delays(endpoint.settings)
                return await store(endpoint, (self._ready(batch) for batch in iterator))

        return Written(run(work))

    def _ready(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kinds = pa.array([self._kind] * batch.num_rows, pa.string())
        body = batch.column("body")
        if self._kind == JSON:
            texts = [None if value is None else msgspec.json.encode(value) for value in body.to_pylist()]
            body = pa.array(texts, pa.binary())
        elif self._kind == TEXT:
            body = body.cast(pa.binary())
        names = [name for name in batch.schema.names if name not in ("body", "body_kind")]
        arrays = [*(batch.column(name) for name in names), body, kinds]
        return pa.RecordBatch.from_arrays(arrays, names=[*names, "body", "body_kind"])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the manifest: `bulk/write/<run>/manifest.json` in the endpoint's container.

        Raises:
            UsageError: rows were refused. The others are stored.
        """
        total = self._told("manifest", messages)
        if total.refused:
            message_id, reason = total.examples[0]
            raise UsageError(
                f"{total.refused:,} rows were refused, {message_id!r} for one: {reason}; the other "
                f"{total.stored:,} are stored, and writing them again changes nothing "
                "(postdate.spark.scheduling.schedule puts refused rows aside)"
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write down what is known to be stored; tasks that did not end may have stored more."""
        self._told("aborted", messages)

    def _told(self, name: str, messages: list[WriterCommitMessage | None]) -> Stored:
        ended = [message.stored for message in messages if isinstance(message, Written)]
        total = sum(ended, Stored())
        document = {**asdict(total), "tasks": len(messages), "tasks_ended": len(ended)}

        async def work() -> None:
            async with opened(self._reference) as endpoint:
                await azure_backend(endpoint).bulk.put(f"{self._folder}/{name}.json", document)

        run(work)
        return total


def check_schema(schema: StructType) -> None:
    """Refuse a frame that can't be written, before anything is.

    Raises:
        UsageError: which column is missing or of the wrong type.
    """
    for name, (kinds, wanted) in _NEEDED.items():
        if name not in schema.names:
            raise UsageError(f"column {name} is missing; there are {', '.join(schema.names)}")
        kind = schema[name].dataType
        if not isinstance(kind, kinds):
            raise UsageError(f"column {name} is {kind.simpleString()}; it must be {wanted}")
