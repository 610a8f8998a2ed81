"""The only place that asks what time it is.

Two questions, two clocks: `now()` is an aware UTC instant and decides what is due; `monotonic()` only
ever grows and measures how long something took, so leases and waits use it.
"""

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Protocol

from postdate.core.clock_offset import OffsetInterval, good_probe, observe

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# On Linux, CLOCK_MONOTONIC stands still while the machine is suspended, and the lease does not:
# CLOCK_BOOTTIME counts that time too.
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """What the engine needs from time; tests bring a virtual one (`postdate.testing.VirtualClock`)."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        ...

    def latest(self) -> datetime:
        """The latest that the current instant can be; the same as `now()` unless that is an estimate."""
        ...

    @property
    def uncertainty(self) -> float | None:
        """Seconds between `now()` and `latest()`; None: not known at all."""
        ...

    def good_probe(self, after: float) -> float:
        """The monotonic instant, from `after` on, at which a call to the service tells most of its clock."""
        ...

    def monotonic(self) -> float:
        """Seconds that never step back and count suspended time too."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; zero or less gives others a turn."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait for punctuality's sake: a clock that stands still may skip it."""
        ...


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """The machine's wall clock, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this module is the one place that may ask

    def latest(self) -> datetime:
        """The same as `now()`."""
        return self.now()

    @property
    def uncertainty(self) -> float | None:
        """Zero: it asks nobody."""
        return 0.0

    def good_probe(self, after: float) -> float:
        """Any instant is as good."""
        return after

    def monotonic(self) -> float:
        """Seconds since boot, suspended time included."""
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(max(0.0, seconds))

    async def pause(self, seconds: float) -> None:
        """The same as `sleep`."""
        await self.sleep(seconds)


class StorageClock:
    """The storage service's clock, estimated from the `Date` of responses that we get anyway.

    `now()` answers with the earliest instant that it can be over there, so that what looks due here is
    due there: never early. Before the first response it answers with the machine's clock.
    """

    def __init__(self, local: Clock) -> None:
        self._local = local
        self._known: OffsetInterval | None = None

    def now(self) -> datetime:
        """The earliest that the service's clock can show."""
        if self._known is None:
            return self._local.now()
        local = self._local.monotonic()
        return EPOCH + timedelta(seconds=local + self._known.aged(local).low)

    def latest(self) -> datetime:
        """The latest that the service's clock can show."""
        if self._known is None:
            return self._local.now()
        local = self._local.monotonic()
        return EPOCH + timedelta(seconds=local + self._known.aged(local).high)

    def monotonic(self) -> float:
        """The machine's monotonic clock."""
        return self._local.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the machine's clock."""
        await self._local.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        """Wait on the machine's clock."""
        await self._local.pause(seconds)

    def observe(self, date: datetime, *, sent: float, received: float) -> None:
        """Learn from one response: its `Date`, and the monotonic seconds around the call."""
        self._known = observe(self._known, date=(date - EPOCH).total_seconds(), sent=sent, received=received)

    @property
    def uncertainty(self) -> float | None:
        """Seconds between the earliest and the latest that it can be there; None before any response."""
        if self._known is None:
            return None
        return self._known.aged(self._local.monotonic()).uncertainty

    def good_probe(self, after: float) -> float:
        """When to make the next call, from the monotonic instant `after` on, to learn most from it."""
        return after if self._known is None else good_probe(self._known, after)

    @property
    def offset(self) -> float | None:
        """Service minus machine wall clock in seconds, the middle of what is possible; None if unknown."""
        if self._known is None:
            return None
        middle = self.now() + (self.latest() - self.now()) / 2
        return (middle - self._local.now()).total_seconds()


async def either(*work: Coroutine[object, object, object]) -> None:
    """Wait until the first has ended; the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_for(event: asyncio.Event, seconds: float, clock: Clock) -> bool:
    """Wait until `event` is set or `seconds` have passed on `clock`; True if it is set."""
    if not event.is_set() and seconds > 0:
        await either(event.wait(), clock.sleep(seconds))
    return event.is_set()
