"""One leader per endpoint.

**States.** A process is a *follower* until an acquire succeeds, then *leader* of one term, then follower
again. There is no third state: whatever is unsure (a lease call that failed, a renewal that did not come
back in time) counts as follower as soon as the trust window is over.

**Who is right when clocks disagree.** Nobody's wall clock takes part. The service counts the lease from when
it handled our call; we count from just before we made it, on the monotonic clock, and stop three seconds
early. Our window therefore always lies inside the service's, whatever the offset between the clocks. Only a
clock that runs 5 % slow for a whole lease of 60 s (20 % for one of 15 s) could break this.

**A frozen process** (stopped, suspended, out of CPU) finds its window over when it wakes: `may_act` is asked
right before each request leaves. It then ends its term before it talks to the service, even though the
service would renew an expired lease that nobody took: what it planned in the old term is never sent.

**Resting.** Where nothing can need a leader for a while (`core.rest`), the lease is a long one, renewed
rarely. The poller says so after each look; before a renewal for which its last word is too old, it is asked
to look again.

**What the lease can't do.** Neither table nor queues check it. A request that left before the freeze may
arrive after it; the receiver sees the term number (`Postdate.Term`) and the message id, and a row is removed
by one process only.

**Stopping** gives the lease back on a path that cancellation can't cut, bounded in time, so that a clean
deploy does not wait out a lease.
"""

import asyncio
from random import Random

from postdate.clock import Clock, either, wait_for
from postdate.core.backoff import jittered
from postdate.core.rest import REST_LEASE_SECONDS, REST_RENEWAL_SECONDS, rest_lease
from postdate.core.term import Term, begin
from postdate.engine.breakers import Breaker
from postdate.engine.tasks import to_the_end
from postdate.errors import StorageError
from postdate.events import ClockUnsure, Events, LeaseFailed, LeaseReleased, TermBegan, TermEnded, TermLost
from postdate.ports import LeaseStore

#: Seconds between two tries after a lease call that failed, and once that is critical.
_RETRY_SECONDS = 1.0
_CRITICAL_RETRY_SECONDS = 10.0
#: A clock known to so many seconds is known well; a round trip to a near service takes some milliseconds.
_SHARP_SECONDS = 0.02
#: Renewals that a new leader makes for the sake of the clock, at most, and the shortest pause between them.
_QUICK_RENEWALS = 10
_QUICK_SECONDS = 0.1
#: Seconds that a renewal waits for a fresh look at the table.
_LOOK_SECONDS = 2.0
#: Seconds that giving the lease back may take.
_RELEASE_SECONDS = 5.0


