"""Puts back into the timeout store what a drain moved and nobody has delivered yet.

**Order.** The timeout is stored first, then its row is removed: again at least one of the two is always
there. A row is only touched while no leader can hold it, by the storage service's clock; of the others is
told what became of them.

Where the row turns out to be gone when it is removed, the timeout stays: it may be one too many, and it is
never one too few. It is named.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from postdate.concurrency import for_each
from postdate.errors import UsageError
from postdate.events import TimeoutsPutBack
from postdate.legacy.ground import AT_ONCE, Ground
from postdate.legacy.judge import Movable
from postdate.legacy.undo_lines import Undone, batches, read_lines
from postdate.model.delayed import DelayedRow, Row
from postdate.model.keys import RowKey
from postdate.model.legacy_move import fingerprint
from postdate.model.legacy_timeout import LegacyTimeout

if TYPE_CHECKING:
    from postdate.legacy.undo_file import UndoFile

_SECOND = timedelta(seconds=1)
#: A row is left alone when a leader may read it in so short a time.
_MARGIN = timedelta(seconds=30)


@dataclass(slots=True)
class PutBack:
    """What an undo did."""

    #: In the timeout store again, and nowhere else.
    back: int = 0
    #: Was there already: never moved, or put back before.
    already: int = 0
    #: Its row is gone, as it should be by now: it was delivered.
    delivered: list[LegacyTimeout] = field(default_factory=list)
    #: Its row is there, and a leader may hold it: it will be delivered from there.
    too_late: list[LegacyTimeout] = field(default_factory=list)
    #: Neither here nor there, before its time: cancelled, or moved to another time.
    gone: list[LegacyTimeout] = field(default_factory=list)
    #: In the timeout store again, and perhaps delivered as well.
    doubtful: list[LegacyTimeout] = field(default_factory=list)
    #: The timeout store does not take them; their rows stay.
    refused: list[tuple[LegacyTimeout, str]] = field(default_factory=list)
    #: Whether it was stopped before its end.
    stopped: bool = False


class Undo:
    """Undoes a drain by its file. The same call again goes on."""

    def __init__(self, ground: Ground, file: "UndoFile", stop: asyncio.Event | None = None) -> None:
        self._ground = ground
        self._store = ground.backend.store
        self._timeouts = ground.backend.timeouts
        self._file = file
        self._stop = stop or asyncio.Event()
        self._done = PutBack()

    async def run(self) -> PutBack:
        """Put back all that can be.

        Raises:
            NotProvisioned: the delays table or the timeout store is missing.
            UsageError: the file can't be read or written.
            StorageError: the same call again goes on where this one ended.
        """
        await self._store.next_due()  # tells the time
        for batch in batches(read_lines(self._file.path)):
            if self._stop.is_set():
                self._done.stopped = True
                break
            timeouts = [one for one in batch.timeouts.values() if one.id not in batch.left]
            if timeouts:
                await self._put_back(timeouts)
        return self._done

    async def _put_back(self, timeouts: Sequence[LegacyTimeout]) -> None:
        weighed = [self._ground.judge.weigh(timeout) for timeout in timeouts]
        movable = {one.delayed.key: one for one in weighed if isinstance(one, Movable)}
        for one in weighed:
            if not isinstance(one, Movable):
                raise UsageError(f"timeout {one.id} of the file: {one.reason}; use the settings of the drain")
        rows = await self._rows(movable)
        latest, reach = self._ground.clock.latest(), await self._ground.reach()
        ready: dict[str, tuple[Movable, Row]] = {}
        for key, one in movable.items():
            is_near = latest + _MARGIN >= one.delayed.due_at - reach
            if key not in rows:
                await self._tell_gone(one, is_late=latest >= one.delayed.due_at - reach)
            elif is_near:
                self._done.too_late.append(one.timeout)
            else:
                ready[one.timeout.id] = (one, rows[key])
        if ready:
            await self._swap(ready)

    async def _rows(self, movable: dict[RowKey, Movable]) -> dict[RowKey, Row]:
        """The rows of these messages that are there."""
        instants = [one.delayed.due_at for one in movable.values()]
        found: dict[RowKey, Row] = {}
        async for row in self._store.upcoming(start=min(instants), end=max(instants) + _SECOND):
            one = movable.get(row.key)
            if one is None or not isinstance(row, DelayedRow):
                continue
            if fingerprint(row.delayed) == fingerprint(one.delayed):
                found[row.key] = row
        return found

    async def _tell_gone(self, one: Movable, *, is_late: bool) -> None:
        if await self._timeouts.get(one.timeout.id) is not None:
            self._done.already += 1
        else:
            (self._done.delivered if is_late else self._done.gone).append(one.timeout)

    async def _swap(self, ready: dict[str, tuple[Movable, Row]]) -> None:
        """Store the timeouts, then remove their rows."""
        stored: dict[str, Row] = {}

        async def store(pair: tuple[Movable, Row]) -> None:
            timeout = pair[0].timeout
            try:
                await self._timeouts.add(timeout)
            except UsageError as error:
                self._done.refused.append((timeout, str(error)))
            else:
                stored[timeout.id] = pair[1]

        await for_each(ready.values(), AT_ONCE, store)
        answers = await self._store.remove(list(stored.values())) if stored else []
        latest, reach = self._ground.clock.latest(), await self._ground.reach()
        back: list[str] = []
        for timeout_id, removed in zip(stored, answers, strict=True):
            one = ready[timeout_id][0]
            if removed and latest < one.delayed.due_at - reach:
                back.append(timeout_id)
            else:
                self._done.doubtful.append(one.timeout)
        self._done.back += len(back)
        self._file.write([Undone(tuple(stored))])
        self._ground.events.emit(TimeoutsPutBack(len(back), len(stored) - len(back), self._done.back))
