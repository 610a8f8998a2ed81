"""The leader's loop: when to look at the table.

It sleeps until the earliest of: the next due time less the lookahead, the end of a back-off, a wake-up by our
own intake, the longest sleep that its settings allow.

**Slack.** A message need not be handed over the moment the lookahead reaches it: early enough for another
process to take over after a crash will do. What the lookahead leaves beyond that is slack. While messages
flow, each pass comes so much after the one before, finds what came into reach meanwhile, and costs no more
requests than for one message. After a pause the first pass comes without it: there may be a burst.

**Resting.** After a look that found nothing near, the next one asks only when the next row is due: one
request. The elector is told, and takes a long lease (`core.rest`). Not where rows of another implementation
turned up lately: their senders store the shortest delay as a row.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from postdate.clock import Clock, either, wait_for
from postdate.core.backoff import retry_wait
from postdate.core.rest import WATCHFUL, longest_sleep
from postdate.engine.breakers import Breaker
from postdate.engine.elector import Elector
from postdate.engine.passes import Passes
from postdate.errors import PostdateError
from postdate.events import Events, PassFailed, PassFinished

#: Shortest pause between two passes that had something left to do, so that nothing spins.
_FLOOR = timedelta(seconds=0.02)
#: Longest pause after a pass that failed: as quickly a table that is back is noticed.
_LONGEST_PAUSE_SECONDS = 10.0
#: With less slack than this, a leader asks when the next row is due instead of coming back after the slack.
_GATHERING = timedelta(seconds=1)
#: Seconds for which a row of another implementation keeps the leader watchful.
_FOREIGN_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class PollSettings:
    """What the poller needs to know of the endpoint's settings."""

    lookahead: timedelta
    #: How much later than the lookahead reaches it a message may be handed over.
    slack: timedelta
    #: Every delay above it is a row.
    direct_limit: timedelta
    idle_interval: timedelta
    #: How long a crash leaves the endpoint without a leader, at most.
    takeover: timedelta


class Poller:
    """Looks at the table while this process leads."""

    def __init__(
        self,
        clock: Clock,
        events: Events,
        elector: Elector,
        passes: Passes,
        breaker: Breaker,
        settings: PollSettings,
    ) -> None:
        self._clock = clock
        self._events = events
        self._elector = elector
        self._passes = passes
        self._breaker = breaker
        self._settings = settings
        self._random = Random()
        self._slack = settings.slack
        self._longest_sleep = longest_sleep(
            settings.idle_interval, direct_limit=settings.direct_limit, takeover=settings.takeover
        )
        self._woken = asyncio.Event()
        self._wanted_at: datetime | None = None
        self._term: int | None = None
        self._idle = False

    def wake(self, due_at: datetime) -> None:
        """A message became durable: look again in time for it."""
        wanted_at = due_at - self._settings.lookahead + self._slack
        if self._wanted_at is None or wanted_at < self._wanted_at:
            self._wanted_at = wanted_at
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
            if term.number != self._term:
                self._term, self._idle = term.number, False
            self._wanted_at = None
            try:
                next_at = await self._look(term.number, stop)
            except PostdateError as error:
                self._elector.rest(None)
                failures += 1
                longest = _LONGEST_PAUSE_SECONDS
                pause = retry_wait(failures, base_s=0.5, maximum_s=longest, random=self._random)
                pause = self._breaker.until_decision(pause)
                self._events.emit(PassFailed(str(error), pause))
                await wait_for(stop, pause, self._clock)
                continue
            failures = 0
            await self._sleep(next_at, stop, changed)

    async def _look(self, term: int, stop: asyncio.Event) -> datetime | None:
        """Hand over what has to be, if anything has; when to be back at the latest, None: not known."""
        looked_at, now = self._clock.monotonic(), self._clock.now()
        if self._idle:
            next_due = await self._passes.next_due()
            next_at = None if next_due is None else next_due - self._settings.lookahead
            if next_at is None or next_at > now:
                self._breaker.succeeded()
                self._rest(next_at, looked_at, now)
                self._events.emit(PassFinished(term, 0, 0, 0, 0, next_at))
                return next_at
        self._elector.rest(None)
        # Where there was work, there soon is more: come back when that must be handed over, unasked.
        gathering = self._slack >= _GATHERING
        result = await self._passes.one_pass(term, stop, ask_next=not gathering)
        self._idle = not result.handed_over
        next_at = result.next_at
        if self._idle:
            self._rest(next_at, looked_at, now)
        elif gathering:
            next_at = min(next_at or now + self._slack, now + self._slack)
        return next_at

    @property
    def _watchful(self) -> bool:
        seen_at = self._passes.foreign_seen_at
        return seen_at is not None and self._clock.monotonic() - seen_at < _FOREIGN_SECONDS

    def _rest(self, next_at: datetime | None, looked_at: float, now: datetime) -> None:
        """Nothing there needs anybody before `next_at`, and nothing new for the length of a direct delay."""
        if self._watchful:
            self._elector.rest(None)
            return
        until = looked_at + self._settings.direct_limit.total_seconds()
        if next_at is not None:
            until = min(until, looked_at + (next_at - now).total_seconds())
        self._elector.rest(until)

    async def _sleep(self, next_at: datetime | None, stop: asyncio.Event, changed: asyncio.Event) -> None:
        longest = min(self._longest_sleep, WATCHFUL) if self._watchful else self._longest_sleep
        began = self._clock.now()
        wanted = [instant for instant in (next_at, self._wanted_at) if instant is not None]
        self._wanted_at = min(wanted, default=None)
        ends_by = self._clock.monotonic() + longest.total_seconds()
        while True:
            self._woken.clear()
            seconds = ends_by - self._clock.monotonic()
            if self._wanted_at is not None:
                at = max(self._wanted_at, began + _FLOOR)
                seconds = min(seconds, (at - self._clock.now()).total_seconds())
            if seconds <= 0:
                return
            await either(
                stop.wait(),
                changed.wait(),
                self._elector.look_wanted.wait(),
                wait_for(self._woken, seconds, self._clock),
            )
            if not self._woken.is_set() or stop.is_set() or changed.is_set():
                return
