"""The timeout manager: looks for what is due, and into its queues, while this process leads.

A timeout is handed over up to the endpoint's lookahead before it is due, hidden in its queue until then, so a
look each minute makes nobody late that the store knew a minute before.

Where nothing of it exists it rests, and a failure is nobody's concern: an endpoint that has no legacy must
not suffer from it. That changes once a store was seen.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from postdate.clock import Clock, either
from postdate.concurrency import for_each
from postdate.core.timeout_rounds import REST_SECONDS, ROUND_SECONDS, Round, pause_after, round_of
from postdate.engine.elector import Elector
from postdate.engine.fitting import Fitting
from postdate.engine.handover import HandOverTo
from postdate.errors import AccessDenied, NotProvisioned, PostdateError
from postdate.events import (
    Events,
    TimeoutLookFailed,
    TimeoutManagerDrained,
    TimeoutManagerFailing,
    TimeoutStoreMissing,
)
from postdate.legacy.handing_over import PROVISIONAL, Acting, HandingOver
from postdate.legacy.outage import Outage
from postdate.legacy.requests import Requests
from postdate.legacy.satellites import Satellite, SatelliteSettings
from postdate.legacy.term_state import TermState
from postdate.model.legacy_timeout import DueTimeout
from postdate.model.limits import RECEIVE_MESSAGES
from postdate.ports import Backend, LeaseLost

#: Timeouts that are handed over at once.
_AT_ONCE = 16
#: How far a look reaches beyond what has to be handed over now: to the next round, and a bit.
_REACH = timedelta(seconds=ROUND_SECONDS + 5)
#: A timeout goes out hidden, so that it can be withdrawn; so long before it is due, that makes nobody late.
_LEAST_LOOKAHEAD = 3 * PROVISIONAL
#: Shortest pause, so that nothing spins.
_FLOOR_SECONDS = 0.02
_NAME = "legacy timeout manager"
#: What to do when nothing is left.
SWITCH_OFF = "set POSTDATE_DISABLE_TIMEOUT_MANAGER=true; `postdate legacy show` names what can be deleted"
#: What to do about a queue without a store.
MAKE_A_STORE = (
    "`postdate setup --timeout-manager` makes one, POSTDATE_TIMEOUT_TABLE names another, and "
    "POSTDATE_DISABLE_TIMEOUT_MANAGER=true leaves all of it to others"
)

OnCritical = Callable[[str, Exception, datetime], None]


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """What the manager needs to know of the endpoint's settings."""

    endpoint: str
    #: Of what shall be kept until it is due, and of what somebody found to be due.
    queues: tuple[str, str]
    error_queue: str
    lookahead: timedelta
    outage_limit: timedelta
    visibility: timedelta
    payload_retention: timedelta


