"""What was asked for against what happened: one verdict per message. Functions on frames; nothing is read.

Everything known of a message is made a *fact* (message, destination, due time, kind), facts meet by message
id, and what they add up to is judged per message and destination. Destinations are compared without case.

    delivered           as often as asked for, in its queue, on time
    late                so too, and by more than the limit
    early               its queue showed it before it was due
    duplicated          put on its destination more often than asked for
    wrong destination   put somewhere else, and not (as often) where it belongs
    waiting             its row is there
    in error queue      it lies there, or went there and nowhere else
    cancelled, expired  withdrawn, or past its `expires_after`, as the log says
    lost                nothing knows of it

Where several hold, the one further up in `_verdict` wins.
"""

from datetime import timedelta
from enum import StrEnum
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from postdate.errors import UsageError
from postdate.model.delivery_log import LogOutcome


class Verdict(StrEnum):
    """What became of a message."""

    DELIVERED = "delivered"
    WAITING = "waiting"
    IN_ERROR_QUEUE = "in error queue"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    LATE = "late"
    DUPLICATED = "duplicated"
    EARLY = "early"
    WRONG_DESTINATION = "wrong destination"
    LOST = "lost"


#: With one of these the audit has failed.
FAILURES = (Verdict.LOST, Verdict.EARLY, Verdict.WRONG_DESTINATION)
#: Worth an example in the report.
DEFECTS = (*FAILURES, Verdict.DUPLICATED, Verdict.LATE, Verdict.IN_ERROR_QUEUE)

_KEY = ("message_id", "destination", "due_time")
#: What is needed of a log.
LOG_COLUMNS = (
    "logged_at",
    "outcome",
    "message_id",
    "destination",
    "due_time",
    "was_due_time",
    "visible_at",
    "term",
    "path",
    "count",
)
_EXPECTED, _WAITING, _HANDED, _DIRECT, _GONE, _ERROR, _ERROR_NOW = range(7)
_CANCELLED, _EXPIRED, _MOVED = range(7, 10)


def reconcile(
    expected: DataFrame,
    log: DataFrame,
    waiting: DataFrame | None = None,
    errors: DataFrame | None = None,
    *,
    late_after: timedelta,
) -> DataFrame:
    """A row for each message and destination that is expected, with its verdict.

    A message that was handed to somebody else as well as to all whom it was for has a row for that.

    Args:
        expected: `message_id`, `destination`, `due_time`; the same row twice is one.
        log: as `schema.LOG`, of at least the time since the messages were scheduled.
        waiting: `message_id`, `destination`, `due_time` of rows that were there when the log was read, or
            before.
        errors: `message_id` of what lies in the error queue.
        late_after: more than this is late.

    Returns:
        message_id, destination, due_time (the first, as last moved), verdict, expected, deliveries,
        visible_at (the first), lateness_s (the worst), pairs (each due time with its lateness_s and term).
    """
    check_expected(expected)
    facts = [_plain(expected, _EXPECTED), _from_log(identified(log))]
    if waiting is not None:
        facts.append(_plain(waiting, _WAITING))
    if errors is not None:
        nowhere = f.lit(None).cast("string"), f.lit(None).cast("timestamp")
        facts.append(_plain(errors.select("message_id", *map(Column.alias, nowhere, _KEY[1:])), _ERROR_NOW))
    # All that follows groups by message id and more: rows move between machines once.
    known = reduce(DataFrame.unionByName, facts).where("message_id is not null").repartition("message_id")
    return _judged(_by_message(_by_destination(_by_due_time(known))), late_after)


def check_expected(frame: DataFrame) -> None:
    """Refuse a frame that does not say what is expected.

    Raises:
        UsageError: which column is missing or of the wrong type.
    """
    types = dict(frame.dtypes)
    for name, kind in zip(_KEY, ("string", "string", "timestamp"), strict=True):
        if name not in types:
            raise UsageError(f"column {name} is missing; there are {', '.join(types) or 'none'}")
        if types[name] != kind:
            raise UsageError(f"column {name} is {types[name]}; it must be {kind}")


