"""DelayedMessage to stored row and back.

The layout (docs/explain/row-layout.md): the columns of .NET's `DelayedMessageEntity`, which .NET endpoints
read and write, and five of ours that are optional on read:

    Destination      String    as the sender gave it
    Body             Binary    absent when the body lies in a blob
    MessageId        String
    Headers          String    JSON object, text or null values
    DueTime          DateTime  exact; absent: the row key tells it
    FailureCount     Int32     absent: 0
    NextAttemptTime  DateTime  absent: when due
    BodyBlob         String    name of the payload blob (claim check)
    ScheduledTime    DateTime
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from postdate.errors import PoisonMessage, shown
from postdate.model.delayed import DelayedMessage, DelayedRow, Row, RowValue, UnreadableRow
from postdate.model.headers import Headers
from postdate.model.jsontext import read, write_map
from postdate.model.keys import EPOCH, RowKey, due_time
from postdate.model.message import Message

DUE_TIME = "DueTime"
FAILURE_COUNT = "FailureCount"
NEXT_ATTEMPT_TIME = "NextAttemptTime"
BODY_BLOB = "BodyBlob"
SCHEDULED_TIME = "ScheduledTime"


def encode_row(delayed: DelayedMessage, key: RowKey | None = None) -> dict[str, RowValue]:
    """The properties of the row, keys included; a None-valued property is left out.

    Args:
        delayed: what waits.
        key: its own, where it is known already.
    """
    key = key or delayed.key
    message = delayed.message
    row: dict[str, RowValue] = {
        "PartitionKey": key.partition,
        "RowKey": key.row,
        "Destination": delayed.destination,
        "MessageId": message.message_id,
        "Headers": write_map(message.headers),
        DUE_TIME: delayed.due_at.astimezone(UTC),
    }
    if delayed.payload_ref is None:
        row["Body"] = message.body
    else:
        row[BODY_BLOB] = delayed.payload_ref
    if delayed.scheduled_at is not None:
        row[SCHEDULED_TIME] = delayed.scheduled_at.astimezone(UTC)
    if delayed.failure_count:
        row[FAILURE_COUNT] = delayed.failure_count
    if delayed.next_attempt_at is not None:
        row[NEXT_ATTEMPT_TIME] = delayed.next_attempt_at.astimezone(UTC)
    return row


def decode_row(properties: Mapping[str, RowValue], etag: str) -> Row:
    """Read a row of either writer. A row that can't be read comes back as `UnreadableRow`, never raises."""
    key = RowKey(str(properties["PartitionKey"]), str(properties["RowKey"]))
    due_at = instant_of(properties.get(DUE_TIME)) or due_time(key)
    count = properties.get(FAILURE_COUNT)
    failure_count = max(0, count) if isinstance(count, int) and not isinstance(count, bool) else 0
    next_attempt_at = instant_of(properties.get(NEXT_ATTEMPT_TIME))
    if due_at is None:
        reason = f"row key {shown(key.row)} holds no due time"
        return UnreadableRow(key, etag, reason, dict(properties), None, failure_count, next_attempt_at)
    try:
        delayed = DelayedMessage(
            message=Message(
                message_id=text_in(properties, "MessageId"),
                headers=headers_in(properties.get("Headers")),
                body=_body(properties.get("Body")),
            ),
            destination=text_in(properties, "Destination"),
            due_at=due_at,
            scheduled_at=instant_of(properties.get(SCHEDULED_TIME)),
            failure_count=failure_count,
            next_attempt_at=next_attempt_at,
            payload_ref=optional_text_in(properties, BODY_BLOB),
        )
    except PoisonMessage as error:
        return UnreadableRow(key, etag, str(error), dict(properties), due_at, failure_count, next_attempt_at)
    return DelayedRow(key, etag, delayed)


def instant_of(value: object) -> datetime | None:
    """An instant as a column holds it, aware and plain; None: it is none."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value  # nearly all are
    if not isinstance(value, datetime):
        return None
    # SDKs hand out subclasses; a plain aware datetime is what the rest of the code compares.
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    try:
        return EPOCH + (aware - EPOCH)
    except OverflowError:  # a zone that leads out of the years there are: as good as absent
        return None


def text_in(properties: Mapping[str, object], name: str) -> str:
    """A column of text that is needed.

    Raises:
        PoisonMessage: it is missing, empty, or of another type.
    """
    value = properties.get(name)
    if not isinstance(value, str) or not value:
        raise PoisonMessage(f"column {name} holds {type(value).__name__}, not text")
    return value


def optional_text_in(properties: Mapping[str, object], name: str) -> str | None:
    """A column of text that may be missing; None: it is, or holds something else."""
    value = properties.get(name)
    return value if isinstance(value, str) and value else None


def _body(value: RowValue) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, bytes):
        raise PoisonMessage(f"column Body holds {type(value).__name__}, not bytes")
    return value


def headers_in(value: object) -> Headers:
    """The headers out of their column.

    Raises:
        PoisonMessage: they are not the JSON that they should be.
    """
    if not isinstance(value, str):
        raise PoisonMessage(f"column Headers holds {type(value).__name__}, not JSON text")
    try:
        parsed = read(value)
    except PoisonMessage as error:
        raise PoisonMessage(f"column Headers is {error}") from None
    return headers_of(parsed, "column Headers")


def headers_of(parsed: object, where: str) -> Headers:
    """Headers from parsed JSON.

    Raises:
        PoisonMessage: it is not an object of text or null values, as .NET's reader demands too.
    """
    if not isinstance(parsed, dict):
        raise PoisonMessage(f"{where} is not a JSON object")
    for name, header in parsed.items():
        if header is not None and not isinstance(header, str):
            raise PoisonMessage(f"{where}: {shown(name)} is {type(header).__name__}, not text")
    return parsed
