"""The three hot calls beside the SDK's, in one run on one Azurite. Prints what it measured, writes nothing.

    python bench/hot_calls.py

Each figure is this process's CPU time per message or row, in microseconds: the median of several rounds, in
which both sides take turns. CPU time, because on a machine that the emulator shares the clock on the wall
mostly measures the emulator.
"""

import asyncio
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path

from azure.core import MatchConditions
from azure.data.tables.aio import TableClient
from azure.storage.queue.aio import QueueClient
from pydantic import SecretStr

from postdate.backends.azure_storage.clients import AccountClients, Credentials
from postdate.backends.azure_storage.connection import endpoints_of
from postdate.backends.azure_storage.hot_calls import HotQueues, HotTable
from postdate.backends.azure_storage.rows import Entity, entity_of, json_of, properties_of, row_of
from postdate.backends.azure_storage.transport import calling, open_session
from postdate.clock import StorageClock, SystemClock
from postdate.local import Azurite
from postdate.model.delayed import DelayedMessage
from postdate.model.keys import RowKey
from postdate.model.message import Message
from postdate.model.requests import RequestCounter
from postdate.model.rowcodec import decode_row
from postdate.settings import Account

ROUNDS = 9
SENDS = 640
SENDING = 16
BATCHES = 5
BATCH = 100
PAGE = 1_000
READS = 2

TABLE = "bench"
QUEUE = "bench"
BODY = b'{"orderId":"0d6f2c6e-4b8a-4d3f-9a5b-7c1e2f304152","customer":"Contoso","total":12.5}' * 3
TEXT = "eyJJZEZvckNvcnJlbGF0aW9uIjpudWxsLCJJZCI6IjBkNmYyYzZlLTRiOGEi" * 10
HEADERS: dict[str, str | None] = {
    "NServiceBus.MessageId": "0d6f2c6e-4b8a-4d3f-9a5b-7c1e2f304152",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.TimeSent": "2026-03-01 07:08:09:987654 Z",
    "NServiceBus.ReplyToAddress": None,
}
DUE = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: A filter that Azurite answers with all rows.
ALL = "PartitionKey le '2026030112' and RowKey le '20260301129999'"

Work = Callable[[], Awaitable[object]]


class Sides:
    """Both ways to do the same, on one table and one queue."""

    def __init__(self, table: TableClient, hot_table: HotTable, queue: QueueClient, hot: HotQueues) -> None:
        self._table = table
        self._hot_table = hot_table
        self._queue = queue
        self._hot = hot
        self._serial = 0

    def entities(self) -> list[Entity]:
        """Rows for one transaction, never the same twice."""
        numbers = range(self._serial, self._serial + BATCH)
        self._serial += BATCH
        return [
            entity_of(
                DelayedMessage(
                    Message(f"m{n}", HEADERS, BODY), "invoices", DUE + timedelta(milliseconds=n), DUE
                )
            )
            for n in numbers
        ]

    async def sdk_send(self) -> None:
        await self._queue.send_message(TEXT, visibility_timeout=0, time_to_live=-1, retry_total=0)

    async def lean_send(self) -> None:
        with calling(once=True):
            await self._hot.put(QUEUE, TEXT, hidden_for=0, time_to_live=-1)

    async def sdk_insert(self, entities: list[Entity]) -> None:
        await self._table.submit_transaction([("create", entity) for entity in entities])

    async def lean_insert(self, entities: list[Entity]) -> list[str]:
        return await self._hot_table.insert([json_of(entity) for entity in entities])

    async def sdk_delete(self, rows: dict[RowKey, str]) -> None:
        await self._table.submit_transaction(
            [
                (
                    "delete",
                    {"PartitionKey": key.partition, "RowKey": key.row},
                    {"etag": etag, "match_condition": MatchConditions.IfNotModified},
                )
                for key, etag in rows.items()
            ],
            retry_total=0,
        )

    async def lean_delete(self, rows: dict[RowKey, str]) -> None:
        await self._hot_table.delete(rows)

    async def sdk_page(self) -> int:
        pages = self._table.query_entities(ALL, results_per_page=PAGE).by_page()
        return len([entity async for entity in await anext(pages)])

    async def lean_page(self) -> int:
        page = await self._hot_table.page(ALL, top=PAGE, token=None)
        return len([properties_of(entry) for entry in page.rows])

    async def sdk_rows(self) -> int:
        pages = self._table.query_entities(ALL, results_per_page=PAGE).by_page()
        return len([row_of(entity) async for entity in await anext(pages)])

    async def lean_rows(self) -> int:
        page = await self._hot_table.page(ALL, top=PAGE, token=None)
        return len([decode_row(*properties_of(entry)) for entry in page.rows])

    async def filled(self) -> dict[RowKey, str]:
        """Rows that are there, with their etags."""
        entities = self.entities()
        etags = await self.lean_insert(entities)
        keys = [RowKey(str(entity["PartitionKey"]), str(entity["RowKey"])) for entity in entities]
        return dict(zip(keys, etags, strict=True))


