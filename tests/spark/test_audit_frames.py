"""Verdicts on frames: what is planted is found, and nothing else is reported."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as f

from postdate.errors import UsageError
from postdate.spark.auditing.lateness import lateness
from postdate.spark.auditing.reconcile import Verdict, reconcile
from postdate.spark.schema import LOG

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LIMIT = timedelta(seconds=5)
EXPECTED = "message_id string, destination string, due_time timestamp"


def record(outcome, message_id="m", destination="orders", due=NOON, at=NOON, **more):
    """A row of the log; of a hand-over: on time, unless `visible_at` says otherwise."""
    shown = {"visible_at": due, "term": 1, "attempts": 1} if outcome == "handed_over" else {}
    values = {
        "logged_at": at,
        "outcome": outcome,
        "endpoint": "E",
        "process": "p",
        "message_id": message_id,
        "destination": destination,
        "due_time": due,
        **shown,
        **more,
    }
    return tuple(values.get(name) for name in LOG.names)


def handed(message_id="m", destination="orders", due=NOON, late=0.0, **more):
    visible = due + timedelta(seconds=late)
    return record("handed_over", message_id, destination, due, visible_at=visible, **more)


def sent(message_id="m", due=NOON, **more):
    """Put into its queue by the sender."""
    return record("scheduled", message_id, due=due, path="queue", visible_at=due, **more)


CASES = {
    "delivered": ([handed()], "delivered"),
    "delivered by the sender": ([sent()], "delivered"),
    "at the limit": ([handed(late=5)], "delivered"),
    "late": ([handed(late=5.001)], "late"),
    "early": ([handed(late=-0.000001)], "early"),
    "twice": ([handed(), handed(late=1)], "duplicated"),
    "elsewhere": ([handed(destination="other")], "wrong destination"),
    "letters of another size": ([handed(destination="ORDERS")], "delivered"),
    "unknown": ([], "lost"),
    "accepted, and no more": ([record("scheduled", path="row")], "lost"),
    "cancelled": ([record("scheduled", path="row"), record("cancelled")], "cancelled"),
    "expired": ([record("expired")], "expired"),
    "error queue": ([record("moved_to_error_queue", due=None)], "in error queue"),
    "retried from there": ([record("moved_to_error_queue", due=None), handed(late=3)], "delivered"),
    "cancelled in its queue": ([sent(), record("cancelled", None)], "cancelled"),
    "moved, and on time then": (
        [record("rescheduled", due=NOON + 60 * SECOND, was_due_time=NOON), handed(due=NOON + 60 * SECOND)],
        "delivered",
    ),
    "moved twice, and early": (
        [
            record("rescheduled", due=NOON + 60 * SECOND, was_due_time=NOON, at=NOON),
            record("rescheduled", due=NOON + 90 * SECOND, was_due_time=NOON + 60 * SECOND, at=NOON + SECOND),
            handed(due=NOON + 60 * SECOND),
        ],
        "early",
    ),
    "moved in its queue": (
        [
            sent(),
            record(
                "rescheduled",
                None,
                due=NOON + 20 * SECOND,
                was_due_time=NOON,
                path="hidden",
                visible_at=NOON + 21 * SECOND,
            ),
        ],
        "delivered",
    ),
    "moved into its queue": (
        [
            record(
                "rescheduled",
                due=NOON - 60 * SECOND,
                was_due_time=NOON,
                path="queue",
                visible_at=NOON - 60 * SECOND,
            )
        ],
        "delivered",
    ),
}


def test_each_history_has_its_verdict(spark):
    expected, log = [], []
    for number, (name, (records, _)) in enumerate(CASES.items()):
        # What has no message id is found by queue and due time: such a case needs a queue of its own.
        nameless = any(one[LOG.names.index("message_id")] is None for one in records)
        queue = f"q{number}" if nameless else "orders"
        expected.append((name, queue, NOON))
        for one in records:
            row = dict(zip(LOG.names, one, strict=True))
            row["message_id"] = row["message_id"] and name
            row["destination"] = queue if nameless else row["destination"]
            log.append(tuple(row.values()))
    frames = spark.createDataFrame(expected, EXPECTED), spark.createDataFrame(log, LOG)
    found = {row.message_id: row.verdict for row in reconcile(*frames, late_after=LIMIT).collect()}
    assert found == {name: verdict for name, (_, verdict) in CASES.items()}


def test_rows_and_the_error_queue_tell_where_the_rest_is(spark):
    expected = spark.createDataFrame(
        [(m, "orders", NOON) for m in ("row", "failed", "gone", "handed meanwhile")], EXPECTED
    )
    log = spark.createDataFrame([handed("handed meanwhile"), handed("of others")], LOG)
    waiting = spark.createDataFrame([("row", "Orders", NOON), ("handed meanwhile", "orders", NOON)], EXPECTED)
    errors = spark.createDataFrame([("failed",)], "message_id string")
    found = {
        row.message_id: row.verdict
        for row in reconcile(expected, log, waiting, errors, late_after=LIMIT).collect()
    }
    assert found == {
        "row": "waiting",
        "failed": "in error queue",
        "gone": "lost",
        "handed meanwhile": "delivered",
    }


def test_a_message_for_two_destinations_and_for_two_instants_is_several(spark):
    expected = spark.createDataFrame(
        [
            ("pub", "a", NOON),
            ("pub", "b", NOON),
            ("again", "a", NOON),
            ("again", "a", NOON + 60 * SECOND),
            ("both", "a", NOON),
        ],
        EXPECTED,
    )
    log = spark.createDataFrame(
        [
            handed("pub", "a"),
            handed("pub", "c"),
            handed("again", "a"),
            handed("again", "a", NOON + 60 * SECOND, late=9),
            handed("both", "a"),
            handed("both", "c"),
        ],
        LOG,
    )
    rows = reconcile(expected, log, late_after=LIMIT).collect()
    assert {(row.message_id, row.destination): row.verdict for row in rows} == {
        ("pub", "a"): "delivered",
        ("pub", "b"): "wrong destination",
        ("again", "a"): "late",
        ("both", "a"): "delivered",
        ("both", "c"): "wrong destination",
    }
    again = next(row for row in rows if row.message_id == "again")
    assert (again.expected, again.deliveries, again.lateness_s) == (2, 2, 9.0)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("message_id string, destination string", "column due_time is missing"),
        ("message_id string, destination string, due_time string", "column due_time is string; it must be"),
    ],
)
def test_a_frame_that_does_not_say_what_is_expected_is_refused(spark, columns, said):
    with pytest.raises(UsageError, match=said):
        reconcile(spark.createDataFrame([], columns), spark.createDataFrame([], LOG), late_after=LIMIT)


# --- many ---------------------------------------------------------------------------------------------

MESSAGES, EACH = 100_000, 10
#: Where each kind is planted: a tenth of all messages apart, and not at a round number.
PLANTED = {
    Verdict.LOST: 1_013,
    Verdict.DUPLICATED: 2_027,
    Verdict.EARLY: 3_041,
    Verdict.LATE: 4_057,
    Verdict.WRONG_DESTINATION: 5_077,
}


def planted(kind):
    return (f.col("id") % (MESSAGES // EACH)) == PLANTED[kind]


def many(spark):
    """Messages of four queues within an hour; their log, with ten defects of each kind."""
    queue = f.concat(f.lit("queue-"), f.col("id") % 4)
    due = f.timestamp_micros(f.unix_micros(f.lit(NOON)) + f.col("id") * 36_000)
    base = spark.range(MESSAGES).select(
        "id",
        f.concat(f.lit("m-"), "id").alias("message_id"),
        queue.alias("destination"),
        due.alias("due_time"),
    )
    late_us = (
        f.when(planted(Verdict.EARLY), -1_000_000)
        .when(planted(Verdict.LATE), 6_000_000)
        .otherwise((f.col("id") % 1_000) * 1_000)
    )
    log = (
        base.where(~planted(Verdict.LOST))
        .withColumn("visible_at", f.timestamp_micros(f.unix_micros("due_time") + late_us))
        .withColumn(
            "destination",
            f.when(planted(Verdict.WRONG_DESTINATION), f.lit("elsewhere")).otherwise(f.col("destination")),
        )
        .withColumn(
            "copy", f.explode(f.sequence(f.lit(1), f.when(planted(Verdict.DUPLICATED), 2).otherwise(1)))
        )
        .withColumn("term", (f.col("id") / (MESSAGES // 2)).cast("long") + 1)
        .withColumns({"outcome": f.lit("handed_over"), "logged_at": f.col("visible_at")})
    )
    missing = [name for name in LOG.names if name not in log.columns]
    log = log.withColumns({name: f.lit(None).cast(LOG[name].dataType) for name in missing})
    return base.drop("id"), log.select(*LOG.names)


def test_fifty_planted_defects_among_a_hundred_thousand_are_found_and_no_other(spark):
    expected, log = many(spark)
    verdicts = reconcile(expected, log, late_after=LIMIT).cache()
    try:
        found = verdicts.where("verdict <> 'delivered'").collect()
        step = MESSAGES // EACH
        assert sorted((row.verdict, row.message_id) for row in found) == sorted(
            (kind.value, f"m-{first + n * step}") for kind, first in PLANTED.items() for n in range(EACH)
        )
        assert verdicts.count() == MESSAGES
        told = lateness(verdicts)
    finally:
        verdicts.unpersist()
    by = {(one.by, one.group): one for one in told}
    everything = by["all", "all"]
    assert everything.deliveries == MESSAGES - 2 * EACH
    assert everything.p50_s == pytest.approx(0.5, abs=0.002)
    assert everything.p99_s == pytest.approx(0.99, abs=0.002)
    assert everything.max_s == 6.0
    assert {one.group for one in told if one.by == "term"} == {"1", "2"}
    assert {one.group for one in told if one.by == "hour"} == {"2040-01-01T12:00Z"}
    assert sum(one.deliveries for one in told if one.by == "destination") == everything.deliveries
