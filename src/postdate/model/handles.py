"""Handles: what `schedule` returns, and what finds the message again after a restart.

A handle is text without meaning to its holder. Inside it names a row by its keys, or a hidden queue
message by its receipt, and ends in a check sum, so that a mistyped one is told from one that is used up.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from postdate.clock import EPOCH
from postdate.errors import InvalidHandle
from postdate.model.keys import RowKey

_CHECK_BYTES = 3
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
        # The partition is the first ten digits of the row key.
        parts: list[str | int] = ["r", handle.key.row]
        if not handle.key.row.startswith(handle.key.partition):
            parts.append(handle.key.partition)
    else:
        due = (handle.due_at - EPOCH) // _MICROSECOND
        parts = ["q", handle.destination, handle.native_id, handle.pop_receipt, due]
        if handle.payload_ref is not None:
            parts.append(handle.payload_ref)
    content = msgspec.msgpack.encode(parts)
    check = hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()
    return base64.urlsafe_b64encode(check + content).decode().rstrip("=")


def parse_handle(text: str) -> Handle:
    """Read a handle back.

    Raises:
        InvalidHandle: it was not made by `format_handle`, or was changed.
    """
    try:
        data = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        check, content = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
        if hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest() != check:
            raise ValueError("check sum")  # noqa: TRY301
        parts = msgspec.msgpack.decode(content)
        match parts:
            case ["r", str(row)]:
                return RowHandle(RowKey(row[:10], row))
            case ["r", str(row), str(partition)]:
                return RowHandle(RowKey(partition, row))
            case ["q", str(destination), str(native_id), str(receipt), int(due)]:
                return QueueHandle(destination, native_id, receipt, EPOCH + due * _MICROSECOND)
            case ["q", str(destination), str(native_id), str(receipt), int(due), str(payload)]:
                return QueueHandle(
                    destination, native_id, receipt, EPOCH + due * _MICROSECOND, payload
                )
    except (ValueError, AttributeError, binascii.Error, msgspec.MsgspecError, OverflowError):
        pass
    raise InvalidHandle(f"{_shown(text)} is not a handle; pass what schedule() returned")


def _shown(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else shown[:57] + "…'"
