"""The columns of our frames, with their meaning and units as column comments."""

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
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
