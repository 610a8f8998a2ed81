"""`format("postdate")`: what is read, and how much of the table for it."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from postdate import Outgoing

FIRST = datetime(2040, 1, 1, 7, 59, 59, 999_999, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def load(spark, reference, **options):
    return spark.read.format("postdate").options(**reference.options(), **options).load()


def messages(count, apart=MINUTE):
    return [
        Outgoing(
            "target",
            {"n": n},
            at=FIRST + n * apart,
            message_id=f"m{n:03}",
            headers={"shop": "Größe", "x": None},
        )
        for n in range(count)
    ]


def test_rows_come_back_as_they_were_scheduled(spark, reference, schedule):
    schedule(messages(3))
    rows = load(spark, reference).orderBy("due_time").collect()
    assert [row.message_id for row in rows] == ["m000", "m001", "m002"]
    first = rows[0].asDict()
    assert first["destination"] == "target"
    assert first["due_time"].astimezone(UTC) == FIRST
    assert bytes(first["body"]) == b'{"n":0}'
    assert first["headers"]["shop"] == "Größe"
    assert first["headers"]["x"] is None
    assert (first["partition_key"], first["failure_count"]) == ("2040010107", 0)
    assert first["etag"].startswith('W/"')
    assert first["unreadable"] is None
    assert first["written_time"] is not None


def test_an_empty_table_is_an_empty_frame(spark, reference):
    assert load(spark, reference).count() == 0


@pytest.mark.parametrize("size", [1, 7, 30, 10_000])
def test_each_row_lies_in_one_range_whatever_their_size(spark, reference, schedule, size):
    schedule(messages(40, apart=5 * MINUTE))
    frame = load(spark, reference, rowsPerPartition=size).select("message_id")
    assert sorted(row.message_id for row in frame.collect()) == [f"m{n:03}" for n in range(40)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda due: due >= FIRST + MINUTE, range(1, 4)),
        (lambda due: due > FIRST + MINUTE, range(2, 4)),
        (lambda due: due < FIRST + MINUTE, range(1)),
        (lambda due: due <= FIRST + MINUTE, range(2)),
        (lambda due: due == FIRST + MINUTE, [1]),
        (lambda due: (due > FIRST) & (due < FIRST + 3 * MINUTE), [1, 2]),
        (lambda due: (due < FIRST) | (due > FIRST + 2 * MINUTE), [3]),
    ],
)
def test_filters_on_the_due_time_are_exact(spark, reference, schedule, condition, expected):
    schedule(messages(4))
    frame = load(spark, reference).where(condition(f.col("due_time")))
    assert sorted(row.message_id for row in frame.collect()) == [f"m{n:03}" for n in expected]


def test_an_option_that_would_carry_a_secret_is_refused(spark):
    with pytest.raises(PySparkException, match="secrets don't travel in plans") as told:
        spark.read.format("postdate").option("connection", "AccountKey=TOPSECRET").load().count()
    assert "TOPSECRET" not in str(told.value)
