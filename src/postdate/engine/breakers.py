"""The endpoint's breakers: each watches one part of the engine, and together they say what is critical.

| Breaker | Failure | Success |
| --- | --- | --- |
| store | the table did not take new rows | it took one |
| fetch | due rows could not be read | they were read to the end |
| dispatch | our account took no message, or rows were not removed | the row of a sent message is removed |
| recovery | the error queue refused a message, or a back-off was not written | it counts failures |
| lease | the lease was asked for, and no answer came | an answer, whoever leads |
| receive | the endpoint's queue could not be read | it was read |

Two more tell what is critical by themselves (`Breakers.critical`): the timeout manager of older endpoints
(`legacy.outage`), and handlers that hang in all places (`engine.stuck`).

A failure of one message (its queue is missing, it is too large) is none of these: it arms nothing. Who
watches calls `failed` and `succeeded`, nothing else; pauses are their own affair.

What is critical is told to `on_critical_error`. Where there is none, or it raises, whoever serves stops
cleanly and raises `CriticalFailure`, so that the process ends and its platform starts it anew.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from postdate.clock import Clock
from postdate.core.breaker import BreakerState, Decision, OverTimeBreaker, RateBreaker
from postdate.engine.together import Run
from postdate.errors import CriticalFailure, StorageError, UsageError
from postdate.events import BreakerArmed, BreakerDisarmed, BreakerTriggered, Events
from postdate.model.error_text import line_of
from postdate.settings.breakers import BreakerSettings

_log = logging.getLogger("postdate")
#: Seconds that two tries may be apart beyond window and back-off: calls take their time too.
_SPARE_SECONDS = 30.0
#: Added to a pause that ends with the window, so that the next try surely comes after its end.
_TICK_SECONDS = 0.001

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CriticalError:
    """What `on_critical_error` is told: a part of the endpoint has failed for too long."""

    #: The breaker's name: store, fetch, dispatch, recovery, lease, receive, or that of another part.
    breaker: str
    #: What has failed, in words.
    text: str
    #: The last failure.
    error: Exception
    #: When the failures began.
    since: datetime

    @property
    def reason(self) -> str:
        """All of it in one line, with the way out."""
        since = self.since.isoformat(timespec="seconds")
        return f"{self.text}, since {since}: {self.error}; `postdate doctor` looks for the cause"


OnCriticalError = Callable[[CriticalError], Awaitable[None] | None]


class Breaker:
    """Watches one part."""

    def __init__(self, name: str, text: str, decision: Decision, owner: "Breakers") -> None:
        self.name = name
        self._text = text
        self._decision = decision
        self._owner = owner

    @property
    def triggered(self) -> bool:
        """Whether it is critical, and was not well since."""
        return self._decision.state is BreakerState.TRIGGERED

    def failed(self, error: Exception) -> None:
        """It failed. A `UsageError` says nothing about the service, and does not count."""
        if isinstance(error, UsageError):
            return
        before, clock = self._decision.state, self._owner.clock
        now = clock.monotonic()
        self._decision.failed(now)
        if before is BreakerState.DISARMED:
            self._owner.events.emit(BreakerArmed(self.name, line_of(error)))
        if self.triggered and before is not BreakerState.TRIGGERED:
            since = clock.now() - timedelta(seconds=now - self._decision.began_at)
            self._owner.critical(self.name, self._text, error, since)

    def succeeded(self) -> None:
        """It went through."""
        before = self._decision.state
        if before is BreakerState.DISARMED:
            return
        self._decision.succeeded(self._owner.clock.monotonic())
        if self._decision.state is BreakerState.DISARMED:
            self._owner.events.emit(BreakerDisarmed(self.name, before is BreakerState.TRIGGERED))

    async def around(self, answer: Awaitable[T]) -> T:
        """What a call answers, which is a success; a `StorageError` is a failure."""
        try:
            result = await answer
        except StorageError as error:
            self.failed(error)
            raise
        self.succeeded()
        return result

    def until_decision(self, pause: float) -> float:
        """A pause in seconds, cut where the window ends meanwhile, so that the next try decides."""
        decides_at = self._decision.decides_at
        if decides_at is None:
            return pause
        left = decides_at - self._owner.clock.monotonic()
        return min(pause, left + _TICK_SECONDS) if left > 0 else pause


@dataclass(eq=False, slots=True)
class _Serving:
    """Somebody who serves, and has to end when something is critical."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    failure: CriticalError | None = None


