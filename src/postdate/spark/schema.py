"""The columns of our frames, with their meaning and units as column comments."""

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _column(name: str, kind: DataType, comment: str, *, null: bool = True) -> StructField:
    return StructField(name, kind, null, {"comment": comment})


#: The waiting rows of an endpoint, and what writing takes.
DELAYS = StructType(
    [
        _column("message_id", StringType(), "stable across deliveries; consumers de-duplicate on it"),
        _column("destination", StringType(), "queue, or queue@alias"),
        _column("due_time", TimestampType(), "UTC, microseconds; null: the row does not tell, due at once"),
        _column("headers", MapType(StringType(), StringType()), "text or null by name"),
        _column("body", BinaryType(), "bytes; null where it lies in a blob"),
        _column("body_blob", StringType(), "name of the payload blob in the endpoint's container"),
        _column("scheduled_time", TimestampType(), "UTC; null in rows of .NET endpoints"),
        _column("failure_count", IntegerType(), "dispatches that failed so far"),
        _column("next_attempt_time", TimestampType(), "UTC; not tried before; null: as soon as it is due"),
        _column("partition_key", StringType(), "the hour, yyyyMMddHH"),
        _column("row_key", StringType(), "sorts by due time"),
        _column("etag", StringType(), "names one version of the row"),
        _column("written_time", TimestampType(), "UTC; the service's time of the last change"),
        _column("unreadable", StringType(), "why the row can't be read; null: it can"),
    ]
)

#: The delivery log.
LOG = StructType(
    [
        _column("logged_at", TimestampType(), "UTC, microseconds, by the storage service's clock"),
        _column("outcome", StringType(), "what happened; unreadable: the line is no record"),
        _column("endpoint", StringType(), "whose log it is"),
        _column("process", StringType(), "who wrote it"),
        _column("message_id", StringType(), "null: withdrawn or moved while it lay in its queue"),
        _column("destination", StringType(), "queue, or queue@alias"),
        _column("due_time", TimestampType(), "UTC"),
        _column("was_due_time", TimestampType(), "UTC; before it was moved"),
        _column("handed_over_at", TimestampType(), "UTC; when it was put on its destination"),
        _column("visible_at", TimestampType(), "UTC; when its queue shows it; null: it is not in its queue"),
        _column("term", LongType(), "of the leader that handed it over"),
        _column("attempts", IntegerType(), "dispatches, the last one included"),
        _column("path", StringType(), "of what was scheduled or moved: row, queue, now, hidden"),
        _column(
            "reason", StringType(), "why it went to the error queue; the beginning of an unreadable line"
        ),
        _column("count", LongType(), "of a gap: records that are missing"),
    ]
)

#: Timeouts of older endpoints, as `postdate.timeouts` reads them.
TIMEOUTS = StructType(
    [
        _column("id", StringType(), "of the timeout, as its store has it"),
        _column("destination", StringType(), "queue, or queue@alias"),
        _column("due_time", TimestampType(), "UTC, microseconds"),
        _column("headers", MapType(StringType(), StringType()), "text or null by name, as they were stored"),
        _column("body", BinaryType(), "bytes"),
        _column("owner", StringType(), "the endpoint that put it off"),
        _column("saga_id", StringType(), "null: no saga asked"),
        _column("unreadable", StringType(), "why it can't be read; null: it can"),
    ]
)
