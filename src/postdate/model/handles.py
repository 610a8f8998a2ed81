"""Handles: what `schedule` returns, and what finds the message again after a restart.

A handle is text without meaning to its holder. Inside it names a row by its keys, or a hidden queue
message by its receipt, and ends in a check sum, so that a mistyped one is told from one that is used up.
"""

import base64
import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from postdate.errors import InvalidHandle, shown
from postdate.model.keys import EPOCH, RowKey

_CHECK_BYTES = 6
_PARTITION_DIGITS = 10
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class RowHandle:
    """The message waits in a row."""

    key: RowKey


@dataclass(frozen=True, slots=True)
class QueueHandle:
    """The message lies in its queue, hidden until it is due; the receipt can still withdraw it."""

    destination: str
    native_id: str
    pop_receipt: str
    due_at: datetime
    payload_ref: str | None = None


Handle = RowHandle | QueueHandle


def format_handle(handle: Handle) -> str:
    """The text to give out."""
    if isinstance(handle, RowHandle):
        # The partition is the beginning of the row key, unless somebody else made the row.
        parts: list[str | int] = ["r", handle.key.row]
        if handle.key.row[:_PARTITION_DIGITS] != handle.key.partition:
            parts.append(handle.key.partition)
    else:
        due = (handle.due_at - EPOCH) // _MICROSECOND
        parts = ["q", handle.destination, handle.native_id, handle.pop_receipt, due]
        if handle.payload_ref is not None:
            parts.append(handle.payload_ref)
    return _text(msgspec.msgpack.encode(parts))


def parse_handle(text: str) -> Handle:
    """Read a handle back.

    Raises:
        InvalidHandle: it was not made by `format_handle`, or was changed.
    """
    try:
        match msgspec.msgpack.decode(_content(text)):
            case ["r", str(row)]:
                return RowHandle(RowKey(row[:_PARTITION_DIGITS], row))
            case ["r", str(row), str(partition)]:
                return RowHandle(RowKey(partition, row))
            case ["q", str(destination), str(native_id), str(receipt), int(due)]:
                return QueueHandle(destination, native_id, receipt, EPOCH + due * _MICROSECOND)
            case ["q", str(destination), str(native_id), str(receipt), int(due), str(payload)]:
                return QueueHandle(destination, native_id, receipt, EPOCH + due * _MICROSECOND, payload)
    except (ValueError, AttributeError, OverflowError):  # msgspec's and base64's errors are ValueErrors
        pass
    raise InvalidHandle(f"{shown(text)} is not a handle; pass what schedule() returned")


def _text(content: bytes) -> str:
    check = hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()
    # The check sum last: a handle that began with a dash would be an option on the command line.
    return base64.urlsafe_b64encode(content + check).decode().rstrip("=")


def _content(text: str) -> bytes:
    content = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))[:-_CHECK_BYTES]
    # Compared as text: base64 ignores its last bits and all letters outside its alphabet.
    if _text(content) != text:
        raise ValueError("check sum")
    return content
