"""Moves timeouts of one endpoint from the timeout store into its delays table.

**Order.** For each timeout: its row is written (durable), then the timeout is removed, its main row first.
So at every instant at least one of the two is there: a crash loses nothing.

**Twice.** The row's key depends on the timeout alone, so a repeat writes nothing twice. A timeout that the
timeout manager may be releasing right now is left to it: only what is due later than the margin (plus what a
leader of ours may hold) is moved, so that nobody but us has reason to touch it between the two steps. Where
the removal finds nothing all the same, somebody else took it: a saga that completed, or a manager whose clock
is far ahead. Then the row that this run made is withdrawn, unless a leader may hold it: that is told as a
possible duplicate.

**Two drains at once** find each other's rows. Who found the row there, and removed the timeout, writes the
row anew: the other one can then not withdraw it, since a withdrawal names the version that it made. Found
withdrawn already, the row is made again.

**Killed.** The undo file tells which timeouts were under way. The next run looks where each is, and finishes.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from postdate.concurrency import for_each
from postdate.errors import StorageError, UsageError
from postdate.events import TimeoutsMoved
from postdate.legacy.ground import AT_ONCE, BATCH, Ground, Selection, Tally, with_bodies
from postdate.legacy.judge import Movable, Refused, refused
from postdate.legacy.placing import add_rows, is_row_of, other_message
from postdate.legacy.undo_lines import Added, Batch, Began, Moving, Settled, read_lines
from postdate.legacy.verification import Verified, verify
from postdate.model.delayed import DelayedRow, Row
from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout
from postdate.ports import AddResult

if TYPE_CHECKING:
    from postdate.legacy.undo_file import UndoFile

#: A withdrawal has this long to reach the service before the leader may read the row.
_WITHDRAWAL = timedelta(seconds=1)


@dataclass(slots=True)
class Drained:
    """What a drain did."""

    run: str
    #: By this process; their rows are there, or were delivered.
    moved: Tally = field(default_factory=Tally)
    #: Left to the timeout manager: due within the margin.
    too_soon: int = 0
    #: Taken by somebody else while they were moved; nothing of them is left here.
    taken: int = 0
    refused: list[Refused] = field(default_factory=list)
    #: Moved, and perhaps released by the timeout manager as well.
    doubtful: list[LegacyTimeout] = field(default_factory=list)
    #: Came to the store while the drain ran.
    arrived: int = 0
    #: None: it was stopped before its end.
    verified: Verified | None = None


@dataclass(frozen=True, slots=True)
class _Placed:
    """A timeout that has a row, or whose row was delivered."""

    movable: Movable
    row: Row | None
    #: By this run, and in this very version.
    created: bool

    @property
    def id(self) -> str:
        return self.movable.timeout.id

    @property
    def due_at(self) -> datetime:
        return self.movable.delayed.due_at


class Drain:
    """One run, or the rest of one."""

    def __init__(
        self, ground: Ground, selection: Selection, file: "UndoFile", stop: asyncio.Event | None = None
    ) -> None:
        self._ground = ground
        self._timeouts = ground.backend.timeouts
        self._store = ground.backend.store
        self._clock = ground.clock
        self._selection = selection
        self._file = file
        self._stop = stop or asyncio.Event()
        self._reach = timedelta(0)
        self._done = Drained(file.run or uuid.uuid4().hex[:12])

    async def run(self) -> Drained:
        """Move what is selected, then verify.

        Raises:
            NotProvisioned: there is no delays table; nothing was changed.
            UsageError: the undo file can't be written; what is not in it was not moved.
            StorageError: the same call again goes on where this one ended.
        """
        await self._store.next_due()  # is there a table? And it tells the time
        self._reach = await self._ground.reach()
        done = self._done
        self._file.write([self._began()])
        if self._file.open_batch is not None:
            await self._finish(self._file.open_batch)
        async for batch in self._batches():
            if self._stop.is_set():
                return done
            await self._move(batch)
        done.verified = await verify(self._ground, read_lines(self._file.path), done.run)
        await self._count_arrived()
        self._file.finish(done.run, self._clock.now())
        return done

    def _began(self) -> Began:
        return Began(
            self._done.run,
            self._ground.endpoint,
            self._ground.table,
            self._clock.now(),
            self._selection.due_from,
            self._selection.margin.total_seconds(),
        )

    async def _batches(self) -> AsyncIterator[list[LegacyTimeout]]:
        """What is selected, without bodies."""
        batch: list[LegacyTimeout] = []
        async for timeout in self._timeouts.all(due_from=self._selection.due_from):
            if not isinstance(timeout, LegacyTimeout):
                self._done.refused.append(Refused(timeout.id, "", timeout.due_at, timeout.reason))
            elif self._too_soon(timeout):
                self._done.too_soon += 1
            else:
                batch.append(timeout)
            if len(batch) >= BATCH:
                yield batch
                batch = []
                self._reach = await self._ground.reach()
        if batch:
            yield batch

    def _too_soon(self, timeout: LegacyTimeout) -> bool:
        return self._selection.too_soon(timeout.due_at, latest=self._clock.latest(), reach=self._reach)

    async def _count_arrived(self) -> None:
        """What could be moved, is there, and was not when the run came by."""
        stays = {one.id for one in self._done.refused}
        async for timeout in self._timeouts.all(due_from=self._selection.due_from):
            if not isinstance(timeout, LegacyTimeout) or timeout.id in stays or self._too_soon(timeout):
                continue
            # What an interrupted removal left is no timeout.
            self._done.arrived += bool(await with_bodies(self._ground, [timeout]))

    # --- one batch --------------------------------------------------------------------------------

    async def _move(self, batch: Sequence[LegacyTimeout]) -> None:
        whole = await with_bodies(self._ground, batch)
        verdicts = await self._ground.judge.judge([one for one in whole if isinstance(one, LegacyTimeout)])
        self._done.refused += [one for one in (*whole, *verdicts) if isinstance(one, Refused)]
        weighed = [one for one in verdicts if isinstance(one, Movable)]
        # Asked again: reading may have taken a while.
        movable = [one for one in weighed if not self._too_soon(one.timeout)]
        self._done.too_soon += len(weighed) - len(movable)
        if not movable:
            return
        self._file.write([Moving(one.timeout) for one in movable])
        placed = await self._place(movable)
        self._file.write([Added(tuple(one.id for one in placed))])
        kept = {one.id for one in placed}
        left = tuple(one.timeout.id for one in movable if one.timeout.id not in kept)
        await self._take(placed, left)

    async def _place(self, movable: Sequence[Movable]) -> list[_Placed]:
        """Make a row for each; those that have one. The others are told as refused."""
        outcomes = await add_rows(self._ground, movable)
        placed: list[_Placed] = []
        for one, outcome in zip(movable, outcomes, strict=True):
            answer = await self._placed(one, outcome) if isinstance(outcome, AddResult) else outcome
            if isinstance(answer, _Placed):
                placed.append(answer)
            elif isinstance(answer, UsageError):
                self._done.refused.append(refused(one.timeout, answer))
        return placed

    async def _placed(self, one: Movable, added: AddResult) -> _Placed | UsageError:
        if added.created:
            return _Placed(one, DelayedRow(added.key, added.etag, one.delayed), created=True)
        row = await self._store.get(added.key)
        if row is None:
            return UsageError("somebody removed its row while it was moved; run the command again")
        if not is_row_of(row, one):
            return other_message(one)
        return _Placed(one, row, created=False)

    async def _take(self, placed: Sequence[_Placed], left: tuple[str, ...] = ()) -> None:
        """Remove timeouts that have rows, and tell what became of them."""
        answers: dict[str, bool] = {}
        failure: StorageError | None = None

        async def take(one: _Placed) -> None:
            answers[one.id] = await self._timeouts.remove(one.id)

        try:
            await for_each(placed, AT_ONCE, take)
        except StorageError as error:
            failure = error  # those without an answer are the next run's
        settled = await self._settle([one for one in placed if one.id in answers], answers)
        self._tell(placed, Settled(settled.moved, (*settled.left, *left), settled.doubtful))
        if failure is not None:
            raise failure

    async def _settle(self, placed: Sequence[_Placed], answers: Mapping[str, bool]) -> Settled:
        latest = self._clock.latest()
        reach = await self._ground.reach()
        moved: list[str] = []
        doubtful: list[str] = []
        withdrawn: dict[str, Row] = {}
        for one in placed:
            ahead = latest + _WITHDRAWAL < one.due_at - reach
            if answers[one.id]:
                if not one.created and ahead and one.row is not None:
                    await self._confirm(one.movable, one.row)
                risk = self._selection.may_be_released(one.due_at, latest=latest, reach=reach)
                (doubtful if risk else moved).append(one.id)
            elif one.created and ahead and one.row is not None:
                withdrawn[one.id] = one.row
            else:
                # A row that was there before may be the one of whoever took the timeout.
                doubtful.append(one.id)
        gone = await self._store.remove(list(withdrawn.values())) if withdrawn else []
        left = [timeout_id for timeout_id, was in zip(withdrawn, gone, strict=True) if was]
        doubtful += [timeout_id for timeout_id, was in zip(withdrawn, gone, strict=True) if not was]
        return Settled(tuple(moved), tuple(left), tuple(doubtful))

    async def _confirm(self, movable: Movable, row: Row) -> None:
        """The timeout is ours: nobody may withdraw its row any more."""
        if await self._store.update(row, failure_count=0, next_attempt_at=None) is None:
            await self._store.add([movable.delayed])

    def _tell(self, placed: Sequence[_Placed], settled: Settled) -> None:
        if not settled.ids:
            return
        self._file.write([settled])
        done, timeouts = self._done, {one.id: one.movable.timeout for one in placed}
        for timeout_id in (*settled.moved, *settled.doubtful):
            done.moved.add(timeouts[timeout_id])
        done.doubtful += [timeouts[timeout_id] for timeout_id in settled.doubtful]
        done.taken += sum(timeout_id in timeouts for timeout_id in settled.left)
        moved = len(settled.moved) + len(settled.doubtful)
        self._ground.events.emit(TimeoutsMoved(done.run, moved, len(settled.left), done.moved.count))

    # --- what a killed process left ---------------------------------------------------------------

    async def _finish(self, batch: Batch) -> None:
        """Look where each timeout is that was under way, and bring it to its end."""
        placed: list[_Placed] = []
        moved: list[_Placed] = []
        left: list[str] = []
        for timeout_id, timeout in batch.open.items():
            movable = self._ground.judge.weigh(timeout)
            if not isinstance(movable, Movable):
                raise _other_settings(timeout_id, movable.reason)
            found = await self._store.get(movable.delayed.key)
            row = found if found is not None and is_row_of(found, movable) else None
            if row is not found and timeout_id in batch.added:
                raise _other_settings(timeout_id, "its row holds something else")
            here = _Placed(movable, row, created=False)
            is_delivered = row is None and timeout_id in batch.added and self._window_is_open(here.due_at)
            if await self._timeouts.get(timeout_id) is None:
                moved.append(here)
                rest = DueTimeout(timeout_id, timeout.due_at, self._ground.scope.of(timeout.due_at))
                await self._timeouts.clean_up(rest)
            elif row is not None or is_delivered:
                placed.append(here)
            else:
                left.append(timeout_id)  # nothing was done with it yet: it comes again
        # Nobody can tell who took those: we, or a manager since.
        sure = [one.id for one in moved if not self._may_be_released(one)]
        unsure = [one.id for one in moved if self._may_be_released(one)]
        self._tell(moved, Settled(moved=tuple(sure), doubtful=tuple(unsure)))
        await self._take(placed, tuple(left))

    def _may_be_released(self, one: _Placed) -> bool:
        latest = self._clock.latest()
        return self._selection.may_be_released(one.due_at, latest=latest, reach=self._reach)

    def _window_is_open(self, due_at: datetime) -> bool:
        return self._clock.latest() >= due_at - self._reach


def _other_settings(timeout_id: str, reason: str) -> UsageError:
    return UsageError(
        f"timeout {timeout_id} was being moved when the last run ended, and now: {reason}; go on with the "
        "settings of that run"
    )
