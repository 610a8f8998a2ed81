"""Time that a test moves by hand."""

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

#: Turns of the loop that count as quiet where the loop can't be asked.
_TURNS = 500


class VirtualClock:
    """A clock that stands still until `advance` is called; sleepers wake in order.

    With the memory backend a month of delay is tested in a millisecond:

        clock = VirtualClock()
        async with Endpoint("Orders", backend="memory", clock=clock) as endpoint: ...
            await clock.advance(timedelta(days=30))
    """

    def __init__(self, start: datetime = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._advancing = 0

    def now(self) -> datetime:
        """The instant that was set."""
        return self._now

    def latest(self) -> datetime:
        """The same as `now()`."""
        return self._now

    @property
    def uncertainty(self) -> float | None:
        """Zero."""
        return 0.0

    def good_probe(self, after: float) -> float:
        """Any instant is as good."""
        return after

    def monotonic(self) -> float:
        """Grows with `advance` only."""
        return self._monotonic

    def step(self, by: timedelta) -> None:
        """Move the wall clock alone, as an administrator would; nobody wakes."""
        self._now += by

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has passed so many seconds."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        await future

    async def pause(self, seconds: float) -> None:
        """Wait, if somebody lets time pass right now; who calls from a standing test would wait for ever."""
        if self._advancing:
            await self.sleep(seconds)

    async def advance(self, by: timedelta | float) -> None:
        """Let time pass: everything that is ready runs first, then each sleeper at its instant."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        target = self._monotonic + seconds
        self._advancing += 1
        try:
            await settle()
            while self._sleepers and self._sleepers[0][0] <= target:
                at, _, future = heapq.heappop(self._sleepers)
                if future.done():  # cancelled
                    continue
                self._set(max(at, self._monotonic))
                future.set_result(None)
                await settle()
            self._set(target)
            await settle()
        finally:
            self._advancing -= 1

    def _set(self, monotonic: float) -> None:
        self._now += timedelta(seconds=monotonic - self._monotonic)
        self._monotonic = monotonic


async def settle() -> None:
    """Give everybody turns until nobody has anything left to do but wait."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    if ready is None:  # not asyncio's own loop
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        return
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - it waits for the loop itself, which sets no event
        await asyncio.sleep(0)
