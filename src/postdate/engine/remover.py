"""Removing rows whose messages were handed over: in batches, beside the sends, never too far behind.

A crash doubles what was sent and not yet removed. So a place is reserved before each send and freed when the
row is gone: never more than `limit` messages are in between, whatever happens. A row that can't be removed
keeps its place to the end of the pass; when all places are kept so, nothing more is sent.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from postdate.clock import Clock
from postdate.engine.breakers import Breaker
from postdate.errors import OutcomeUnknown, StorageError
from postdate.events import Events, Removed, RemoveFailed
from postdate.model.delayed import Row
from postdate.ports import DelayedStore, Guard, LeaseLost

#: Tries of one batch within a pass; what is left is remembered and removed by a later pass.
_TRIES = 4
#: Remembered rows that were handed over and could not be removed.
_REMEMBERED = 10_000


class HandedOverRows:
    """Versions of rows that were handed over and not removed: this process does not send them again."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, str, str], Row] = OrderedDict()

    def remember(self, row: Row) -> None:
        """Keep this version in mind."""
        self._rows[row.key.partition, row.key.row, row.etag] = row
        if len(self._rows) > _REMEMBERED:
            self._rows.popitem(last=False)

    def forget(self, row: Row) -> None:
        """It is removed."""
        self._rows.pop((row.key.partition, row.key.row, row.etag), None)

    def left(self) -> list[Row]:
        """Those that earlier passes could not remove."""
        return list(self._rows.values())

    def __contains__(self, row: Row) -> bool:
        return (row.key.partition, row.key.row, row.etag) in self._rows


class Remover:
    """Gathers rows and removes them. Use as a context manager: leaving it flushes.

    Reserve before a send; then either `add` the row or give the place back.
    """

    def __init__(
        self,
        store: DelayedStore,
        clock: Clock,
        events: Events,
        *,
        guard: Guard,
        breaker: Breaker,
        limit: int,
        handed_over: HandedOverRows,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._guard = guard
        self._breaker = breaker
        self._limit = limit
        self._places = asyncio.Semaphore(limit)
        self._stuck = 0
        self._batch = max(1, limit // 2)
        self._handed_over = handed_over
        self._waiting: list[Row] = []
        #: Whether one of those that wait was sent: then their removal is what makes a dispatch whole.
        self._waiting_sent = False
        self._flushes: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Whether all places are taken by rows that can't be removed."""
        return self._stuck >= self._limit

    async def reserve(self) -> bool:
        """Wait for a place; False: there will be none in this pass, so send nothing more."""
        self._flush_if_stuck()
        await self._places.acquire()
        if self.full:
            self._places.release()  # tells the next one that waits
        return not self.full

    def give_back(self) -> None:
        """The send did not happen."""
        self._places.release()

    def add(self, row: Row, *, sent: bool = True) -> None:
        """The message was handed over: remove its row soon. `sent`: to its destination."""
        self._handed_over.remember(row)
        self._waiting.append(row)
        self._waiting_sent = self._waiting_sent or sent
        if len(self._waiting) >= self._batch:
            self._start_flush()
        else:
            self._flush_if_stuck()

    async def flush(self) -> None:
        """Remove everything gathered so far."""
        self._start_flush()
        while self._flushes:
            await asyncio.gather(*self._flushes)

    def _flush_if_stuck(self) -> None:
        """Flush early when all places are taken, and no flush under way will free any.

        Otherwise each row that comes meanwhile would go alone, for the price of fifty.
        """
        if self._places.locked() and not self._flushes:
            self._start_flush()

    def _start_flush(self) -> None:
        if not self._waiting:
            return
        rows, self._waiting = self._waiting, []
        sent, self._waiting_sent = self._waiting_sent, False
        task = asyncio.create_task(self._remove(rows, sent=sent), name="postdate-remove")
        self._flushes.add(task)
        task.add_done_callback(self._flushes.discard)

    async def _remove(self, rows: Sequence[Row], *, sent: bool) -> None:
        done = False
        try:
            done = await self._try_to_remove(rows, sent=sent)
        finally:
            if not done:
                self._stuck += len(rows)
                self._start_flush()  # who waited for these places gets none of them
            for _ in range(len(rows) if done else int(self.full)):
                self._places.release()

    async def _try_to_remove(self, rows: Sequence[Row], *, sent: bool) -> bool:
        for attempt in range(_TRIES):
            try:
                answers = await self._store.remove(rows, self._guard)
            except LeaseLost:
                return True  # for another leader to find; we send nothing more
            except OutcomeUnknown as error:
                # A repeat answers False for what did go; either way the rows are gone after it.
                self._failed(rows, error)
            except StorageError as error:
                self._failed(rows, error)
                await self._clock.sleep(0.2 * 2**attempt)
            else:
                for row in rows:
                    self._handed_over.forget(row)
                self._events.emit(Removed(sum(answers), len(answers) - sum(answers)))
                if sent:
                    self._breaker.succeeded()
                return True
        return False

    def _failed(self, rows: Sequence[Row], error: StorageError) -> None:
        self._events.emit(RemoveFailed(len(rows), str(error)))
        self._breaker.failed(error)
