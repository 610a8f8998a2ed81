"""Due time to row key and back: `yyyyMMddHHmmss_<microseconds>_<32 hex>` in partition `yyyyMMddHH`.

Text order is due order. A row of a .NET endpoint has no microseconds and a random GUID; its due time is
known to the second only, cut, so it is due when that second is over (which is also when .NET picks it).
Always invariant Gregorian ASCII digits: a format call under another culture would hide rows.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from postdate.model.limits import EARLIEST_DUE

_OURS = re.compile(r"(\d{14})_(\d{6})_([0-9a-f]{32})", re.ASCII)
_SECOND = re.compile(r"(\d{14})_.*", re.ASCII | re.DOTALL)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)
_HOUR_DIGITS = 10


@dataclass(frozen=True, slots=True)
class RowKey:
    """The two keys of a row."""

    partition: str
    row: str


def _digits(instant: datetime) -> str:
    utc = instant.astimezone(UTC)
    return f"{utc.year:04d}{utc.month:02d}{utc.day:02d}{utc.hour:02d}{utc.minute:02d}{utc.second:02d}"


def identity(message_id: str, destination: str) -> str:
    """32 hex digits that stand for this message to this destination, whenever it is due."""
    text = f"{len(message_id)}:{message_id}{destination.lower()}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def row_key(due_at: datetime, message_identity: str) -> RowKey:
    """The keys of our row for a due time (aware) and an `identity`."""
    second = _digits(due_at)
    micros = due_at.astimezone(UTC).microsecond
    return RowKey(second[:_HOUR_DIGITS], f"{second}_{micros:06d}_{message_identity}")


def bound(until: datetime) -> RowKey:
    """An upper bound: each row due at or before `until` has a smaller row key, and its partition at most.

    The suffix sorts behind every digit and hex letter of the same microsecond.
    """
    second = _digits(until)
    micros = until.astimezone(UTC).microsecond
    return RowKey(second[:_HOUR_DIGITS], f"{second}_{micros:06d}_~")


def due_time(key: RowKey) -> datetime | None:
    """The due time that a row key tells, or None where it tells none.

    Ours to the microsecond; any other suffix: the end of its second. The last second of all, which .NET
    writes for "never", has no end: it is due at the last microsecond. A year before 1601 is no year of ours
    but of another calendar (nservicebus-azure, 1.2), and tells nothing.
    """
    match = _OURS.fullmatch(key.row)
    coarse = None if match else _SECOND.fullmatch(key.row)
    found = match or coarse
    if found is None:
        return None
    try:
        second = _parse_digits(found[1])
        if second < EARLIEST_DUE:
            return None
        return second + (timedelta(microseconds=int(match[2])) if match else timedelta(seconds=1))
    except OverflowError:
        return _NEVER
    except ValueError:
        return None


def _parse_digits(text: str) -> datetime:
    return datetime(
        int(text[:4]),
        int(text[4:6]),
        int(text[6:8]),
        int(text[8:10]),
        int(text[10:12]),
        int(text[12:14]),
        tzinfo=UTC,
    )