class TimeoutManager:
    """Serves the store and the queues of the endpoint's older instances."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        elector: Elector,
        hand_over: HandOverTo,
        settings: ManagerSettings,
        *,
        on_critical: OnCritical | None = None,
    ) -> None:
        """`on_critical` is told when looking has failed for too long: who, the last error, since when."""
        self._backend = backend
        self._clock = clock
        self._events = events
        self._elector = elector
        self._settings = settings
        self._on_critical = on_critical
        self._lookahead = max(settings.lookahead, _LEAST_LOOKAHEAD)
        fitting = Fitting(backend.payloads, clock, settings.payload_retention)
        self._handing_over = HandingOver(backend, clock, events, hand_over, fitting, settings.error_queue)
        requests = Requests(
            backend,
            clock,
            events,
            hand_over,
            self._handing_over,
            owner=settings.endpoint,
            lookahead=self._lookahead,
            stored=self._stored,
        )
        shared = SatelliteSettings(settings.error_queue, settings.visibility, fitting)
        self._requests, self._notices = (
            Satellite(queue, handle, backend, clock, events, shared)
            for queue, handle in zip(settings.queues, (requests.keep, requests.hand_over), strict=True)
        )
        #: Whether a store was ever there: then it is missed when it does not answer.
        self._seen = False
        self._outage = Outage(settings.outage_limit.total_seconds())
        self._term: TermState | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; returns when what was begun is done."""
        while not stop.is_set():
            changed = self._elector.changed
            term = self._elector.term
            if term is None:
                await either(changed.wait(), stop.wait())
                continue
            self._term = self._begin(term.number)
            await self._lead(self._term, stop, changed)

    def _begin(self, number: int) -> TermState:
        acting, now = Acting(number, partial(self._elector.may_act, number)), self._clock.monotonic()
        return TermState(acting, now) if self._term is None else self._term.next_term(acting, now)

    async def _lead(self, term: TermState, stop: asyncio.Event, changed: asyncio.Event) -> None:
        while not stop.is_set() and not changed.is_set():
            try:
                await self._look(term, stop)
            except LeaseLost:
                await either(changed.wait(), stop.wait())
                return
            except PostdateError as error:
                self._failed(term, error)
            else:
                self._outage.over()
            pause = max(_FLOOR_SECONDS, term.look_at - self._clock.monotonic())
            await either(changed.wait(), stop.wait(), self._clock.sleep(pause))

    async def _look(self, term: TermState, stop: asyncio.Event) -> None:
        """A round, or a look at the store before its turn, since something there has to be handed over."""
        is_round = self._clock.monotonic() >= term.next_round_at
        this = round_of(term.number)
        queue_seen = False
        if term.storeless and term.rests % 2:
            queue_seen = await self._is_there(self._requests.queue)
            if not queue_seen:
                self._rest(term, storeless=True)
                return
        try:
            handed_over = await self._look_at_store(term, stop, everywhere=is_round and this.everywhere)
        except NotProvisioned:
            if queue_seen:
                # What comes in could not be kept: it is left alone.
                term.tell_once(self._events, TimeoutStoreMissing(self._requests.queue, MAKE_A_STORE))
            self._rest(term, storeless=True)
            return
        except AccessDenied as error:
            if self._seen:
                raise
            # An identity that may use only what is the endpoint's own: then there is no legacy for it.
            term.tell_once(self._events, TimeoutLookFailed(str(error), REST_SECONDS))
            self._rest(term, storeless=True)
            return
        self._seen, term.storeless = True, False
        term.ask_if_empty = term.ask_if_empty or handed_over
        if is_round:
            await self._finish_round(term, this, quiet=not handed_over)

    async def _finish_round(self, term: TermState, this: Round, *, quiet: bool) -> None:
        """Look into the queues whose turn it is, and say when the next round is."""
        term.number += 1
        found = await self._look_into_queues(term, this)
        term.quiet_rounds = 0 if found else term.quiet_rounds + 1
        pause = 0.0 if found >= RECEIVE_MESSAGES else pause_after(term.quiet_rounds)
        term.next_round_at = self._clock.monotonic() + pause
        if this.everywhere:
            self._handing_over.forget_old()
            term.ask_if_empty = term.ask_if_empty or TimeoutManagerDrained not in term.told
        if found:
            term.ask_if_empty = True
        elif term.ask_if_empty and quiet and term.wake_at is None:
            await self._ask_if_empty(term)

    async def _look_at_store(self, term: TermState, stop: asyncio.Event, *, everywhere: bool) -> bool:
        """Hand over what has to be; whether there was anything. Tells `term.wake_at` what comes next."""
        term.wake_at = None
        term.halted = found = False
        lookahead = self._lookahead
        until = self._clock.now() + lookahead + _REACH
        async for page in self._backend.timeouts.due(until, everywhere=everywhere):
            self._seen = True
            now = self._clock.now()
            ready = [due for due in page if due.due_at - lookahead <= now]
            for due in page[len(ready) :]:
                self._wake_for(term, due.due_at)
            found = found or bool(ready)
            leading = self._while_leading(ready, term, stop)
            await for_each(leading, _AT_ONCE, partial(self._attempt, term))
            if stop.is_set():
                break
        return found

    def _while_leading(
        self, ready: Sequence[DueTimeout], term: TermState, stop: asyncio.Event
    ) -> Iterator[DueTimeout]:
        for due in ready:
            if stop.is_set() or term.halted or not term.acting.guard():
                return
            yield due

    async def _attempt(self, term: TermState, due: DueTimeout) -> None:
        try:
            again_at = await self._handing_over.attempt(due, term.acting)
        except PostdateError:
            term.halted = True
            raise
        if again_at is not None:
            term.wake_by(again_at)

    def _wake_for(self, term: TermState, due_at: datetime) -> None:
        """Be back in time for this: not at once when it is in reach, so that others come into reach too."""
        seconds = (due_at - self._lookahead / 2 - self._clock.now()).total_seconds()
        term.wake_by(self._clock.monotonic() + seconds)

    def _stored(self, due_at: datetime) -> None:
        if self._term is not None:
            self._wake_for(self._term, due_at)

    async def _look_into_queues(self, term: TermState, this: Round) -> int:
        """Handle the messages of the queues whose turn it is; the most that one of them had."""
        most = 0
        for satellite, wanted in ((self._requests, this.requests), (self._notices, this.notices)):
            queue, now = satellite.queue, self._clock.monotonic()
            if now < term.missing.get(queue, now) or not (wanted or queue in term.busy):
                continue
            term.busy.discard(queue)
            try:
                count = await satellite.look(term.acting)
            except AccessDenied as error:
                term.tell_once(self._events, TimeoutLookFailed(str(error), REST_SECONDS))
                count = None
            if count is None:
                term.missing[queue] = now + REST_SECONDS
                term.ask_if_empty = True
                continue
            term.missing.pop(queue, None)
            if count:
                term.busy.add(queue)
                most = max(most, count)
        return most

    async def _is_there(self, queue: str) -> bool:
        try:
            return await self._backend.sender.exists(queue)
        except AccessDenied:
            return False

    async def _ask_if_empty(self, term: TermState) -> None:
        """Say once that nothing is left; rest, where there is not even a queue."""
        term.ask_if_empty = False
        if await self._backend.timeouts.count(limit=1):
            return
        queues = tuple(queue for queue in self._settings.queues if queue not in term.missing)
        if not queues:
            self._rest(term)
            return
        # Hidden ones count: an older instance may be working on them.
        counts = [await self._backend.sender.approximate_count(queue) for queue in queues]
        if not any(counts) and not await self._backend.timeouts.hidden():
            term.tell_once(self._events, TimeoutManagerDrained(queues, SWITCH_OFF))

    def _rest(self, term: TermState, *, storeless: bool = False) -> None:
        term.rest(self._clock.monotonic(), storeless=storeless)

    def _failed(self, term: TermState, error: PostdateError) -> None:
        now = self._clock.monotonic()
        pause = self._outage.failed(now) if self._seen else ROUND_SECONDS
        self._events.emit(TimeoutLookFailed(str(error), pause))
        term.next_round_at = now + pause
        if term.wake_at is not None and term.wake_at <= now:
            term.wake_at = None
        if self._seen and self._outage.lasts_too_long(now):
            failing_s = now - (self._outage.since or now)
            self._events.emit(TimeoutManagerFailing(failing_s, str(error)))
            if self._on_critical is not None:
                self._on_critical(_NAME, error, self._clock.now() - timedelta(seconds=failing_s))
