"""Appending by `df.write.format("postdate")`: each message once, whatever becomes of the tasks."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as f

from postdate.errors import UsageError
from postdate.spark.failures import told_in_one_line

DUE = datetime(2040, 1, 1, 7, tzinfo=UTC)


def frame_of(spark, count, **columns):
    frame = spark.range(count).select(
        f.concat(f.lit("m"), f.col("id").cast("string")).alias("message_id"),
        f.lit("target").alias("destination"),
        f.lit(DUE).alias("due_time"),
        f.struct(f.col("id").alias("n")).alias("body"),
    )
    for name, column in columns.items():
        frame = frame.withColumn(name, column)
    return frame


def append(frame, reference, **options):
    with told_in_one_line():
        frame.write.format("postdate").options(**reference.options(), **options).mode("append").save()


def document(on_endpoint, name):
    text = on_endpoint(lambda endpoint: endpoint.parts.backend.bulk.get(name))
    return None if text is None else json.loads(text)


def read(spark, reference):
    return spark.read.format("postdate").options(**reference.options()).load()


def test_rows_are_there_once_however_often_they_are_written(spark, reference, on_endpoint):
    frame = frame_of(spark, 250).repartition(3)
    append(frame, reference, run="one")
    append(frame, reference, run="two")
    rows = read(spark, reference).collect()
    assert sorted(row.message_id for row in rows) == sorted(f"m{n}" for n in range(250))
    assert {bytes(row.body) for row in rows} == {b'{"n":%d}' % n for n in range(250)}
    first, second = (document(on_endpoint, f"write/{run}/manifest.json") for run in ("one", "two"))
    assert (first["stored"], first["already_there"], first["tasks"]) == (250, 0, 3)
    assert (second["stored"], second["already_there"]) == (250, 250)
    assert first["checksum"] == second["checksum"]


@pytest.mark.parametrize(
    ("body", "expected"), [("Größe", "Größe".encode()), (b"\x00\xff", b"\x00\xff")], ids=["text", "bytes"]
)
def test_bodies_of_text_and_bytes_go_as_they_are(spark, reference, body, expected):
    append(frame_of(spark, 1, body=f.lit(body)), reference)
    assert [bytes(row.body) for row in read(spark, reference).collect()] == [expected]


def test_refused_rows_are_told_and_the_others_are_stored(spark, reference, on_endpoint):
    odd = f.when(f.col("message_id") == "m3", f.lit("nowhere")).otherwise(f.lit("target"))
    with pytest.raises(UsageError, match="1 rows were refused, 'm3' for one: destination queue 'nowhere'"):
        append(frame_of(spark, 5, destination=odd), reference, run="odd")
    assert read(spark, reference).count() == 4
    assert document(on_endpoint, "write/odd/manifest.json")["refused"] == 1


def test_a_task_that_fails_aborts_and_tells_what_is_known(spark, reference, on_endpoint):
    bad = f.when(f.col("message_id") == "m9", f.raise_error(f.lit("broken input"))).otherwise(f.lit("target"))
    with pytest.raises(Exception, match="broken input"):
        append(frame_of(spark, 10).repartition(1).withColumn("destination", bad), reference, run="bad")
    assert document(on_endpoint, "write/bad/manifest.json") is None
    told = document(on_endpoint, "write/bad/aborted.json")
    assert told["tasks_ended"] < told["tasks"]
    append(frame_of(spark, 10), reference, run="good")
    assert read(spark, reference).count() == 10


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop("message_id"), "column message_id is missing"),
        (
            lambda frame: frame.withColumn("due_time", f.col("due_time").cast("timestamp_ntz")),
            "without a zone",
        ),
        (lambda frame: frame.withColumn("destination", f.lit(1)), "column destination is int"),
    ],
)
def test_a_frame_that_can_not_be_written_is_refused(spark, reference, change, said):
    with pytest.raises(UsageError, match=said):
        append(change(frame_of(spark, 1)), reference)


def test_overwriting_is_refused(spark, reference):
    with pytest.raises(UsageError, match="use mode append"), told_in_one_line():
        frame_of(spark, 1).write.format("postdate").options(**reference.options()).mode("overwrite").save()
