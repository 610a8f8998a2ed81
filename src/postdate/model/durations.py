"""Durations and instants as people write them in settings and on the command line."""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from postdate.errors import InvalidDueTime, UsageError, shown
from postdate.model.headers import parse_timespan
from postdate.model.limits import EARLIEST_DUE, LATEST_DUE

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_ISO_UNITS = tuple(_UNITS[unit] for unit in "wdhms")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|s|m|h|d|w)\s*)+")
_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
FORMS = "seconds (90), units (1m30s, 2h, 7d), ISO 8601 (PT90S) or .NET (00:01:30)"


def parse_duration(value: object) -> timedelta:
    """A duration from a number of seconds, a timedelta, or text in one of `FORMS`.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)  # no subclass with its own arithmetic
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _total([value], 1, value)
    if isinstance(value, str):
        text = value.strip()
        sign = -1 if text.startswith("-") else 1
        bare = text[1:] if text.startswith(("+", "-")) else text
        if _WHOLE.fullmatch(bare):
            return _total((float(n) * _UNITS[u] for n, u in _PART.findall(bare)), sign, value)
        iso = _ISO.fullmatch(bare)
        if iso and any(iso.groups()):
            counts = (float(group or 0) for group in iso.groups())
            return _total((n * unit for n, unit in zip(counts, _ISO_UNITS, strict=True)), sign, value)
        if ":" in bare:
            return parse_timespan(text)
        try:
            number = float(text)
        except ValueError:
            pass
        else:
            return _total([number], 1, value)
    raise UsageError(f"{shown(value)} is not a duration; write {FORMS}")


def _total(seconds: Iterable[float], sign: int, given: object) -> timedelta:
    """The sum, each part exact to the microsecond (one float for all would not be, for long spans)."""
    try:
        span = timedelta(0)
        for part in seconds:
            if math.isnan(part):
                raise UsageError(f"{shown(given)} is not a duration: not a number")
            span += timedelta(seconds=part)
        return sign * span
    except OverflowError:
        raise UsageError(
            f"{shown(given)} is not a duration: longer than {timedelta.max.days:,} days"
        ) from None


def format_duration(span: timedelta) -> str:
    """The shortest exact form that people read: `30s`, `1m30s`, `7d`, `0.25s`."""
    if span < timedelta(0):
        return "-" + format_duration(-span)
    minutes, seconds = divmod(span.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    second = f"{seconds + span.microseconds / 1e6:.6f}".rstrip("0").rstrip(".")
    parts = [(span.days, "d"), (hours, "h"), (minutes, "m")]
    text = "".join(f"{n}{u}" for n, u in parts if n)
    return text + (f"{second}s" if second != "0" or not text else "")


def parse_instant_text(text: str) -> datetime:
    """An instant in ISO 8601 with a zone, as the command line takes it.

    Raises:
        InvalidDueTime: not ISO 8601, or without a zone.
    """
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidDueTime(
            f"{shown(text)} is not an instant; write ISO 8601 with a zone, like 2026-03-01T07:08:09Z"
        ) from None
    if instant.tzinfo is None:
        raise InvalidDueTime(f"{shown(text)} has no time zone; write it like 2026-03-01T07:08:09Z")
    return check_due_time(instant)


def check_due_time(value: object) -> datetime:
    """The due time in UTC.

    Raises:
        InvalidDueTime: not a datetime, without a zone, or outside the years 1601 to 9998.
    """
    if not isinstance(value, datetime):
        raise InvalidDueTime(f"the due time must be an aware datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidDueTime(
            f"the due time {value.isoformat()} has no time zone; pass an aware datetime, "
            "like datetime.now(UTC) + timedelta(hours=1)"
        )
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        utc = None
    if utc is None or not EARLIEST_DUE <= utc < LATEST_DUE:
        raise InvalidDueTime(f"the due time {value.isoformat()} can't be stored; years 1601 to 9998 can")
    return datetime(
        utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, tzinfo=UTC
    )


def due_after(delay: object, now: datetime) -> datetime:
    """The due time that a delay gives, counted from `now`; zero and negative delays give an instant past.

    Raises:
        InvalidDueTime: the delay is not a duration, not a number, or leads out of the years that can be
            stored.
    """
    try:
        span = parse_duration(delay)
    except UsageError as error:
        raise InvalidDueTime(f"delay {error}") from None
    try:
        return check_due_time(now + max(span, timedelta(0)))
    except OverflowError:
        raise InvalidDueTime(f"delay {shown(delay)} leads beyond the year 9998") from None
