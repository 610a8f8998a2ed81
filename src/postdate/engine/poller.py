"""The leader's work: one pass over the due rows, and the loop around it.

A pass reads what is due within the lookahead, page by page, the next page being read while this one is
dispatched, and ends when everything it sent is removed. The loop sleeps until the earliest of: the next due
time less the lookahead, the end of a back-off, the idle interval, a wake-up by our own intake.

**How late a pass may be.** A message need not be handed over the moment the lookahead reaches it: early
enough for another process to take over after a crash will do. What the lookahead leaves beyond that is slack;
a pass that comes so much later finds more messages at once, and costs no more requests.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from postdate.clock import Clock, either, wait_for
from postdate.core.backoff import retry_wait
from postdate.core.plan import HandOver, Refuse, Step, Wait, plan
from postdate.engine.dispatcher import Dispatched, Dispatcher, Outcome
from postdate.engine.elector import Elector
from postdate.engine.gate import Gate
from postdate.engine.pages import read_ahead
from postdate.engine.remover import HandedOverRows, Remover
from postdate.errors import PostdateError, StorageError
from postdate.events import Events, PassFailed, PassFinished, RemoveFailed
from postdate.model.delayed import DelayedRow, Row
from postdate.model.limits import BATCH_OPERATIONS
from postdate.ports import Backend, Guard, LeaseLost, removed_before

#: Shortest pause between two passes that had something left to do, so that nothing spins.
_FLOOR_SECONDS = 0.02
#: Sends within one second that surely find the service free: more are a burst, which is not timed singly.
_PRECISE_LIMIT = 400
#: Added to a wait, so that it never ends a clock tick early.
_WAKE_SECONDS = 0.0005
_GONE = (Dispatched(Outcome.DONE), Dispatched(Outcome.MOVED))


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass did. `led` is False where another process leads, and nothing was done."""

    led: bool
    handed_over: int = 0
    failed: int = 0
    moved_to_error_queue: int = 0
    #: Rows that were read and left alone: in back-off, or not due yet.
    waiting: int = 0
    #: When the next pass has work; None: nothing is waiting.
    next_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PollSettings:
    """What the poller needs to know of the endpoint's settings."""

    lookahead: timedelta
    idle_interval: timedelta
    #: How long a crash leaves the endpoint without a leader, at most.
    takeover: timedelta
    unremoved_limit: int
    #: Remove first, then dispatch (at most once).
    removed_first: bool


