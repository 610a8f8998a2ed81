"""The published algorithm of the closest peer, the .NET transport's poller, from its described behaviour.

Written from our own description of it (its version 12 and later): take or renew the lease, read the first
page of 50 rows, renew again, start everything on the page at once (one put and one delete for each row), wait
for all, and begin anew. A poll that finds nothing sleeps: 0.125 s, then 0.125 s longer each time, up to 30 s.
A row is picked up strictly after its due second, by the local clock, and its message is visible at once.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from postdate.bench.workload import classic_second
from postdate.clock import Clock, wait_for
from postdate.core.backoff import classic_idle_wait
from postdate.errors import StorageError
from postdate.model.keys import RowKey
from postdate.model.message import Message

PAGE_ROWS = 50
LEASE_SECONDS = 15
PEEK_SECONDS = 0.125
LONGEST_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ClassicRow:
    """A row of the page."""

    key: RowKey
    etag: str
    destination: str
    message: Message


class ClassicStorage(Protocol):
    """What it needs of the account. Failures are `StorageError`."""

    async def lock(self) -> bool:
        """Take the lease or renew it, for 15 s; False: somebody else holds it."""
        ...

    async def page(self, matching: str) -> Sequence[ClassicRow]:
        """The first 50 rows that match a filter, in the order of their keys."""
        ...

    async def send(self, row: ClassicRow) -> None:
        """Put its message on its queue, visible at once."""
        ...

    async def delete(self, row: ClassicRow) -> None:
        """Delete the row, if it is still this version."""
        ...

    async def release(self) -> None:
        """Give the lease back, if it is held."""
        ...


def due_filter(now: datetime) -> str:
    """Rows due before the second of `now`: a key of that very second is greater than its bare digits."""
    second = classic_second(now.astimezone(UTC))
    return f"(PartitionKey le '{second[:10]}') and (RowKey le '{second}')"


def idle_polls_after(seconds: float) -> int:
    """How many polls in a row found nothing after so long a quiet, the time of the requests not counted."""
    polls, slept = 0, 0.0
    while slept < seconds:
        polls += 1
        slept += classic_idle_wait(polls, PEEK_SECONDS, LONGEST_WAIT_SECONDS)
    return polls


class Classic:
    """One process that polls."""

    def __init__(
        self,
        storage: ClassicStorage,
        clock: Clock,
        *,
        idle_polls: int = 0,
        tell: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Args:
        storage: the account.
        clock: the local one; it alone decides what is due.
        idle_polls: start as if so many polls in a row had found nothing.
        tell: hears, after each row, how many were handed over.
        """
        self._tell = tell
        self._storage = storage
        self._clock = clock
        self._idle_polls = idle_polls
        #: Rows that were sent and deleted.
        self.handed_over = 0
        #: Seconds spent waiting for pages.
        self.reading_s = 0.0
        #: What went wrong last; a row of which the put or delete failed stays for the next poll.
        self.failure: StorageError | None = None

    async def run(self, stop: asyncio.Event, *, first_wait_s: float = 0.0) -> None:
        """Poll until `stop` is set; then give the lease back."""
        try:
            if first_wait_s:
                await wait_for(stop, first_wait_s, self._clock)
            while not stop.is_set():
                wait = await self.poll()
                if wait:
                    await wait_for(stop, wait, self._clock)
        finally:
            await self._storage.release()

    async def poll(self) -> float:
        """One iteration; seconds to sleep before the next."""
        try:
            found = await self._page()
        except StorageError as error:
            self.failure, found = error, 0
        if found:
            self._idle_polls = 0
            return 0.0
        self._idle_polls += 1
        return classic_idle_wait(self._idle_polls, PEEK_SECONDS, LONGEST_WAIT_SECONDS)

    async def _page(self) -> int:
        if not await self._storage.lock():
            return 0
        began = self._clock.monotonic()
        rows = await self._storage.page(due_filter(self._clock.now()))
        self.reading_s += self._clock.monotonic() - began
        if not await self._storage.lock():
            return 0  # the page is dropped
        await asyncio.gather(*(self._one(row) for row in rows))
        return len(rows)

    async def _one(self, row: ClassicRow) -> None:
        try:
            await self._storage.send(row)
            await self._storage.delete(row)
        except StorageError as error:
            self.failure = error
        else:
            self.handed_over += 1
            self._tell(self.handed_over)
