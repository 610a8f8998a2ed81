"""How many sends run at once: as many as the service takes."""

import asyncio

from postdate.events import Events, Throttled

#: Sends that must succeed in a row before one more is let in.
_PATIENCE = 50


class Gate:
    """A limit that halves when the service is busy and grows again, one by one, while it is not."""

    def __init__(self, maximum: int, events: Events) -> None:
        self._maximum = maximum
        self._limit = maximum
        self._events = events
        self._inside = 0
        self._succeeded = 0
        self._moved = asyncio.Condition()

    @property
    def limit(self) -> int:
        """Sends that may run at once now."""
        return self._limit

    async def enter(self) -> None:
        """Wait for a turn."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._inside < self._limit)
            self._inside += 1

    async def leave(self) -> None:
        """Give the turn back."""
        async with self._moved:
            self._inside -= 1
            self._moved.notify_all()

    def succeeded(self) -> None:
        """A send went through."""
        self._succeeded += 1
        if self._succeeded >= _PATIENCE and self._limit < self._maximum:
            self._limit += 1
            self._succeeded = 0

    def throttled(self, error: Exception) -> None:
        """The service was busy."""
        self._succeeded = 0
        lower = max(1, self._limit // 2)
        if lower < self._limit:
            self._limit = lower
            self._events.emit(Throttled(lower, str(error)))
