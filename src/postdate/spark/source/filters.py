"""Spark's filters as a window of due times."""

from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from postdate.spark.ranges import DueWindow

_STEP = timedelta(microseconds=1)
_COLUMN = ("due_time",)


def narrowed(window: DueWindow, one: Filter, column: tuple[str, ...] = _COLUMN) -> DueWindow:
    """The window with what a filter on the due time (or `column`) cuts off; others leave it as it is."""
    match one:
        case GreaterThanOrEqual(attribute, datetime() as value) if attribute == column:
            return window.from_(_utc(value))
        case GreaterThan(attribute, datetime() as value) if attribute == column:
            return window.from_(_utc(value) + _STEP)
        case LessThan(attribute, datetime() as value) if attribute == column:
            return window.until(_utc(value))
        case LessThanOrEqual(attribute, datetime() as value) if attribute == column:
            return window.until(_utc(value) + _STEP)
        case EqualTo(attribute, datetime() as value) if attribute == column:
            return window.from_(_utc(value)).until(_utc(value) + _STEP)
    return window


def _utc(value: datetime) -> datetime:
    """A naive one would be Spark's local form of an instant: read in the session's time zone by Spark."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