async def cpu(work: Iterable[Work], items: int, at_once: int = 1) -> float:
    """Microseconds of this process's CPU for each item."""
    slots = asyncio.Semaphore(at_once)

    async def one(call: Work) -> None:
        async with slots:
            await call()

    calls = list(work)
    start = time.process_time()
    await asyncio.gather(*(one(call) for call in calls))
    return (time.process_time() - start) / items * 1e6


async def one_round(sides: Sides, side: str) -> dict[str, float]:
    """All calls of one side."""

    def of(name: str) -> Callable[..., Awaitable[object]]:
        call: Callable[..., Awaitable[object]] = getattr(sides, f"{side}_{name}")
        return call

    def each(name: str, given: list[object]) -> list[Work]:
        return [partial(of(name), one) for one in given]

    rows = BATCHES * BATCH
    inserted: list[object] = [sides.entities() for _ in range(BATCHES)]
    filled = [await sides.filled() for _ in range(BATCHES)]
    found = {"put a message": await cpu([of("send")] * SENDS, SENDS, SENDING)}
    found["insert 100, per row"] = await cpu(each("insert", inserted), rows)
    found["read 1,000, per row"] = await cpu([of("page")] * READS, READS * PAGE)
    found["read and decode, per row"] = await cpu([of("rows")] * READS, READS * PAGE)
    found["delete 100, per row"] = await cpu(each("delete", list(filled)), rows)
    return found


async def measure(connection: str) -> dict[str, dict[str, float]]:
    """Medians: call, then side."""
    endpoints = endpoints_of(Account("the emulator", connection_string=SecretStr(connection)))
    session, clock = open_session(), StorageClock(SystemClock())
    account = AccountClients(endpoints, Credentials().of(endpoints), session, clock, RequestCounter(), None)
    table, queue = account.table(TABLE), account.queue(QUEUE)
    await table.create_table()
    await queue.create_queue()
    sides = Sides(table, account.hot_table(TABLE), queue, account.hot_queues)
    for _ in range(PAGE // BATCH):
        await sides.filled()
    seen: dict[str, dict[str, list[float]]] = {}
    for number in range(ROUNDS):
        for side in ("sdk", "lean") if number % 2 else ("lean", "sdk"):
            for name, value in (await one_round(sides, side)).items():
                seen.setdefault(name, {}).setdefault(side, []).append(value)
    assert await sides.sdk_page() == await sides.lean_page() == PAGE
    await table.close()
    await account.close()
    await session.close()
    # The first round of each warms up.
    return {
        name: {side: statistics.median(values[1:]) for side, values in by_side.items()}
        for name, by_side in seen.items()
    }


def processor() -> str:
    """Its name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Measure and print a table."""
    with Azurite(in_memory=True) as azurite:  # on disk its saving takes turns from us
        found = asyncio.run(measure(azurite.connection_string))
    packages = ", ".join(
        f"{name} {version(name)}"
        for name in ("azure-data-tables", "azure-storage-queue", "azure-core", "aiohttp")
    )
    print(f"Python {platform.python_version()}, {os.cpu_count()} x {processor()}; µs of CPU")
    print(packages)
    print(f"{'':26}{'SDK':>8}{'lean':>8}{'SDK : lean':>12}")
    for name, sides in found.items():
        print(f"{name:26}{sides['sdk']:8.1f}{sides['lean']:8.1f}{sides['sdk'] / sides['lean']:12.1f}")


if __name__ == "__main__":
    main()
