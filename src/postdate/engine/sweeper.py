"""Cleaning up what is past its age, large bodies first: beside the deliveries, which never wait for it."""

import asyncio
from collections.abc import Awaitable, Callable

from postdate.clock import Clock
from postdate.engine.elector import Elector
from postdate.errors import PostdateError
from postdate.events import Events, PassFailed, PayloadsSwept
from postdate.ports import PayloadStore

#: Seconds between two clean-ups of one process.
_PAUSE_SECONDS = 3600.0
#: Seconds that a clean-up may add to a single pass; what is left waits for the next one.
_LIMIT_SECONDS = 10.0


class Sweeper:
    """Removes what is past its age, once an hour and process."""

    def __init__(self, payloads: PayloadStore, clock: Clock, events: Events) -> None:
        self._payloads = payloads
        self._clock = clock
        self._events = events
        self._swept_at: float | None = None
        self._others: dict[str, Callable[[], Awaitable[object]]] = {}

    def also(self, name: str, clean_up: Callable[[], Awaitable[object]]) -> None:
        """Let something else be cleaned up as often, once for each name; it raises nothing."""
        self._others[name] = clean_up

    async def run(self, elector: Elector) -> None:
        """Sweep while this process leads, until cancelled: what is cut short is done another time."""
        while True:
            changed = elector.changed
            if elector.term is None:
                await changed.wait()
                continue
            await self._sweep()
            await self._clock.sleep(_PAUSE_SECONDS)

    async def after_pass(self) -> None:
        """Sweep if an hour has passed, for a bounded time."""
        try:
            async with asyncio.timeout(_LIMIT_SECONDS):
                await self._sweep()
        except TimeoutError:
            self._events.emit(PassFailed("clean-up of large bodies: not done in time", _PAUSE_SECONDS))

    async def _sweep(self) -> None:
        now = self._clock.monotonic()
        if self._swept_at is not None and now - self._swept_at < _PAUSE_SECONDS:
            return
        self._swept_at = now
        try:
            count = await self._payloads.sweep(self._clock.now())
        except PostdateError as error:
            self._events.emit(PassFailed(f"clean-up of large bodies: {error}", _PAUSE_SECONDS))
        else:
            if count:
                self._events.emit(PayloadsSwept(count))
        for clean_up in list(self._others.values()):
            await clean_up()
