"""Memory of bulk work on Spark: the driver's Python and its largest worker, by number of rows.

    python -m bench.spark_memory [ROWS]

Snapshot, forecast, audit and drain of as many rows, on Azurite and `local[2]`. Flat is a job whose two
figures are about the same. The memory of Spark's Java is what you give it. Prints one JSON object.
"""

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import psutil
from pyspark.sql import SparkSession

from bench.spark_drain import backlog, by_spark
from postdate.local import Azurite
from postdate.settings import Settings, load_settings
from postdate.spark import local_session
from postdate.spark.auditing import Reading, audit
from postdate.spark.forecasting import forecast
from postdate.spark.reference import SettingsReference, shared_with_tasks
from postdate.spark.snapshots import snapshot

RATE = 900
WARM = 200


@contextmanager
def watched_memory() -> Iterator[dict[str, int]]:
    """The most MB that the driver's Python and the largest worker held within the block; known at its end."""
    driver, most = psutil.Process(), {"driver": 0, "worker": 0}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            most["driver"] = max(most["driver"], driver.memory_info().rss)
            for process in driver.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "pyspark.daemon" in process.cmdline():
                        most["worker"] = max(most["worker"], process.memory_info().rss)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        ended.set()
        watching.join()
        most |= {name: round(value / 1e6) for name, value in most.items()}


def jobs(session: SparkSession, settings: Settings) -> dict[str, Callable[[SettingsReference], object]]:
    """What is watched, in this order: a drain leaves no rows to the others."""

    def kept(reference: SettingsReference) -> object:
        with tempfile.TemporaryDirectory() as folder:
            return snapshot(session, reference, folder)

    def audited(reference: SettingsReference) -> object:
        rows = session.read.format("postdate").options(**reference.options()).load()
        expected = rows.select("message_id", "destination", "due_time")
        return audit(session, reference, expected, Reading(settle=timedelta(0)))

    return {
        "snapshot": kept,
        "forecast": lambda reference: forecast(session, reference, rate=RATE),
        "audit": audited,
        "drain": lambda _: by_spark(session, settings),
    }


def measured(session: SparkSession, rows: int) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    with Azurite() as azurite:
        settings = load_settings(endpoint="bench", connection=azurite.connection_string)
        asyncio.run(backlog(settings, rows))
        with shared_with_tasks(settings) as reference:
            for name, job in jobs(session, settings).items():
                with watched_memory() as most:
                    job(reference)
                found[name] = most
    return found


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    session = local_session("local[2,4]")
    measured(session, WARM)
    small, large = (measured(session, count) for count in (rows // 10, rows))
    session.stop()
    told = {job: {str(rows // 10): small[job], str(rows): large[job]} for job in large}
    print(json.dumps({"rows": rows, "memory_mb": told}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
