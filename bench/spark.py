"""Spark beside one asyncio process, in one run: scheduling and reading 100,000 rows on one Azurite.

    python -m bench.spark [ROWS]

Both sides accept each message by the same rules and store it by the same pipeline; the process is
`Endpoint.schedule_many`, and reads by `store.upcoming`. Starting the session, and its first small run, is
left out and told. Where the emulator is the limit nobody scales, so scaling is measured once more against a
stand-in that answers at memory speed after a latency: one task at a time beside two. Sides take turns, the
median of the rounds counts. Memory is watched while a tenth of the rows, and all of them, are stored. Prints
one JSON object.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.spark_memory import watched_memory
from postdate import Endpoint, Outgoing
from postdate.local import Azurite
from postdate.settings import Settings, load_settings
from postdate.spark import local_session
from postdate.spark.reference import shared_with_tasks
from postdate.spark.scheduling import schedule
from postdate.testing.stand_in import stand_in

ROUNDS = 3
TASKS = 2
FIRST = datetime(2040, 1, 1, tzinfo=UTC)
TEXT = "x" * 200
#: As far away as another region of the same continent.
LATENCY = 0.05


def frame_of(session: SparkSession, rows: int) -> DataFrame:
    return session.range(rows, numPartitions=2).select(
        f.concat(f.lit("r"), f.col("id").cast("string")).alias("message_id"),
        f.lit("target").alias("destination"),
        (f.lit(FIRST) + f.expr("make_dt_interval(0, 0, 0, id)")).alias("due_time"),
        f.struct(f.col("id").alias("n"), f.lit(TEXT).alias("text")).alias("body"),
    )


def messages_of(rows: int) -> Iterator[Outgoing]:
    for n in range(rows):
        yield Outgoing("target", {"n": n, "text": TEXT}, at=FIRST + timedelta(seconds=n), message_id=f"r{n}")


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def set_up(settings: Settings) -> None:
    async with Endpoint(settings) as endpoint:
        await endpoint.setup("target")


async def in_one_process(settings: Settings, rows: int) -> None:
    async with Endpoint(settings) as endpoint:
        done = await endpoint.schedule_many(messages_of(rows))
    assert not done.failures


async def read_in_one_process(settings: Settings) -> int:
    async with Endpoint(settings) as endpoint:
        return sum(
            [len(row.delayed.message.body) > 0 async for row in endpoint.parts.backend.store.upcoming()]
        )


def on_spark(session: SparkSession, settings: Settings, rows: int, run: str) -> None:
    with shared_with_tasks(settings) as reference:
        done = schedule(frame_of(session, rows), reference, run=run)
    assert done.stored == rows, done


def read_on_spark(session: SparkSession, settings: Settings, rows: int) -> None:
    with shared_with_tasks(settings) as reference:
        frame = session.read.format("postdate").options(**reference.options()).load()
        assert frame.where(f.length("body") > 0).count() == rows


def beside_one_process(session: SparkSession, rows: int) -> dict[str, Any]:
    """Rows per second of both sides, each on a new Azurite, in turns."""
    rates: dict[str, list[float]] = {name: [] for name in ("schedule", "schedule_one", "read", "read_one")}

    def spark(settings: Settings) -> None:
        rates["schedule"].append(rows / timed(partial(on_spark, session, settings, rows, "bench")))
        rates["read"].append(rows / timed(partial(read_on_spark, session, settings, rows)))

    def one(settings: Settings) -> None:
        rates["schedule_one"].append(rows / timed(lambda: asyncio.run(in_one_process(settings, rows))))
        rates["read_one"].append(rows / timed(lambda: asyncio.run(read_in_one_process(settings))))

    for number in range(ROUNDS):
        for side in (spark, one) if number % 2 else (one, spark):
            on_new_azurite(side)
    found: dict[str, Any] = {f"{name}_per_s": round(statistics.median(r)) for name, r in rates.items()}
    found["schedule_ratio"] = round(found["schedule_per_s"] / found["schedule_one_per_s"], 2)
    found["read_ratio"] = round(found["read_per_s"] / found["read_one_per_s"], 2)
    return found


def on_new_azurite(work: Callable[[Settings], None]) -> None:
    with Azurite() as azurite:
        settings = load_settings(endpoint="bench", connection=azurite.connection_string)
        asyncio.run(set_up(settings))
        work(settings)


def scaling(session: SparkSession, rows: int, run: str) -> float:
    """Rows per second of the session's tasks, against the stand-in."""
    with stand_in(LATENCY) as (connection, count):
        settings = load_settings(endpoint="bench", connection=connection)
        seconds = timed(lambda: on_spark(session, settings, rows, run))
        assert count() >= rows
    return rows / seconds


def memory(session: SparkSession, rows: int) -> dict[str, int]:
    """Of driver and workers, while so many rows were stored."""
    with stand_in(0.0) as (connection, _):
        settings = load_settings(endpoint="bench", connection=connection)
        with watched_memory() as most:
            on_spark(session, settings, rows, f"memory{rows}")
    return most


def with_tasks(tasks: int, rows: int) -> tuple[dict[str, Any], float]:
    """A session with so many tasks at once: what it is good at, and its rate against the stand-in."""
    began = time.perf_counter()
    session = local_session(f"local[{tasks},4]")
    found: dict[str, Any] = {"start_s": round(time.perf_counter() - began, 2)}

    def warm(settings: Settings) -> None:
        seconds = timed(partial(on_spark, session, settings, 1_000, "warm"))
        found["first_run_s"] = round(seconds, 2)

    on_new_azurite(warm)
    rate = statistics.median(scaling(session, rows, f"scale{n}") for n in range(ROUNDS))
    if tasks == TASKS:
        found |= beside_one_process(session, rows)
        found["memory_mb"] = {str(n): memory(session, n) for n in (rows // 10, rows)}
    session.stop()
    return found, rate


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    first, alone = with_tasks(1, rows)
    found, together = with_tasks(TASKS, rows)
    found |= {
        # The second session finds the JVM up.
        "start_s": first["start_s"],
        "rows": rows,
        "rounds": ROUNDS,
        "stand_in_latency_s": LATENCY,
        "stand_in_one_task_per_s": round(alone),
        "stand_in_two_tasks_per_s": round(together),
        "scaling": round(together / alone, 2),
    }
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
