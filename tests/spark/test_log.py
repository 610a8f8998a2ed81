"""`format("postdate.log")`: the delivery log at once, and as a stream whose offsets are exact."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as f
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from postdate import Endpoint, Outgoing
from postdate.model.delivery_log import LogOutcome, LogRecord, blob_name, encode_record, hour_of
from postdate.spark.source.log import LogReader, LogSource

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


class Appender:
    """Appends records to files as processes would."""

    def __init__(self, on_endpoint):
        self._on_endpoint = on_endpoint
        self._lengths = {}

    def __call__(self, *records, process="p1"):
        async def work(endpoint):
            for message_id, at in records:
                record = LogRecord(
                    at, LogOutcome.HANDED_OVER, "E", process, message_id, "target", at, visible_at=at, term=1
                )
                name = blob_name(hour_of(at), process, 1)
                self._lengths[name] = await endpoint.parts.backend.delivery_log.append(
                    name, encode_record(record), at=self._lengths.get(name, 0)
                )

        self._on_endpoint(work)


@pytest.fixture
def append(on_endpoint, reference):
    return Appender(on_endpoint)


def load(spark, reference, **options):
    return spark.read.format("postdate.log").options(**reference.options(), **options).load()


def test_what_an_endpoint_did_is_read_back(spark, reference, postdate_settings):
    async def schedule():
        logging = postdate_settings.model_copy(update={"delivery_log": True})
        async with Endpoint(logging) as endpoint:
            await endpoint.schedule_many(
                [Outgoing("target", {"n": n}, at=NOON, message_id=f"m{n}") for n in range(3)]
            )

    asyncio.run(schedule())
    rows = load(spark, reference).orderBy("message_id").collect()
    assert [(row.message_id, row.outcome, row.path) for row in rows] == [
        (f"m{n}", "scheduled", "row") for n in range(3)
    ]
    first = rows[0]
    assert (first.destination, first.due_time.astimezone(UTC)) == ("target", NOON)
    assert (first.endpoint, first.visible_at) == (postdate_settings.endpoint, None)
    assert first.logged_at is not None


def test_a_log_that_is_not_there_is_an_empty_frame(spark, reference):
    assert load(spark, reference).count() == 0


def test_each_line_lies_in_one_part_whatever_their_size(spark, reference, append):
    append(*((f"a{n}", NOON) for n in range(20)))
    append(*((f"b{n}", NOON + HOUR) for n in range(20)), process="p2")
    for size in (1_500, 10**7):
        frame = load(spark, reference, bytesPerPartition=size).select("message_id")
        assert sorted(row.message_id for row in frame.collect()) == sorted(
            f"{letter}{n}" for letter in "ab" for n in range(20)
        )


def test_a_filter_on_the_time_leaves_other_hours_unread(spark, reference, append, on_endpoint):
    append(*((f"m{n}", NOON + n * HOUR) for n in range(5)))
    asked = (f.col("logged_at") >= NOON + HOUR) & (f.col("logged_at") < NOON + 3 * HOUR)

    async def spoil(endpoint):  # who read this file would see it
        await endpoint.parts.backend.delivery_log.append(
            blob_name(hour_of(NOON + 3 * HOUR), "p2", 1), b"no record\n", at=0
        )

    on_endpoint(spoil)
    frame = load(spark, reference)
    assert sorted(r.message_id for r in frame.where(asked).collect()) == ["m1", "m2"]
    assert frame.where("outcome = 'unreadable'").first().reason == "no record"
    assert frame.where(asked | f.col("logged_at").isNull()).count() == 3


def test_hours_are_chosen_before_anything_is_read(reference, append):
    append(*((f"m{n}", NOON + n * HOUR) for n in range(5)))
    reader = LogReader(reference, 10**6, LogSource({}).schema())
    reader.pushFilters(
        [GreaterThanOrEqual(("logged_at",), NOON + HOUR), LessThan(("logged_at",), NOON + 3 * HOUR)]
    )
    names = [piece.name for part in reader.partitions() for piece in part.pieces]
    assert names == [blob_name(hour_of(NOON + n * HOUR), "p1", 1) for n in (1, 2)]


def test_a_stream_goes_on_after_a_restart_with_nothing_twice_and_nothing_missed(
    spark, reference, append, tmp_path
):
    def run_once():
        stream = spark.readStream.format("postdate.log").options(**reference.options()).load()
        query = (
            stream.select("message_id", "logged_at")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def seen():
        return sorted(row.message_id for row in spark.read.parquet(str(tmp_path / "out")).collect())

    append(("a", NOON), ("b", NOON + MINUTE))
    run_once()
    assert seen() == ["a", "b"]
    append(("c", NOON + 2 * MINUTE), ("d", NOON + HOUR))
    append(("e", NOON + 2 * MINUTE), process="p2")
    run_once()
    assert seen() == ["a", "b", "c", "d", "e"]
    run_once()
    assert seen() == ["a", "b", "c", "d", "e"]


def test_a_stream_that_failed_in_the_middle_reads_the_same_batch_again(spark, reference, append, tmp_path):
    append(*((f"m{n}", NOON + n * MINUTE) for n in range(4)))
    batches = []

    def run(handle):
        stream = spark.readStream.format("postdate.log").options(**reference.options()).load()
        query = (
            stream.writeStream.foreachBatch(handle)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def fail(frame, number):
        batches.append((number, sorted(row.message_id for row in frame.collect())))
        raise RuntimeError("by script")

    def keep(frame, number):
        batches.append((number, sorted(row.message_id for row in frame.collect())))

    with pytest.raises(Exception, match="by script"):
        run(fail)
    append(("later", NOON + HOUR))
    run(keep)
    first, again, *rest = batches
    assert first == again == (0, ["m0", "m1", "m2", "m3"])
    assert rest == [(1, ["later"])]
