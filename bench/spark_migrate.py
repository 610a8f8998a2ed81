"""Migrates legacy timeouts on `local[2]`, from Azure tables on Azurite or from PostgreSQL.

    python bench/spark_migrate.py --count 20000
    python bench/spark_migrate.py --count 20000 --keep-bodies
    python bench/spark_migrate.py --count 20000 --postgres "host=/tmp user=postgres dbname=postgres"

Prints one JSON line; the time of filling the store and of starting Spark is told apart. Exit code 1 where
counts or checksums differ.
"""

import argparse
import asyncio
import json
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from postdate import Endpoint
from postdate.local import Azurite
from postdate.model import headers as h
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.settings import Settings, load_settings
from postdate.spark import local_session
from postdate.spark.migrating import AzureSource, SqlSource, migrate
from postdate.spark.reference import shared_with_tasks
from postdate.spark.tasks import azure_backend

FIRST = datetime(2040, 3, 1, tzinfo=UTC)
STEP = timedelta(seconds=7)
ENDPOINT = "Bench.Migrate"
FILLED_TOGETHER = 500


def timeout(number: int) -> LegacyTimeout:
    """One, with a body of 200 bytes."""
    due_at = FIRST + number * STEP
    headers = {h.MESSAGE_ID: f"m{number:07}", h.TIMEOUT_EXPIRE: h.format_instant(due_at)}
    return LegacyTimeout(str(uuid.uuid4()), "target", due_at, headers, b"x" * 200, ENDPOINT)


async def set_up(settings: Settings, azure: int) -> None:
    """Table, queue, and so many timeouts in the Azure tables."""
    async with Endpoint(settings) as endpoint:
        await endpoint.setup("target")
        timeouts = azure_backend(endpoint).timeouts
        await timeouts.create()
        for first in range(0, azure, FILLED_TOGETHER):
            last = min(azure, first + FILLED_TOGETHER)
            await timeouts.add_many([timeout(n) for n in range(first, last)])


def fill(conninfo: str, count: int) -> SqlSource:
    """A table of SQL persistence with so many timeouts."""
    source = SqlSource("postgresql", conninfo)
    table = source.spoken.source_table(ENDPOINT, None)
    with psycopg.connect(conninfo) as connection:
        connection.execute(f"drop table if exists {table}")
        connection.execute(
            f'create table {table} ("Id" uuid primary key, "Destination" varchar(200), "SagaId" uuid, '
            '"State" bytea, "Time" timestamp, "Headers" text not null, "PersistenceVersion" varchar(23))'
        )
        with connection.cursor().copy(f"copy {table} from stdin") as copy:
            for one in map(timeout, range(count)):
                values = (one.id, one.destination, str(uuid.UUID(int=0)), one.body)
                copy.write_row((*values, one.due_at.replace(tzinfo=None), json.dumps(one.headers), "6.6.0"))
    return source


async def waiting(settings: Settings) -> set[str | None]:
    """Message ids of all rows."""
    async with Endpoint(settings) as endpoint:
        return {row.delayed.message.message_id async for row in endpoint.parts.backend.store.upcoming()}


def main() -> int:
    """Fill, migrate, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--postgres", help="what libpq takes; default: from Azure tables")
    parser.add_argument("--keep-bodies", action="store_true", help="with Azure tables: leave the old bodies")
    given = parser.parse_args()
    with Azurite() as azurite:
        settings = load_settings(endpoint=ENDPOINT, connection=azurite.connection_string)
        started = time.perf_counter()
        asyncio.run(set_up(settings, 0 if given.postgres else given.count))
        source: Any = AzureSource(given.keep_bodies)
        if given.postgres:
            source = fill(given.postgres, given.count)
        filled = time.perf_counter()
        session = local_session("local[2,4]")
        session.range(10).count()
        begun = time.perf_counter()
        with shared_with_tasks(settings) as reference:
            told = migrate(session, reference, source, run="bench")
        ended = time.perf_counter()
        session.stop()
        there = asyncio.run(waiting(settings))
    exact = told.verified and there == {f"m{number:07}" for number in range(given.count)}
    print(
        json.dumps(
            {
                "source": "postgresql" if given.postgres else "azure",
                "count": given.count,
                "moved": told.moved,
                "exact": exact,
                "checksums": sorted({told.checksum_staged, told.checksum_expected, told.checksum_found}),
                "seconds": round(ended - begun, 1),
                "timeouts_per_second": round(given.count / (ended - begun)),
                "filling_seconds": round(filled - started, 1),
                "spark_start_seconds": round(begun - filled, 1),
            }
        )
    )
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
