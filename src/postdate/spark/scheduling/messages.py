"""Any frame with the right columns as a frame of messages. Functions on frames; nothing is read or written.

Columns that are understood, as the arguments of `Endpoint.schedule`:

    destination    text
    body           text, binary, or anything else, which becomes JSON
    due_time       timestamp, or text with a zone (2026-03-01T07:08:09Z)   } one of
    delay          seconds (a number) or an interval, from the run's begin } these
    message_id     text; where it is missing, one is made of the row's values
    headers        map, struct or JSON object of text
    expires_after  seconds, or text like 7d

Others are ignored, so that a frame with more in it needs no select.
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DayTimeIntervalType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from postdate.errors import UsageError

_HEADERS = MapType(StringType(), StringType())
#: How a body came: decides its content type.
BYTES, TEXT, JSON = "bytes", "text", "json"
_NESTED = (StructType, MapType, ArrayType)


def check_columns(frame: DataFrame) -> None:
    """Refuse a frame that can't hold messages, before anything is read.

    Raises:
        UsageError: which column is missing or of the wrong type, and what it should be.
    """
    types = {field.name: field.dataType for field in frame.schema.fields}
    there = ", ".join(types) or "none"
    for name in ("destination", "body"):
        if name not in types:
            raise UsageError(f"column {name} is missing; there are {there}")
    if ("due_time" in types) == ("delay" in types):
        raise UsageError(f"give either column due_time or column delay; there are {there}")
    allowed: dict[str, tuple[tuple[type, ...], str]] = {
        "destination": ((StringType,), "text"),
        "message_id": ((StringType,), "text; cast it"),
        "due_time": (
            (TimestampType, StringType),
            "a timestamp, or text with a zone like 2026-03-01T07:08:09Z",
        ),
        "delay": ((NumericType, DayTimeIntervalType), "seconds or an interval"),
        "headers": ((MapType, StructType, StringType), "a map, a struct or a JSON object of text"),
        "expires_after": ((NumericType, StringType), "seconds, or text like 7d"),
    }
    if isinstance(types.get("due_time"), TimestampNTZType):
        raise UsageError(
            "column due_time is a timestamp without a zone, which could be any instant; say which zone it "
            "is in (to_utc_timestamp(due_time, 'Europe/Berlin'), for example)"
        )
    for name, (kinds, wanted) in allowed.items():
        if name in types and not isinstance(types[name], kinds):
            raise UsageError(f"column {name} is {types[name].simpleString()}; it takes {wanted}")


def message_column(frame: DataFrame, *, began_at: datetime) -> Column:
    """One struct column with the message of each row: fields as in `MESSAGE_FIELDS`.

    Args:
        frame: that `check_columns` let through.
        began_at: what delays count from: fixed for a run, so that a task that runs twice gets the same.
    """
    types = {field.name: field.dataType for field in frame.schema.fields}
    null = f.lit(None).cast("string")
    due_text, due = null, f.lit(None).cast("timestamp")
    if "delay" in types:
        delay = f.col("delay")
        if isinstance(types["delay"], NumericType):
            delay = f.make_dt_interval(secs=delay.cast("decimal(18,6)"))
        due = f.lit(began_at) + delay
    elif isinstance(types["due_time"], StringType):
        due_text = f.col("due_time")
        due = f.try_to_timestamp(due_text)
    else:
        due = f.col("due_time")
    # All columns: rows that differ in any of them are two messages, rows alike are one.
    derived = f.substring(f.sha2(f.to_json(f.struct(*(f.col(f"`{name}`") for name in types))), 256), 1, 32)
    message_id = f.coalesce(f.col("message_id"), derived) if "message_id" in types else derived
    body, kind = _body(types["body"])
    expires_after = f.col("expires_after").cast("string") if "expires_after" in types else null
    return f.struct(
        message_id.alias("message_id"),
        f.col("destination").alias("destination"),
        due.alias("due_time"),
        due_text.alias("due_text"),
        body.alias("body"),
        f.lit(kind).alias("body_kind"),
        _headers(types.get("headers")).alias("headers"),
        expires_after.alias("expires_after"),
    )


def _body(kind: object) -> tuple[Column, str]:
    body = f.col("body")
    if isinstance(kind, BinaryType):
        return body, BYTES
    if isinstance(kind, StringType):
        return body.cast("binary"), TEXT
    if isinstance(kind, _NESTED):
        return f.to_json(body).cast("binary"), JSON
    if isinstance(kind, NumericType):
        return body.cast("string").cast("binary"), JSON
    # Booleans, dates and times: as they stand in JSON.
    member = f.to_json(f.struct(body.alias("v")))
    return f.regexp_extract(member, r'^\{"v":(.*)\}$', 1).cast("binary"), JSON


def _headers(kind: object) -> Column:
    if kind is None:
        return f.lit(None).cast(_HEADERS)
    if isinstance(kind, StringType):
        return f.from_json(f.col("headers"), _HEADERS)
    if isinstance(kind, StructType):
        return f.from_json(f.to_json(f.col("headers")), _HEADERS)
    return f.col("headers").cast(_HEADERS)
