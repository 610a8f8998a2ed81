"""A process that works on a store: `python store_worker.py WHAT FILE`. For `test_store.py`.

Where it has something to say it prints one line of JSON, and where it says "ready" it waits for a line.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlite_store import SqliteStore

from postdate.ports import DelayedMessage, DelayedRow, Message, Row

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=1000)
#: Messages in one call.
BATCH = 50
#: Messages that several processes fight for.
FOUGHT_FOR = 500


def messages(first: int, count: int) -> list[DelayedMessage]:
    """Messages by number, spread over hours, each large enough that writing them takes its time."""
    return [
        DelayedMessage(
            Message(str(n), {"Number": str(n)}, b"x" * 10_000), "orders", NOON + n * timedelta(minutes=7)
        )
        for n in range(first, first + count)
    ]


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


async def turn() -> None:
    """Say that we are ready, and wait until all are."""
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)


def ids(rows: Sequence[Row]) -> list[str]:
    return [row.delayed.message.message_id for row in rows if isinstance(row, DelayedRow)]


async def create(store: SqliteStore) -> None:
    await turn()
    say(await store.create())


async def fight(store: SqliteStore) -> None:
    """Add what others add too, then remove what others remove; tell which were ours."""
    await turn()
    made: list[str] = []
    for first in range(0, FOUGHT_FOR, BATCH):
        added = messages(first, BATCH)
        results = await store.add(added)
        made += [m.message.message_id for m, r in zip(added, results, strict=True) if r.created]
    say(made)
    await turn()
    gone: list[str] = []
    async for page in store.due(LATER):
        for first in range(0, len(page), BATCH):
            batch = page[first : first + BATCH]
            answers = await store.remove(batch)
            gone += ids([row for row, ours in zip(batch, answers, strict=True) if ours])
    say(gone)


async def add(store: SqliteStore) -> None:
    """Batch after batch until we are killed; tell after each how many there are."""
    count = 0
    while True:
        await store.add(messages(count, BATCH))
        count += BATCH
        say(count)


async def remove(store: SqliteStore) -> None:
    """Batch after batch until nothing is left, or we are killed; tell after each which."""
    async for page in store.due(LATER):
        for first in range(0, len(page), BATCH):
            batch = page[first : first + BATCH]
            assert all(await store.remove(batch))
            say(ids(batch))


async def main(what: str, path: str) -> None:
    async with SqliteStore(path) as store:
        await {"create": create, "fight": fight, "add": add, "remove": remove}[what](store)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
