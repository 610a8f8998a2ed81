"""One pass over the due rows: what is due within the lookahead is handed over, and its rows are removed.

Pages are read ahead while the one before is dispatched. Sends of different pages run side by side, as many as
the gate lets in; nobody waits for the slowest of a page. The pass ends when everything it sent is removed.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from postdate.clock import Clock, either
from postdate.core.plan import HandOver, Refuse, Step, Wait, plan
from postdate.engine.authority import Authority
from postdate.engine.breakers import Breakers
from postdate.engine.dispatcher import Dispatched, Dispatcher, Outcome
from postdate.engine.gate import Gate
from postdate.engine.handover import WAKE_SECONDS
from postdate.engine.pages import read_ahead
from postdate.engine.remover import HandedOverRows, Remover
from postdate.errors import PostdateError, StorageError
from postdate.events import Events, PassFinished, RemoveFailed
from postdate.model.delayed import DelayedRow, Row
from postdate.model.limits import BATCH_OPERATIONS
from postdate.ports import Backend, Guard, LeaseLost, removed_before

#: Sends within one second that surely find the service free: more are a burst, which is not timed singly.
_PRECISE_LIMIT = 400
_GONE = (Outcome.DONE, Outcome.MOVED)

T = TypeVar("T")


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
class PassSettings:
    """What a pass needs to know of the endpoint's settings."""

    lookahead: timedelta
    unremoved_limit: int
    #: Remove first, then dispatch (at most once).
    removed_first: bool
    #: What is ahead of its due time may wait, up to a second, to be exactly in time. Without it all goes at
    #: the pace that the service takes, which a backlog needs.
    timed: bool = True


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
    sends: asyncio.TaskGroup

    @property
    def goes_on(self) -> bool:
        return self.guard() and not self.remover.full and not self.stop.is_set()