@dataclass(slots=True)
class _Tally:
    outcomes: dict[Outcome, int] = field(default_factory=dict)
    waiting: int = 0
    next_at: datetime | None = None

    def count(self, outcome: Outcome) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def again_at(self, instant: datetime | None) -> None:
        if instant is not None and (self.next_at is None or instant < self.next_at):
            self.next_at = instant

    def __getitem__(self, outcome: Outcome) -> int:
        return self.outcomes.get(outcome, 0)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass under way."""

    term: int
    guard: Guard
    remover: Remover
    tally: _Tally
    stop: asyncio.Event

    @property
    def goes_on(self) -> bool:
        return self.guard() and not self.remover.full and not self.stop.is_set()


class Poller:
    """Passes over the due rows while this process leads."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        elector: Elector,
        dispatcher: Dispatcher,
        gate: Gate,
        settings: PollSettings,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._events = events
        self._elector = elector
        self._dispatcher = dispatcher
        self._gate = gate
        self._settings = settings
        self._handed_over = HandedOverRows()
        self._woken = asyncio.Event()
        self._asleep_until: datetime | None = None
        self._one_at_a_time = asyncio.Lock()
        self._random = Random()
        spare = settings.lookahead - settings.takeover
        self._slack = min(max(timedelta(0), spare), settings.idle_interval)

    def wake(self, due_at: datetime) -> None:
        """A message became durable: look again, if that is sooner than planned."""
        needed_at = due_at - self._settings.lookahead + self._slack
        if self._asleep_until is None or needed_at < self._asleep_until:
            self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; returns when everything that was sent is removed."""
        failures = 0
        while not stop.is_set():
            changed = self._elector.changed
            term = self._elector.term
            if term is None:
                await either(changed.wait(), stop.wait())
                continue
            self._woken.clear()
            self._asleep_until = None
            try:
                # Where the slack covers the idle interval, nothing can need us sooner.
                result = await self.one_pass(
                    term.number, stop, ask_next=self._slack < self._settings.idle_interval
                )
            except PostdateError as error:
                failures += 1
                pause = retry_wait(failures, base_s=0.5, maximum_s=30.0, random=self._random)
                self._events.emit(PassFailed(str(error), pause))
                await wait_for(stop, pause, self._clock)
                continue
            failures = 0
            await self._sleep(result.next_at, stop)

    async def one_pass(
        self, term: int, stop: asyncio.Event | None = None, *, ask_next: bool = True
    ) -> PassResult:
        """Hand over everything that is due within the lookahead.

        Args:
            term: the term to act in.
            stop: begin nothing new once it is set.
            ask_next: find out when the next pass has work.

        Raises:
            StorageError: rows could not be read. What was sent before is removed.
        """

        def guard() -> bool:
            return self._elector.may_act(term)

        async with self._one_at_a_time:
            remover = Remover(
                self._backend.store,
                self._clock,
                self._events,
                guard=guard,
                limit=self._settings.unremoved_limit,
                handed_over=self._handed_over,
            )
            tally = _Tally()
            this = _Pass(term, guard, remover, tally, stop or asyncio.Event())
            until = self._clock.now() + self._settings.lookahead
            try:
                async with aclosing(read_ahead(self._backend.store.due(until))) as pages:
                    async for page in pages:
                        await self._page(page, this)
                        if not this.goes_on:
                            break
            except LeaseLost:
                pass
            finally:
                await remover.flush()
            if remover.full:
                raise StorageError("rows of what was handed over can't be removed; nothing more is sent")
            next_due = await self._backend.store.next_due(until) if ask_next else None
            if next_due is not None:
                tally.again_at(next_due - self._settings.lookahead + self._slack)
        result = PassResult(
            True,
            tally[Outcome.DONE],
            tally[Outcome.FAILED] + tally[Outcome.SKIPPED],
            tally[Outcome.MOVED],
            tally.waiting,
            tally.next_at,
        )
        self._events.emit(
            PassFinished(
                term,
                result.handed_over,
                result.failed,
                result.moved_to_error_queue,
                result.waiting,
                result.next_at,
            )
        )
        return result

    # --- one page ---------------------------------------------------------------------------------

    async def _page(self, page: Sequence[Row], this: _Pass) -> None:
        steps = plan(
            page,
            now=self._clock.now(),
            lookahead=self._settings.lookahead,
            # Timed sends would lie between removal and dispatch for up to a second, where a crash loses them.
            precise_limit=0 if self._settings.removed_first else _PRECISE_LIMIT,
        )
        work: list[HandOver | Refuse] = []
        for step in steps:
            if isinstance(step, Wait):
                this.tally.waiting += 1
                this.tally.again_at(_with_others(step.until) if _backed_off(step.row) else step.until)
            elif step.row in self._handed_over:
                # Sent by an earlier pass that could not remove it.
                if await this.remover.reserve():
                    this.remover.add(step.row)
            else:
                work.append(step)
        for start in range(0, len(work), BATCH_OPERATIONS):
            if not this.goes_on:
                return
            await self._dispatch_all(work[start : start + BATCH_OPERATIONS], this)

    async def _claim(self, batch: Sequence[HandOver | Refuse], guard: Guard) -> list[HandOver | Refuse]:
        """At most once: only what this call removed may be sent."""
        readable = [step for step in batch if isinstance(step, HandOver)]
        rows = [step.row for step in readable]
        try:
            removed = await self._backend.store.remove(rows, guard)
        except (StorageError, LeaseLost) as error:
            gone = removed_before(error) or []
            await self._put_back([row for row, ok in zip(rows, gone, strict=False) if ok])
            raise
        mine = [step for step, ok in zip(readable, removed, strict=True) if ok]
        return [*mine, *(step for step in batch if isinstance(step, Refuse))]

    async def _put_back(self, rows: Sequence[DelayedRow]) -> None:
        """Rows that were removed and surely not sent: somebody will."""
        if not rows:
            return
        try:
            await self._backend.store.add([row.delayed for row in rows])
        except StorageError as error:
            self._events.emit(RemoveFailed(len(rows), f"removed, not sent, and not put back: {error}"))

    async def _dispatch_all(self, batch: Sequence[HandOver | Refuse], this: _Pass) -> None:
        if self._settings.removed_first:
            batch = await self._claim(batch, this.guard)
        async with asyncio.TaskGroup() as sends:
            for position, step in enumerate(batch):
                if isinstance(step, HandOver):
                    await self._wait_until(step.send_at, this.stop)
                if not await this.remover.reserve():
                    await self._put_back(self._removed(batch[position:]))
                    return
                await self._gate.enter()
                sends.create_task(self._one(step, this))

    async def _wait_until(self, instant: datetime, stop: asyncio.Event) -> None:
        """Wait for the instant of a send, at most a second; `stop` ends it, and costs punctuality only."""
        # More than that is a clock that was set back meanwhile.
        while 0 < (ahead := (instant - self._clock.now()).total_seconds()) <= 1:
            # A little longer: a send a moment too soon would be hidden a whole second too long.
            if await wait_for(stop, ahead + _WAKE_SECONDS, self._clock):
                return

    async def _one(self, step: HandOver | Refuse, this: _Pass) -> None:
        result: Dispatched | None = None
        try:
            result = await self._carry_out(step, this)
        except LeaseLost:
            await self._put_back(self._removed([step]))
            return
        finally:
            await self._gate.leave()
            if result in _GONE and not self._removed_before(step):
                this.remover.add(step.row)
            else:
                this.remover.give_back()
        if result.outcome is Outcome.SKIPPED:
            await self._put_back(self._removed([step]))
        this.tally.count(result.outcome)
        this.tally.again_at(_with_others(result.again_at))
        if result.outcome is Outcome.DONE:
            self._gate.succeeded()

    async def _carry_out(self, step: HandOver | Refuse, this: _Pass) -> Dispatched:
        if isinstance(step, Refuse):
            return await self._dispatcher.refuse(step.row, this.guard)
        return await self._dispatcher.dispatch(step.row, this.term, this.guard)

    def _removed(self, steps: Sequence[Step]) -> list[DelayedRow]:
        return [s.row for s in steps if isinstance(s, HandOver) and self._removed_before(s)]

    def _removed_before(self, step: Step) -> bool:
        return self._settings.removed_first and isinstance(step.row, DelayedRow)

    # --- between passes ---------------------------------------------------------------------------

    async def _sleep(self, next_at: datetime | None, stop: asyncio.Event) -> None:
        seconds = self._settings.idle_interval.total_seconds()
        if next_at is not None:
            until_next = (next_at - self._clock.now()).total_seconds()
            seconds = min(seconds, max(until_next, _FLOOR_SECONDS))
        self._asleep_until = self._clock.now() + timedelta(seconds=seconds)
        await either(stop.wait(), wait_for(self._woken, seconds, self._clock))


def _backed_off(row: Row) -> bool:
    return (row.delayed if isinstance(row, DelayedRow) else row).next_attempt_at is not None


def _with_others(instant: datetime | None) -> datetime | None:
    """The next whole second: rows that are tried again share a pass, or many would cost a pass each."""
    if instant is None or not instant.microsecond:
        return instant
    return instant.replace(microsecond=0) + timedelta(seconds=1)