def identified(log: DataFrame) -> DataFrame:
    """The log with the message id of what was withdrawn or moved while it lay in its queue.

    Whoever did that had a handle without one. The sender's record has the same destination and due time.
    """
    where = f.lower("destination"), f.coalesce("was_due_time", "due_time")
    nameless = log.message_id.isNull() & log.outcome.isin(
        LogOutcome.CANCELLED.value, LogOutcome.RESCHEDULED.value
    )
    senders = (
        log.where(f.col("message_id").isNotNull() & _direct(log))
        .groupBy(f.lower("destination").alias("_where"), f.col("due_time").alias("_when"))
        .agg(f.min("message_id").alias("_id"))
    )
    found = (
        log.where(nameless)
        .withColumns({"_where": where[0], "_when": where[1]})
        .join(senders, ["_where", "_when"])
        .withColumn("message_id", f.col("_id"))
        .drop("_where", "_when", "_id")
    )
    return log.where(~nameless).unionByName(found)


def _direct(log: DataFrame) -> Column:
    """Whether a sender put it into its queue itself."""
    sent = log.outcome.isin(LogOutcome.SCHEDULED.value, LogOutcome.RESCHEDULED.value)
    return sent & log.visible_at.isNotNull()


# --- facts --------------------------------------------------------------------------------------------


def _fact(kind: int, due: str | None = "due_time", *, shown: bool = False, moved: bool = False) -> Column:
    none = f.lit(None)
    return f.struct(
        f.lit(kind).alias("kind"),
        (f.col("visible_at") if shown else none).cast("timestamp").alias("visible"),
        (f.col("term") if kind == _HANDED else none).cast("long").alias("term"),
        (f.col("logged_at") if moved else none).cast("timestamp").alias("moved_at"),
        (f.col("due_time") if moved else none).cast("timestamp").alias("moved_to"),
        (none if due is None else f.col(due)).cast("timestamp").alias("due_time"),
    )


def _plain(frame: DataFrame, kind: int) -> DataFrame:
    return frame.select("message_id", f.lower("destination").alias("destination"), "due_time").select(
        "message_id", "destination", _fact(kind).alias("fact")
    )


def _from_log(log: DataFrame) -> DataFrame:
    """The facts of each record: a move, for example, takes one due time away and may bring another."""
    outcome = f.col("outcome")
    shown = f.col("visible_at").isNotNull()
    facts = (
        f.when(outcome == LogOutcome.HANDED_OVER.value, f.array(_fact(_HANDED, shown=True)))
        .when((outcome == LogOutcome.SCHEDULED.value) & shown, f.array(_fact(_DIRECT, shown=True)))
        .when(outcome == LogOutcome.CANCELLED.value, f.array(_fact(_CANCELLED), _fact(_GONE)))
        .when(outcome == LogOutcome.EXPIRED.value, f.array(_fact(_EXPIRED)))
        .when(outcome == LogOutcome.MOVED_TO_ERROR_QUEUE.value, f.array(_fact(_ERROR, None)))
        .when(
            (outcome == LogOutcome.RESCHEDULED.value) & shown,
            f.array(
                _fact(_MOVED, "was_due_time", moved=True),
                _fact(_GONE, "was_due_time"),
                _fact(_DIRECT, shown=True),
            ),
        )
        .when(outcome == LogOutcome.RESCHEDULED.value, f.array(_fact(_MOVED, "was_due_time", moved=True)))
    )
    return log.select(
        "message_id", f.lower("destination").alias("destination"), f.explode(facts).alias("fact")
    )


# --- what they add up to ------------------------------------------------------------------------------


def _count(kind: int) -> Column:
    return f.count_if(f.col("kind") == kind)


def _by_due_time(facts: DataFrame) -> DataFrame:
    """Per message, destination and due time: what its queue got, less what senders took out again."""
    shown = f.struct("visible", "term")
    sums = (
        facts.select("message_id", "destination", "fact.*")
        .groupBy(*_KEY)
        .agg(
            (_count(_EXPECTED) > 0).alias("asked"),
            _count(_WAITING).alias("waiting"),
            _count(_ERROR).alias("errors"),
            _count(_ERROR_NOW).alias("errors_now"),
            _count(_CANCELLED).alias("cancelled"),
            _count(_EXPIRED).alias("expired"),
            _count(_GONE).alias("gone"),
            f.collect_list(f.when(f.col("kind") == _HANDED, shown)).alias("handed"),
            f.collect_list(f.when(f.col("kind") == _DIRECT, shown)).alias("direct"),
            f.collect_list(
                f.when(f.col("kind") == _MOVED, f.struct("moved_at", "due_time", "moved_to"))
            ).alias("moves"),
        )
    )
    left = f.slice("direct", f.lit(1), f.greatest(f.size("direct") - f.col("gone"), f.lit(0)).cast("int"))
    return sums.withColumn("shown", f.concat("handed", left)).drop("handed", "direct", "gone")


