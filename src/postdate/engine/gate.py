"""How many sends run at once: as many as the service takes without making them wait."""

import asyncio
from statistics import median

from postdate.clock import Clock
from postdate.events import Events, Throttled

#: Sends that run at once until the service's pace is known.
_START = 16
#: Times of sends that are looked at together, at least.
_WINDOW = 32
#: A median of so many times the best one means that the service, or we, only queue more.
_TOLERANCE = 2.0
#: Seconds by which a median may exceed the best whatever the share: clocks and event loops are no better.
_NOISE_SECONDS = 0.005
#: The best median grows by this with each window, so that one lucky moment is forgotten.
_AGEING = 1.0005


class Gate:
    """A limit that grows one by one while latency holds, and halves when the service is busy."""

    def __init__(self, maximum: int, events: Events, clock: Clock) -> None:
        self._maximum = maximum
        self._limit = min(maximum, _START)
        self._events = events
        self._clock = clock
        self._inside = 0
        self._old_news = 0
        self._left = asyncio.Event()
        self._seconds: list[float] = []
        self._best = float("inf")

    @property
    def limit(self) -> int:
        """Sends that may run at once now."""
        return self._limit

    async def enter(self) -> float:
        """Wait for a turn; the monotonic instant at which it began."""
        while self._inside >= self._limit:
            self._left.clear()
            await self._left.wait()
        self._inside += 1
        return self._clock.monotonic()

    def leave(self) -> None:
        """Give the turn back."""
        self._inside -= 1
        self._old_news = max(0, self._old_news - 1)
        self._left.set()

    def succeeded(self, began: float) -> None:
        """A send that began at this monotonic instant went through."""
        self._seconds.append(self._clock.monotonic() - began)
        if len(self._seconds) < max(_WINDOW, self._limit):
            return
        # The median: a few wait on purpose, to be punctual.
        typical = median(self._seconds)
        self._seconds.clear()
        self._best = min(self._best * _AGEING, typical)
        if typical <= max(self._best * _TOLERANCE, self._best + _NOISE_SECONDS):
            self._limit = min(self._limit + 1, self._maximum)

    def throttled(self, error: Exception) -> None:
        """The service was busy. Sends that were under way at the last halving tell nothing new."""
        if self._old_news:
            return
        self._old_news = self._inside
        self._seconds.clear()
        self._best = float("inf")  # what it was before may never come again
        lower = max(1, self._limit // 2)
        if lower < self._limit:
            self._limit = lower
            self._events.emit(Throttled(lower, str(error)))