class Elector:
    """Acquires, renews, gives back; announces changes."""

    def __init__(
        self,
        lease: LeaseStore,
        clock: Clock,
        events: Events,
        *,
        holder: str,
        lease_seconds: int,
        lookahead_seconds: float,
        probe_seconds: float,
        uncertainty_limit: float,
        breaker: Breaker,
        random: Random | None = None,
    ) -> None:
        self._lease = lease
        self._clock = clock
        self._events = events
        self._holder = holder
        self._lease_seconds = lease_seconds
        self._lookahead_seconds = lookahead_seconds
        self._probe_seconds = probe_seconds
        self._uncertainty_limit = uncertainty_limit
        self._breaker = breaker
        self._failures = 0
        self._quick_renewals = 0
        self._rest_until: float | None = None
        self._resting = False
        self._looked = asyncio.Event()
        self._roused = asyncio.Event()
        #: Set when a fresh look at the table is wanted: it may allow us to go on resting.
        self.look_wanted = asyncio.Event()
        self._random = random or Random()
        self._term: Term | None = None
        self._changed = asyncio.Event()

    @property
    def holder(self) -> str:
        """This process, as it is published."""
        return self._holder

    @property
    def term(self) -> Term | None:
        """The current term, or None for a follower; it may be over by the time you look."""
        term = self._term
        return term if term is not None and term.may_act(self._clock.monotonic()) else None

    def may_act(self, number: int) -> bool:
        """Whether this process surely leads in this very term, now."""
        term = self.term
        return term is not None and term.number == number

    @property
    def changed(self) -> asyncio.Event:
        """Set when the current state ends. Take it before you look at `term`, then wait for it."""
        return self._changed

    def rest(self, until: float | None) -> None:
        """Nothing can need a leader before this monotonic instant, by a fresh look; None: work is near."""
        self._rest_until = until
        self.look_wanted.clear()
        self._looked.set()
        if until is None and self._resting:
            self._roused.set()

    async def run(self, stop: asyncio.Event, tried: asyncio.Event | None = None) -> None:
        """Follow and lead until `stop` is set; then give the lease back.

        `tried` is set after the first try to lead.
        """
        try:
            while not stop.is_set():
                pause = await self._beat()
                if tried is not None:
                    tried.set()
                # Work that nobody expected makes a long lease a short one at once.
                await either(stop.wait(), wait_for(self._roused, pause, self._clock))
                self._roused.clear()
        finally:
            if tried is not None:
                tried.set()
            await to_the_end(asyncio.create_task(self._resign(), name="postdate-resign"))

    async def _beat(self) -> float:
        """One acquire or renew; seconds until the next."""
        now = self._clock.monotonic()
        if self._term is not None and not self._term.may_act(now):
            self._end("expired")
        term = self._term
        seconds = self._lease_seconds if term is None else await self._wanted_lease()
        error: StorageError
        try:
            async with asyncio.timeout(self._lease_seconds / 3):
                pause = await (self._acquire() if term is None else self._renew(term, seconds))
        except TimeoutError:
            error = StorageError("no answer within a third of the lease")
        except StorageError as failure:
            error = failure
        else:
            self._breaker.succeeded()
            self._failures = 0
            return pause
        self._failures += 1
        if self._failures.bit_count() == 1:  # 1, 2, 4, 8, ...: an outage is not told each second
            self._events.emit(LeaseFailed(str(error), self._failures))
        self._breaker.failed(error)
        if self._breaker.triggered and self._term is None:
            return jittered(_CRITICAL_RETRY_SECONDS, self._random)
        return _RETRY_SECONDS

    async def _acquire(self) -> float:
        attempted_at = self._clock.monotonic()
        number = await self._lease.acquire(self._holder, self._lease_seconds, self._lookahead_seconds)
        if number is None:
            return jittered(self._probe_seconds, self._random)
        uncertainty = self._clock.uncertainty
        if uncertainty is None or uncertainty > self._uncertainty_limit:
            # What is due is judged by the service's clock: who does not know it must not lead.
            self._events.emit(ClockUnsure(uncertainty, self._uncertainty_limit))
            await self._lease.release()
            return jittered(self._probe_seconds, self._random)
        self._quick_renewals = _QUICK_RENEWALS
        self._rest_until = None
        self._set(self._begin(number, attempted_at, self._lease_seconds))
        self._events.emit(TermBegan(number, self._holder))
        return self._until_renewal()

    async def _wanted_lease(self) -> int:
        """Seconds of the lease that is wanted now."""
        if self._resting and self._rest_until is not None and not self._may_rest():
            self._looked.clear()
            self.look_wanted.set()
            await wait_for(self._looked, _LOOK_SECONDS, self._clock)
        return REST_LEASE_SECONDS if self._may_rest() else self._lease_seconds

    def _may_rest(self) -> bool:
        return rest_lease(self._rest_until, now=self._clock.monotonic(), probe_seconds=self._probe_seconds)

    def _begin(self, number: int, attempted_at: float, seconds: int) -> Term:
        self._resting = seconds == REST_LEASE_SECONDS and self._may_rest()
        after = REST_RENEWAL_SECONDS if self._resting else None
        return begin(number, attempted_at=attempted_at, lease_seconds=seconds, renew_after=after)

    async def _renew(self, term: Term, seconds: int) -> float:
        attempted_at = self._clock.monotonic()
        if await self._lease.renew(seconds):
            # A freeze during the call: the answer is old news, and the term is over.
            if not term.may_act(self._clock.monotonic()):
                self._end("expired")
                return 0.0
            self._term = self._begin(term.number, attempted_at, seconds)
            return self._until_renewal()
        self._end("lost")
        return 0.0

    def _until_renewal(self) -> float:
        """Seconds until a renewal is due, moved so that its answer tells most of the service's clock.

        A new leader renews about once a second until it knows that clock well: each answer halves what is
        not known. From then on it is kept sharp by renewals that are made anyway.
        """
        assert self._term is not None
        now = self._clock.monotonic()
        after = self._term.renew_at - 0.5
        if self._quick_renewals and (self._clock.uncertainty or 0.0) > _SHARP_SECONDS:
            self._quick_renewals -= 1
            after = now + _QUICK_SECONDS
        return max(0.0, self._clock.good_probe(max(now, after)) - now)

    def _set(self, term: Term | None) -> None:
        self._term = term
        ended, self._changed = self._changed, asyncio.Event()
        ended.set()

    def _end(self, reason: str) -> None:
        assert self._term is not None
        number = self._term.number
        self._set(None)
        self._events.emit(TermLost(number, reason))

    async def _resign(self) -> None:
        held, self._term = self._term, None
        if held is not None:
            self._set(None)
            self._events.emit(TermEnded(held.number))
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._lease.release()
        except (TimeoutError, StorageError) as error:
            self._events.emit(LeaseFailed(f"could not give the lease back: {error or 'no answer'}", 1))
        else:
            if held is not None:
                self._events.emit(LeaseReleased(held.number))
