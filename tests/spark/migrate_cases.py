"""Timeout tables of SQL persistence and of Azure, filled as older endpoints leave them."""

import asyncio
import json
import sqlite3
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg

from postdate import Endpoint
from postdate.model import headers as h
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.settings import Settings
from postdate.spark.migrating import SqlSource
from postdate.spark.migrating.documents import Documents
from postdate.spark.migrating.opening import old_timeouts, ranges
from postdate.spark.migrating.parts import Worker
from postdate.spark.migrating.sources import Chosen
from postdate.spark.reference import shared_with_tasks
from postdate.spark.tasks import azure_backend

FIRST = datetime(2040, 3, 1, 7, 8, 9, 987_654, tzinfo=UTC)
ZEROS = str(uuid.UUID(int=0))
_DDL = {
    "postgresql": 'create table {0} ("Id" uuid not null primary key, "Destination" character varying(200), '
    '"SagaId" uuid, "State" bytea, "Time" timestamp, "Headers" text not null, '
    '"PersistenceVersion" character varying(23) not null)',
    "sqlite": 'create table {0} ("Id" text not null primary key, "Destination" text, "SagaId" text, '
    '"State" blob, "Time" text, "Headers" text not null, "PersistenceVersion" text not null)',
}


@dataclass
class SqlStore:
    """A database with the timeout table of an endpoint."""

    source: SqlSource
    endpoint: str

    def connect(self) -> Any:
        text = self.source.database
        return sqlite3.connect(text) if self.source.dialect == "sqlite" else psycopg.connect(text)

    @property
    def table(self) -> str:
        return self.source.spoken.source_table(self.endpoint, None)

    def create(self) -> None:
        self.execute(_DDL[self.source.dialect].format(self.table))

    def execute(self, text: str, rows: Any = None) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            cursor = connection.cursor()
            if rows is None:
                cursor.execute(text)
            else:
                cursor.executemany(text, rows)
            found = cursor.fetchall() if cursor.description else []
            connection.commit()
            return found
        finally:
            connection.close()

    def put(self, rows: list[tuple[Any, ...]]) -> None:
        mark = self.source.spoken.mark
        self.execute(f"insert into {self.table} values ({', '.join([mark] * 7)})", rows)  # noqa: S608

    def fill(self, count: int, *, first: datetime = FIRST) -> None:
        self.put([sql_row(self.source, n, first + n * timedelta(seconds=7)) for n in range(count)])

    def rows(self) -> list[tuple[Any, ...]]:
        """All of it, every column."""
        found = self.execute(f'select * from {self.table} order by "Id"')  # noqa: S608
        return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in found]

    def tables(self) -> list[str]:
        catalogue = (
            "select name from sqlite_master where type = 'table'"
            if self.source.dialect == "sqlite"
            else "select tablename from pg_tables where schemaname = 'public'"
        )
        return [name for (name,) in self.execute(catalogue) if "migration" in name]


def sql_row(source: SqlSource, number: int, due_at: datetime, **more: Any) -> tuple[Any, ...]:
    """A row as SQL persistence writes it: UTC without a zone, headers with newlines of Windows."""
    headers = {
        h.MESSAGE_ID: f"m{number:06}",
        h.TIMEOUT_EXPIRE: h.format_instant(due_at),
        h.TIMEOUT_DESTINATION: "target",
        "Größe": "XL",
    }
    values = {
        "Id": str(uuid.UUID(int=0x0D6F2C6E_4B8A_4D3F_9A5B_000000000000 + number)),
        "Destination": "target",
        "SagaId": ZEROS if number % 2 else str(uuid.UUID(int=number + 1)),
        "State": f'{{"n":{number}}}'.encode(),
        "Time": source.spoken.instant(due_at),
        "Headers": json.dumps(headers, indent=2).replace("\n", "\r\n"),
        "PersistenceVersion": "6.6.0",
        **more,
    }
    return tuple(values.values())


def azure_timeout(owner: str, number: int, due_at: datetime, **more: Any) -> LegacyTimeout:
    values = {
        "id": str(uuid.uuid4()),
        "destination": "target",
        "due_at": due_at,
        "headers": {h.MESSAGE_ID: f"m{number:06}", h.TIMEOUT_EXPIRE: h.format_instant(due_at)},
        "body": f'{{"n":{number}}}'.encode(),
        "owner": owner,
        "saga_id": str(uuid.uuid4()) if number % 2 else None,
        **more,
    }
    return LegacyTimeout(**values)


async def waiting(endpoint: Endpoint) -> list[str]:
    """Message ids of all rows, sorted."""
    return sorted([row.delayed.message.message_id async for row in endpoint.parts.backend.store.upcoming()])


def ids(count: int) -> list[str]:
    return [f"m{n:06}" for n in range(count)]


async def azure_rows(endpoint: Endpoint) -> tuple[list[Any], list[str]]:
    """All that is in the timeout table, and names of the blobs."""
    timeouts = azure_backend(endpoint).timeouts
    rows = [dict(row) async for page in timeouts._pages("") for row in page]
    blobs = [blob.name async for blob in timeouts._states.list_blobs()]
    return sorted(rows, key=lambda row: (row["PartitionKey"], row["RowKey"])), sorted(blobs)


def on_parts(
    settings: Settings, source: Any, run: str, work: Any, *, chosen: Chosen | None = None, rows: int = 100
) -> Any:
    """Runs `work(worker, ranges)` in this process: what tasks do, step by step."""
    chosen = chosen or Chosen()
    with shared_with_tasks(settings) as reference:
        found = list(ranges(reference, source, chosen.due_from, rows))
    return asyncio.run(_opened(settings, source, run, chosen, partial(work, found=found)))


async def _opened(settings: Settings, source: Any, run: str, chosen: Chosen, work: Any) -> Any:
    async with Endpoint(settings) as endpoint:
        await endpoint.parts.backend.store.next_due()
        documents = Documents(azure_backend(endpoint).bulk, run)
        async with old_timeouts(endpoint, source, documents) as old:
            await old.prepare()
            return await work(Worker(endpoint.parts.migration.ground, old, documents, chosen))
