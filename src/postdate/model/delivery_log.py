"""A record of the delivery log as a line of JSON, and the names of the blobs that hold them.

One line per record, keys in the order of `LogRecord`, keys with nothing to say left out, instants in UTC with
microseconds. The layout is a promise to whoever reads the blobs: docs/explain/delivery-log.md.
"""

import re
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from postdate.errors import PoisonMessage

#: All blobs of the log begin with this, in the endpoint's container.
PREFIX = "log/"
_NAME = re.compile(rf"{PREFIX}(\d{{8}})/(\d\d)-.+\.jsonl")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
#: Host names are the only part of a process's name whose length is open.
_PROCESS_CHARACTERS = 120


class LogOutcome(StrEnum):
    """What a record says."""

    #: A sender made it durable: as a row, or in its queue (`path`).
    SCHEDULED = "scheduled"
    #: The leader put it on its destination.
    HANDED_OVER = "handed_over"
    MOVED_TO_ERROR_QUEUE = "moved_to_error_queue"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    #: Its `expires_after` was over before it could be handed over.
    EXPIRED = "expired"
    #: `count` records of this process are missing before this one.
    GAP = "gap"


class LogRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to a message, and when, by the storage service's clock."""

    logged_at: datetime
    outcome: LogOutcome
    endpoint: str
    process: str
    #: Unknown of what was withdrawn or moved while it lay in its queue.
    message_id: str | None = None
    destination: str | None = None
    due_time: datetime | None = None
    #: Before it was moved.
    was_due_time: datetime | None = None
    handed_over_at: datetime | None = None
    #: When its queue shows it; None: it is not in its queue.
    visible_at: datetime | None = None
    #: The leader's.
    term: int | None = None
    #: Dispatches, the last one included.
    attempts: int | None = None
    #: Of what was scheduled or moved: row, queue (hidden there) or now; `hidden` was moved in its queue.
    path: str | None = None
    reason: str | None = None
    #: Missing records.
    count: int | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LogRecord)


def encode_record(record: LogRecord) -> bytes:
    """The record's line, with its end."""
    return _encoder.encode(record) + b"\n"


def decode_record(line: bytes) -> LogRecord:
    """The record of a line; keys that are unknown here are ignored.

    Raises:
        PoisonMessage: it is none.
    """
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise PoisonMessage(f"a line of the delivery log can't be read: {error}") from None


def hour_of(instant: datetime) -> str:
    """The hour that an instant's records lie in, `yyyyMMdd/HH`: sorts by time."""
    return instant.astimezone(UTC).strftime("%Y%m%d/%H")


def blob_name(hour: str, process: str, part: int) -> str:
    """The blob of an hour and a process; `part` counts from 1."""
    fit = _UNFIT.sub("-", process)[-_PROCESS_CHARACTERS:]
    return f"{PREFIX}{hour}-{fit}{'' if part == 1 else f'-{part}'}.jsonl"


def hour_in(name: str) -> str | None:
    """The hour of a blob's name, as `hour_of`; None: it is no blob of the log."""
    found = _NAME.fullmatch(name)
    return None if found is None else f"{found[1]}/{found[2]}"
