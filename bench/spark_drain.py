"""A drain with two Spark tasks beside one asyncio leader, in one run on one Azurite.

    python -m bench.spark_drain [ROWS [ROUNDS]]

Both hand over the same backlog by the same engine: the leader in one pass (`Endpoint.deliver_due`), Spark
by `drain`. Starting the session, and its first small drain, is left out and told. Sides take turns, the
median of the rounds counts. Prints one JSON object.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta

from pyspark.sql import SparkSession

from postdate import Endpoint, Outgoing
from postdate.engine.handover import know_the_time
from postdate.local import Azurite
from postdate.settings import Settings, load_settings
from postdate.spark import local_session
from postdate.spark.draining import drain
from postdate.spark.reference import shared_with_tasks

ROUNDS = 3
TASKS = 2
TEXT = "x" * 200
_CHUNK = 2_000


async def backlog(settings: Settings, rows: int) -> None:
    """Rows that were due a tenth of a second apart."""
    async with Endpoint(settings) as endpoint:
        await endpoint.setup("target")
        intake, clock = endpoint.parts.intake, endpoint.parts.clock
        await know_the_time(clock, endpoint.parts.backend)
        first = clock.now() - timedelta(seconds=60 + rows / 10)
        for start in range(0, rows, _CHUNK):
            accepted = [
                await intake.accept_unasked(
                    Outgoing("target", TEXT, at=first + timedelta(seconds=n / 10), message_id=f"m{n}")
                )
                for n in range(start, min(start + _CHUNK, rows))
            ]
            outcomes = await intake.store_rows(accepted)
            assert not any(isinstance(one, Exception) for one in outcomes)


def seconds_of(work: Callable[[], int], rows: int) -> float:
    began = time.perf_counter()
    done = work()
    assert done == rows, f"{done} of {rows} were handed over"
    return time.perf_counter() - began


def by_one_process(settings: Settings) -> int:
    async def deliver() -> int:
        async with Endpoint(settings) as endpoint:
            return (await endpoint.deliver_due()).handed_over

    return asyncio.run(deliver())


def by_spark(session: SparkSession, settings: Settings) -> int:
    with shared_with_tasks(settings) as reference:
        done = drain(session, reference)
    assert (done.end, done.possible_duplicates) == ("done", 0), done
    return done.handed_over


def measured(session: SparkSession, connection: str, rows: int, rounds: int) -> dict[str, float]:
    spark: list[float] = []
    one: list[float] = []
    for number in range(rounds):
        sides = [
            (one, by_one_process),
            (spark, lambda settings: by_spark(session, settings)),
        ]
        for name, (rates, work) in enumerate(sides[:: -1 if number % 2 else 1]):
            settings = load_settings(endpoint=f"bench{number}{name}", connection=connection)
            asyncio.run(backlog(settings, rows))
            rates.append(rows / seconds_of(lambda w=work, s=settings: w(s), rows))
    return {
        "spark_per_s": round(statistics.median(spark)),
        "one_process_per_s": round(statistics.median(one)),
        "ratio": round(statistics.median(spark) / statistics.median(one), 2),
    }


def main() -> int:
    rows, rounds = (*map(int, sys.argv[1:]), *(20_000, ROUNDS)[len(sys.argv) - 1 :])
    began = time.perf_counter()
    session = local_session(f"local[{TASKS},4]")
    start = time.perf_counter() - began
    with Azurite() as azurite:
        warm = load_settings(endpoint="warm", connection=azurite.connection_string)
        asyncio.run(backlog(warm, 200))
        first = seconds_of(lambda: by_spark(session, warm), 200)
        found = measured(session, azurite.connection_string, rows, rounds)
    session.stop()
    told = {"rows": rows, "rounds": rounds, "tasks": TASKS, "start_s": round(start, 2)}
    print(json.dumps({**told, "first_run_s": round(first, 2), **found}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
