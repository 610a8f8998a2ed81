"""Python workers that are killed while they write: exactly the rows asked for are there in the end."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psutil
import pytest
from pyspark.sql import functions as f

from postdate.errors import PostdateError
from postdate.spark.scheduling import schedule

FIRST = datetime(2040, 1, 1, 7, tzinfo=UTC)
ROWS = 12_000


def frame_of(spark):
    return spark.range(ROWS).select(
        f.concat(f.lit("k"), f.col("id").cast("string")).alias("message_id"),
        f.lit("target").alias("destination"),
        (f.lit(FIRST) + f.expr("make_dt_interval(0, 0, 0, id)")).alias("due_time"),
        f.repeat(f.lit("x"), 200).alias("body"),
    )


def workers():
    """Python processes that run tasks: children of the daemons that Spark's JVM started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" in " ".join(process.cmdline()) and "pyspark.daemon" in " ".join(
                process.parent().cmdline()
            ):
                found.append(process.pid)
        except (psutil.NoSuchProcess, AttributeError):
            continue
    return found


async def count(endpoint):
    return len([row async for row in endpoint.parts.backend.store.upcoming()])


def wait_for_rows(on_endpoint, at_least, running):
    while on_endpoint(count) < at_least and not running.done():
        time.sleep(0.05)  # a look takes a while of a core, which what is looked at needs too


def test_tasks_that_are_killed_run_again_and_write_nothing_twice(spark, reference, on_endpoint):
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(schedule, frame_of(spark), reference, run="killed", rows_per_bucket=8_000)
        wait_for_rows(on_endpoint, 500, running)
        victims = workers()
        assert not running.done()
        assert victims
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        told = running.result()
    assert (told.stored, told.refused) == (ROWS, 0)
    assert told.already_there >= 100, "the rows of the killed tasks were there already"
    assert on_endpoint(count) == ROWS


def test_a_run_whose_tasks_can_not_end_tells_it_in_one_line_and_goes_on_later(spark, reference, on_endpoint):
    frame = frame_of(spark).withColumn(
        "body",
        f.when(f.col("message_id") == "k11999", f.raise_error(f.lit("unreadable input"))).otherwise("x"),
    )
    with pytest.raises(PostdateError, match="unreadable input") as told:
        schedule(frame, reference, run="stopped", rows_per_bucket=4_000)
    assert "\n" not in str(told.value)
    done = schedule(frame_of(spark), reference, run="stopped", rows_per_bucket=4_000)
    assert done.stored == ROWS == on_endpoint(count)