class Passes:
    """Passes over the due rows, one at a time."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        authority: Authority,
        dispatcher: Dispatcher,
        gate: Gate,
        breakers: Breakers,
        settings: PassSettings,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._events = events
        self._authority = authority
        self._dispatcher = dispatcher
        self._gate = gate
        self._breakers = breakers
        self._settings = settings
        self._handed_over = HandedOverRows()
        self._one_at_a_time = asyncio.Lock()
        #: When a row of another implementation was seen last (monotonic seconds): its senders know nothing
        #: of our direct path.
        self.foreign_seen_at: float | None = None

    async def one_pass(
        self, term: int, stop: asyncio.Event | None = None, *, ask_next: bool = True
    ) -> PassResult:
        """Hand over everything that is due within the lookahead.

        Args:
            term: the term to act in.
            stop: begin nothing new once it is set.
            ask_next: find out when the next pass has work; without it, only a pass that handed over nothing
                asks.

        Raises:
            StorageError: rows could not be read. What was sent before is removed.
        """

        def guard() -> bool:
            return self._authority.may_act(term)

        async with self._one_at_a_time:
            remover = Remover(
                self._backend.store,
                self._clock,
                self._events,
                guard=guard,
                breaker=self._breakers.dispatch,
                limit=self._settings.unremoved_limit,
                handed_over=self._handed_over,
            )
            tally = _Tally()
            until = self._clock.now() + self._settings.lookahead
            failure: PostdateError | None = None
            try:
                async with asyncio.TaskGroup() as sends:
                    this = _Pass(term, guard, remover, tally, stop or asyncio.Event(), sends)
                    try:
                        # Before anything is read: a partition that is busy may not take both.
                        await self._remove(self._handed_over.left(), remover)
                        await self._pages(until, this)
                    except PostdateError as error:
                        failure = error  # what is under way goes on to its end
                    except LeaseLost:
                        pass
            finally:
                await remover.flush()
            if failure is not None:
                raise failure
            if remover.full:
                raise StorageError("rows of what was handed over can't be removed; nothing more is sent")
            if ask_next or not tally[Outcome.DONE]:
                next_due = await self.next_due(until)
                if next_due is not None:
                    tally.again_at(next_due - self._settings.lookahead)
        return self._finished(term, tally)

    def _finished(self, term: int, tally: _Tally) -> PassResult:
        self._breakers.fetch.succeeded()
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

    async def _pages(self, until: datetime, this: _Pass) -> None:
        async with aclosing(read_ahead(self._backend.store.due(until))) as pages:
            while (page := await self._asked(anext(pages, None))) is not None:
                await self._page(page, this)
                if not this.goes_on:
                    break

    async def next_due(self, after: datetime | None = None) -> datetime | None:
        """As the store's; an error is a failure to fetch."""
        return await self._asked(self._backend.store.next_due(after))

    async def _asked(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except PostdateError as error:
            self._breakers.fetch.failed(error)
            raise

    # --- one page ---------------------------------------------------------------------------------

    async def _remove(self, rows: Sequence[Row], remover: Remover) -> None:
        """What earlier passes sent and could not remove."""
        for row in rows:
            if not await remover.reserve():
                return
            remover.add(row)
        if rows:
            await remover.flush()

    async def _page(self, page: Sequence[Row], this: _Pass) -> None:
        # Timed sends would lie between removal and dispatch for up to a second, where a crash loses them.
        timed = self._settings.timed and not self._settings.removed_first
        steps = plan(
            page,
            now=self._clock.now(),
            lookahead=self._settings.lookahead,
            precise_limit=_PRECISE_LIMIT if timed else 0,
        )
        work: list[HandOver | Refuse] = []
        for step in steps:
            if isinstance(step.row, DelayedRow) and step.row.delayed.scheduled_at is None:
                self.foreign_seen_at = self._clock.monotonic()
            if isinstance(step, Wait):
                this.tally.waiting += 1
                this.tally.again_at(_with_others(step.until) if _backed_off(step.row) else step.until)
            elif step.row in self._handed_over:
                # Sent by an earlier pass that could not remove it, and not removed in this one either.
                continue
            else:
                work.append(step)
        if not self._settings.removed_first:
            await self._dispatch_all(work, this, this.sends)
            return
        for start in range(0, len(work), BATCH_OPERATIONS):
            if not this.goes_on:
                return
            # One batch after the other: a crash loses what was removed and not yet sent.
            claimed = await self._claim(work[start : start + BATCH_OPERATIONS], this.guard)
            async with asyncio.TaskGroup() as sends:
                await self._dispatch_all(claimed, this, sends)

    async def _claim(self, batch: Sequence[HandOver | Refuse], guard: Guard) -> list[HandOver | Refuse]:
        """At most once: only what this call removed may be sent."""
        readable = [step for step in batch if isinstance(step, HandOver)]
        rows = [step.row for step in readable]
        try:
            removed = await self._backend.store.remove(rows, guard)
        except (StorageError, LeaseLost) as error:
            if isinstance(error, StorageError):
                self._breakers.dispatch.failed(error)
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
            self._breakers.dispatch.failed(error)
            self._events.emit(RemoveFailed(len(rows), f"removed, not sent, and not put back: {error}"))

    async def _dispatch_all(
        self, work: Sequence[HandOver | Refuse], this: _Pass, sends: asyncio.TaskGroup
    ) -> None:
        for position, step in enumerate(work):
            if isinstance(step, HandOver):
                await self._wait_until(step.send_at, this.stop)
            if not (this.goes_on or self._settings.removed_first) or not await this.remover.reserve():
                await self._put_back(self._removed(work[position:]))
                return
            sends.create_task(self._one(step, this, await self._gate.enter()))

    async def _wait_until(self, instant: datetime, stop: asyncio.Event) -> None:
        """Wait for the instant of a send; `stop` ends it, and costs punctuality only."""
        ahead = (instant - self._clock.now()).total_seconds()
        # Of two that follow each other, one is in this second and the other in the next at most. More is a
        # clock that was set back meanwhile.
        if 0 < ahead <= 2 and not stop.is_set():
            await either(stop.wait(), self._clock.pause(ahead + WAKE_SECONDS))

    async def _one(self, step: HandOver | Refuse, this: _Pass, began: float) -> None:
        result: Dispatched | None = None
        try:
            result = await self._carry_out(step, this)
        except LeaseLost:
            await self._put_back(self._removed([step]))
            return
        finally:
            self._gate.leave()
            if result is not None and result.outcome in _GONE and not self._removed_before(step):
                this.remover.add(step.row, sent=result.sent)
            else:
                this.remover.give_back()
        if result.outcome is Outcome.SKIPPED:
            await self._put_back(self._removed([step]))
        this.tally.count(result.outcome)
        this.tally.again_at(_with_others(result.again_at))
        if result.outcome is Outcome.DONE:
            self._gate.succeeded(began)

    async def _carry_out(self, step: HandOver | Refuse, this: _Pass) -> Dispatched:
        if isinstance(step, Refuse):
            return await self._dispatcher.refuse(step.row, this.guard)
        return await self._dispatcher.dispatch(step.row, this.term, this.guard)

    def _removed(self, steps: Sequence[Step]) -> list[DelayedRow]:
        return [s.row for s in steps if isinstance(s, HandOver) and self._removed_before(s)]

    def _removed_before(self, step: Step) -> bool:
        return self._settings.removed_first and isinstance(step.row, DelayedRow)


def _backed_off(row: Row) -> bool:
    return (row.delayed if isinstance(row, DelayedRow) else row).next_attempt_at is not None


def _with_others(instant: datetime | None) -> datetime | None:
    """The next whole second: rows that are tried again share a pass, or many would cost a pass each."""
    if instant is None or not instant.microsecond:
        return instant
    return instant.replace(microsecond=0) + timedelta(seconds=1)
