"""Job `schedule`: each message of a frame is a waiting row, once, or told as refused."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as f

from postdate.errors import UsageError
from postdate.model.delayed import DelayedRow
from postdate.spark.scheduling import schedule
from postdate.spark.scheduling.storing import key_sum

FIRST = datetime(2040, 1, 1, 7, 30, tzinfo=UTC)


@pytest.fixture
def waiting(on_endpoint):
    """All rows that wait."""

    async def read(endpoint):
        return [row async for row in endpoint.parts.backend.store.upcoming()]

    return lambda: on_endpoint(read)


def reminders(spark, count, *, step="1 minute"):
    return spark.range(count).select(
        f.concat(f.lit("r"), f.lpad(f.col("id").cast("string"), 6, "0")).alias("message_id"),
        f.lit("target").alias("destination"),
        (f.lit(FIRST) + f.expr(f"make_dt_interval(0, 0, 0, id * {int(step.split()[0]) * 60})")).alias(
            "due_time"
        ),
        f.struct(f.col("id").alias("order"), f.lit("Größe").alias("text")).alias("body"),
        f.map_from_arrays(f.array(f.lit("shop")), f.array(f.lit("eins"))).alias("headers"),
        f.lit("ignored").alias("something_else"),
    )


def test_each_message_is_a_row_as_if_scheduled_one_by_one(spark, reference, waiting):
    told = schedule(reminders(spark, 300), reference, run="first", rows_per_bucket=70)
    rows = waiting()
    assert [row.delayed.message.message_id for row in rows] == [f"r{n:06}" for n in range(300)]
    assert all(isinstance(row, DelayedRow) for row in rows)
    message, delayed = rows[7].delayed.message, rows[7].delayed
    assert delayed.due_at == FIRST + timedelta(minutes=7)
    assert json.loads(message.body) == {"order": 7, "text": "Größe"}
    assert message.headers["shop"] == "eins"
    assert message.headers["NServiceBus.ContentType"] == "application/json"
    assert (told.rows, told.stored, told.already_there, told.refused, told.repeated) == (300, 300, 0, 0, 0)
    assert told.buckets == 6  # whole hours: 30 rows, then 60 in each
    assert told.checksum == key_sum(row.key.row for row in rows)


def test_the_same_run_again_stores_nothing_and_tells_the_same(spark, reference, waiting):
    frame = reminders(spark, 40)
    first = schedule(frame, reference, run="twice", rows_per_bucket=10)
    again = schedule(frame, reference, run="twice", rows_per_bucket=10)
    assert (again.stored, again.checksum) == (first.stored, first.checksum)
    assert again.resumed == again.buckets == first.buckets
    other = schedule(frame, reference, run="thrice", rows_per_bucket=10)
    assert (other.stored, other.already_there, len(waiting())) == (40, 40, 40)


def test_a_run_that_began_with_other_rows_is_refused(spark, reference):
    schedule(reminders(spark, 3), reference, run="one")
    with pytest.raises(UsageError, match="run 'one' began with other rows"):
        schedule(reminders(spark, 4), reference, run="one")


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("message_id", "concat('x', message_id)"),
        ("destination", "'elsewhere'"),
        ("due_time", "due_time + interval 1 second"),
    ],
)
def test_as_many_rows_in_the_same_hours_are_other_rows(spark, reference, waiting, column, other):
    frame = reminders(spark, 3)
    schedule(frame, reference, run="one")
    other = frame.withColumn(column, f.expr(other))
    with pytest.raises(UsageError, match="run 'one' began with other rows"):
        schedule(other, reference, run="one")
    assert len(waiting()) == 3


def test_a_message_given_twice_is_one(spark, reference, waiting):
    frame = reminders(spark, 20)
    told = schedule(frame.unionAll(frame), reference, run="doubled")
    assert (told.rows, told.stored, told.repeated, len(waiting())) == (40, 20, 20, 20)


def test_without_an_id_rows_alike_are_one_message_and_others_are_not(spark, reference, waiting):
    frame = spark.createDataFrame(
        [("target", "a"), ("target", "a"), ("target", "b")], "destination string, body string"
    )
    frame = frame.withColumn("due_time", f.lit(FIRST))
    told = schedule(frame, reference, run="ids")
    assert (told.stored, told.repeated) == (2, 1)
    assert sorted(row.delayed.message.body for row in waiting()) == [b"a", b"b"]
    assert schedule(frame, reference, run="ids-again").already_there == 2


ODD = [
    ("r1", "target", "2040-01-01T00:00:00Z", "x", None, None),
    ("r2", None, "2040-01-01T00:00:00Z", "x", None, "destination None is not text"),
    (
        "r3",
        "targt",
        "2040-01-01T00:00:00Z",
        "x",
        None,
        "destination queue 'targt' does not exist. Did you mean 'target'?",
    ),
    ("r4", "target", "2040-01-01T00:00:00", "x", None, "time zone"),
    ("r5", "target", None, "x", None, "column due_time or delay is null"),
    ("r6", "target", "2040-01-01T00:00:00Z", None, None, "column body is null"),
    ("r7", "target", "1500-01-01T00:00:00Z", "x", None, "years 1601 to 9998"),
    ("r8", "target", "2040-01-01T00:00:00+02:00", "x", "8 days", "expires_after"),
    ("r9", "UPPER CASE!", "2040-01-01T00:00:00Z", "x", None, "queue name"),
]


def test_what_is_refused_is_told_with_its_reason_and_kept_aside(spark, reference, waiting, tmp_path):
    columns = "message_id string, destination string, due_time string, body string, expires_after string, expected string"
    frame = spark.createDataFrame(ODD, columns)
    path = str(tmp_path / "refused")
    told = schedule(frame, reference, run="odd", quarantine=path)
    assert [row.delayed.message.message_id for row in waiting()] == ["r1"]
    assert (told.rows, told.stored, told.refused, len(told.examples)) == (9, 1, 8, 5)
    aside = {row.message_id: row for row in spark.read.parquet(path).collect()}
    assert sorted(aside) == [f"r{n}" for n in range(2, 10)]
    for row in aside.values():
        assert row.expected in row.reason, row
        assert row.asDict().keys() == {*frame.columns, "reason"}


def test_what_was_refused_is_tried_again_by_the_same_run(spark, reference, on_endpoint):
    frame = reminders(spark, 5).withColumn("destination", f.lit("later"))
    assert schedule(frame, reference, run="early").refused == 5
    on_endpoint(lambda endpoint: endpoint.setup("later"))
    told = schedule(frame, reference, run="early")
    assert (told.stored, told.refused) == (5, 0)


def test_delays_count_from_the_beginning_of_the_run(spark, reference, waiting):
    frame = reminders(spark, 3).drop("due_time").withColumn("delay", f.lit(3600.5))
    schedule(frame, reference, run="delays")
    due = {row.delayed.due_at for row in waiting()}
    schedule(frame, reference, run="delays")
    assert len(due) == 1
    assert {row.delayed.due_at for row in waiting()} == due


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop("destination"), "column destination is missing; there are message_id"),
        (lambda frame: frame.drop("body"), "column body is missing"),
        (lambda frame: frame.drop("due_time"), "give either column due_time or column delay"),
        (lambda frame: frame.withColumn("delay", f.lit(1)), "give either column due_time or column delay"),
        (
            lambda frame: frame.withColumn("due_time", f.col("due_time").cast("timestamp_ntz")),
            "without a zone",
        ),
        (lambda frame: frame.withColumn("message_id", f.lit(1)), "column message_id is int"),
        (lambda frame: frame.withColumn("headers", f.lit(1)), "column headers is int"),
    ],
)
def test_a_frame_that_can_hold_no_messages_is_refused_before_anything_is_read(spark, reference, change, said):
    with pytest.raises(UsageError, match=said):
        schedule(change(reminders(spark, 1)), reference, run="wrong")