def _by_destination(sums: DataFrame) -> DataFrame:
    """Per message and destination: due times as they were moved last, and deliveries in order."""
    counts = ("waiting", "errors", "errors_now", "cancelled", "expired")
    grouped = sums.groupBy("message_id", "destination").agg(
        f.collect_list(f.when(f.col("asked"), f.col("due_time"))).alias("dues"),
        *(f.sum(name).alias(name) for name in counts),
        f.array_sort(f.flatten(f.collect_list("shown"))).alias("shown"),
        f.array_sort(f.flatten(f.collect_list("moves"))).alias("moves"),
    )

    def moved(dues: Column, move: Column) -> Column:
        return f.transform(dues, lambda due: f.when(due == move.due_time, move.moved_to).otherwise(due))

    return grouped.withColumn("dues", f.array_sort(f.aggregate("moves", f.col("dues"), moved))).drop("moves")


def _by_message(groups: DataFrame) -> DataFrame:
    """Beside each destination of a message: what its others are like."""
    message = Window.partitionBy("message_id")
    asked, got = f.size("dues"), f.size("shown")
    return groups.withColumns(
        {
            "expected": asked,
            "deliveries": got,
            "known": f.max(asked > 0).over(message),
            "elsewhere": f.max((asked == 0) & (got > 0)).over(message),
            "lacking": f.max(got < asked).over(message),
            "in_errors": f.max(f.col("errors_now") > 0).over(message) | (f.col("errors") > 0),
        }
    ).where((asked > 0) | ((got > 0) & f.col("known") & ~f.col("lacking")))


def _judged(groups: DataFrame, late_after: timedelta) -> DataFrame:
    pairs = f.filter(
        f.zip_with(
            "dues",
            "shown",
            lambda due, shown: f.struct(
                due.alias("due_time"),
                ((f.unix_micros(shown.visible) - f.unix_micros(due)) / 1_000_000).alias("lateness_s"),
                shown.term.alias("term"),
            ),
        ),
        lambda pair: pair.lateness_s.isNotNull(),
    )
    return groups.withColumn("pairs", pairs).select(
        "message_id",
        "destination",
        f.get("dues", f.lit(0)).alias("due_time"),
        _verdict(late_after).alias("verdict"),
        "expected",
        "deliveries",
        f.get("shown", f.lit(0)).visible.alias("visible_at"),
        f.array_max(f.transform("pairs", lambda pair: pair.lateness_s)).alias("lateness_s"),
        "pairs",
    )


def _verdict(late_after: timedelta) -> Column:
    expected, deliveries = f.col("expected"), f.col("deliveries")
    short = deliveries < expected
    limit = late_after.total_seconds()
    cases = (
        (Verdict.WRONG_DESTINATION, (expected == 0) | (short & f.col("elsewhere"))),
        (Verdict.DUPLICATED, deliveries > expected),
        (Verdict.EARLY, f.exists("pairs", lambda pair: pair.lateness_s < 0)),
        (Verdict.LATE, ~short & f.exists("pairs", lambda pair: pair.lateness_s > limit)),
        (Verdict.DELIVERED, ~short),
        (Verdict.WAITING, f.col("waiting") > 0),
        (Verdict.IN_ERROR_QUEUE, f.col("in_errors")),
        (Verdict.CANCELLED, f.col("cancelled") > 0),
        (Verdict.EXPIRED, f.col("expired") > 0),
    )
    return reduce(
        lambda rest, case: f.when(case[1], f.lit(case[0].value)).otherwise(rest),
        reversed(cases),
        f.lit(Verdict.LOST.value),
    )
