"""Schedules a few messages into a SQLite file, and delivers them through queues.

python main.py             queues in this process
python main.py --azurite   queues on a storage service on this machine, which it starts and stops
"""

import argparse
import asyncio
import tempfile
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlite_store import SqliteStore

from postdate import Endpoint
from postdate.local import Azurite

QUEUE = "invoices"
ORDERS = (1, 2, 3)
PATIENCE = timedelta(seconds=30)


async def play(endpoint: Endpoint, path: Path) -> None:
    """Schedule three, cancel one, and wait for the others."""
    for name in await endpoint.setup(QUEUE):
        print(f"created {name}")
    handles = [await endpoint.schedule(QUEUE, {"order": n}, delay=2 + n) for n in ORDERS]
    waiting = [message async for message in endpoint.upcoming()]
    print(f"{len(waiting)} messages wait in {path.name}")
    print(f"order 2: {await endpoint.cancel(handles[1])}")

    stop = asyncio.Event()
    expected = {1, 3}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(endpoint.run(stop))
        async for delivery in endpoint.receive(QUEUE, idle=PATIENCE):
            assert delivery.due_at is not None
            late = (delivery.received_at - delivery.due_at).total_seconds()
            print(f"order {delivery.json()['order']}: delivered {late:.2f} s after its due time")
            await delivery.ack()
            expected.discard(delivery.json()["order"])
            if not expected:
                break
        stop.set()
    print(f"{len([message async for message in endpoint.upcoming()])} messages wait")


async def main(*, azurite: bool) -> None:
    """Open a store, and an endpoint whose rows are there."""
    async with AsyncExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "delayed.db"
        account: dict[str, Any] = {"backend": "memory"}
        if azurite:
            service = await stack.enter_async_context(Azurite())
            account = {"backend": "azure_storage", "connection": service.connection_string}
        store = await stack.enter_async_context(SqliteStore(path))
        # By default delays of up to 90 s go straight to their queue: here even these are rows.
        settings = {"lookahead": 1, "direct_within": 1, **account}
        endpoint = await stack.enter_async_context(Endpoint("Samples.CustomStore", store=store, **settings))
        await play(endpoint, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--azurite", action="store_true", help="queues on a storage service on this machine")
    asyncio.run(main(azurite=parser.parse_args().azurite))