class Breakers:
    """All breakers of one endpoint, and what happens when one triggers."""

    def __init__(
        self,
        settings: BreakerSettings,
        clock: Clock,
        events: Events,
        *,
        longest_back_off: timedelta,
        on_critical_error: OnCriticalError | None = None,
    ) -> None:
        self.clock = clock
        self.events = events
        self._on_critical_error = on_critical_error
        self._serving: set[_Serving] = set()
        self._calls: set[asyncio.Task[None]] = set()

        def over_time(name: str, text: str, window: timedelta) -> Breaker:
            window_s = window.total_seconds()
            silence_s = window_s + longest_back_off.total_seconds() + _SPARE_SECONDS
            return Breaker(name, text, OverTimeBreaker(window_s, silence_s), self)

        store = settings.time_to_trigger_store_circuit_breaker
        fetch = settings.time_to_trigger_fetch_circuit_breaker
        dispatch = settings.time_to_trigger_dispatch_circuit_breaker
        self.store = over_time("store", "Failed to store delayed message", store)
        self.fetch = over_time("fetch", "Failed to fetch due delayed messages from the storage", fetch)
        self.dispatch = over_time("dispatch", "Failed to dispatch delayed messages to destination", dispatch)
        self.recovery = Breaker(
            "recovery",
            "Failed to execute error handling for delayed message forwarding",
            RateBreaker(settings.maximum_recovery_failures_per_second),
            self,
        )
        # Without an answer nobody leads, and nobody who could fetch tries to.
        self.lease = over_time("lease", "Failed to ask for the lease that elects the leader", fetch)
        self.receive = over_time("receive", "Failed to receive messages from the endpoint's queue", fetch)

    def critical(self, name: str, text: str, error: Exception, since: datetime | None = None) -> None:
        """Tell that something is critical, once until it is well again.

        Args:
            name: of the part that failed.
            text: what it failed to do.
            error: its last failure.
            since: when its failures began; default: now.
        """
        record = CriticalError(name, text, error, since or self.clock.now())
        self.events.emit(BreakerTriggered(name, text, line_of(error), record.since))
        if self._on_critical_error is None:
            self._stop(record)
            return
        task = asyncio.create_task(
            self._call(self._on_critical_error, record), name="postdate-on-critical-error"
        )
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def watch(self, serve: Run, stop: asyncio.Event | None = None) -> None:
        """Serve until `stop` is set; where something is critical, stop cleanly before.

        Raises:
            CriticalFailure: something was critical, and `on_critical_error` did not take care of it.
        """
        serving = _Serving()

        async def pass_on(asked: asyncio.Event) -> None:
            await asked.wait()
            serving.stopping.set()

        passing = None if stop is None else asyncio.create_task(pass_on(stop), name="postdate-pass-on")
        self._serving.add(serving)
        try:
            await serve(serving.stopping)
        finally:
            self._serving.discard(serving)
            if passing is not None:
                passing.cancel()
        if serving.failure is not None:
            raise CriticalFailure(serving.failure.reason) from serving.failure.error

    async def close(self) -> None:
        """End what `on_critical_error` is still doing."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _call(self, callback: OnCriticalError, record: CriticalError) -> None:
        try:
            answer = callback(record)
            if inspect.isawaitable(answer):
                await answer
        except Exception:  # noqa: BLE001 - whatever it raises, somebody has to act
            _log.exception("on_critical_error %r failed", callback)
            self._stop(record)

    def _stop(self, record: CriticalError) -> None:
        for serving in self._serving:
            if not serving.stopping.is_set():
                serving.failure = record
                serving.stopping.set()
