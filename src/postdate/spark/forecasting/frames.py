"""The load of a frame of waiting rows, and its way out. Functions on frames; nothing is read here."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from postdate.core.load import drained
from postdate.errors import UsageError
from postdate.model.keys import EPOCH

_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE
_MICROSECOND = timedelta(microseconds=1)
#: Minutes of one batch of `draining`.
_BATCH = 10_000
_DRAINED = pa.schema(
    [
        ("minute", pa.timestamp("us", "UTC")),
        ("messages", pa.int64()),
        ("backlog", pa.int64()),
        ("done_at", pa.timestamp("us", "UTC")),
        ("late_seconds", pa.float64()),
    ]
)


def load_by_minute(frame: DataFrame, *, start: datetime, destinations: bool = True) -> DataFrame:
    """Columns `minute` (its begin), `destination` where wanted, `messages`.

    Args:
        frame: columns `due_time` (null: due at once) and, where wanted, `destination`.
        start: the present; what tells no due time counts there.
        destinations: without them no column but the due time is read.

    Raises:
        UsageError: the frame lacks a column.
    """
    wanted = ["due_time", "destination"] if destinations else ["due_time"]
    for name in wanted:
        if name not in frame.columns:
            raise UsageError(f"column {name} is missing; there are {', '.join(frame.columns)}")
    due = f.coalesce(f.col("due_time"), f.lit(start))
    keys = [_begin(due, _MINUTE).alias("minute"), *map(f.col, wanted[1:])]
    return frame.groupBy(*keys).agg(f.count("*").alias("messages"))


def load_by_hour(load: DataFrame) -> DataFrame:
    """Of `load_by_minute`: columns `hour`, `destination` where it is there, `messages`."""
    keys = [_begin(f.col("minute"), _HOUR).alias("hour")]
    keys += [f.col(name) for name in ("destination",) if name in load.columns]
    return load.groupBy(*keys).agg(f.sum("messages").alias("messages"))


def draining(load: DataFrame, *, rate: float, start: datetime, lookahead: timedelta) -> DataFrame:
    """Of `load_by_minute`, all destinations together: what `core.load.drained` tells of each minute.

    Columns `minute`, `messages`, `backlog` (messages), `done_at`, `late_seconds`. One task does it, as each
    minute depends on those before; it holds a batch of minutes.

    Raises:
        UsageError: the rate is not above 0.
    """
    if not rate > 0 or rate == float("inf"):
        raise UsageError(f"rate {rate:g}: write messages per second, above 0, like 500")
    minutes = load.groupBy("minute").agg(f.sum("messages").alias("messages"))
    ordered = minutes.repartition(1).sortWithinPartitions("minute")

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = ((row["minute"], row["messages"]) for batch in batches for row in _micros(batch).to_pylist())
        loads = ((EPOCH + minute * _MICROSECOND, messages) for minute, messages in rows)
        columns: list[tuple[object, ...]] = []
        for one in drained(loads, rate=rate, start=start, lookahead=lookahead):
            columns.append((one.minute, one.messages, one.backlog, one.done_at, one.late.total_seconds()))
            if len(columns) == _BATCH:
                yield _batch(columns)
                columns = []
        if columns:
            yield _batch(columns)

    return ordered.mapInArrow(
        task, "minute timestamp, messages bigint, backlog bigint, done_at timestamp, late_seconds double"
    )


def _micros(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Instants as microseconds: Arrow's own conversion goes by way of the zone's name."""
    return pa.RecordBatch.from_arrays(
        [batch.column("minute").cast(pa.int64()), batch.column("messages")], names=["minute", "messages"]
    )


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    arrays = [
        pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), _DRAINED, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_DRAINED)


def _begin(instant: Column, span: int) -> Column:
    """Begin of the minute or hour, whatever the session's zone."""
    micros = f.unix_micros(instant)
    return f.timestamp_micros(micros - f.pmod(micros, f.lit(span)))
