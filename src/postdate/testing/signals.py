"""Waiting for what happened, instead of sleeping and hoping."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from postdate.events import Event

E = TypeVar("E", bound=Event)


class EventLog:
    """An observer that keeps every event and lets a test wait for one.

    log = EventLog()
    async with Endpoint("Orders", observers=[log]) as endpoint: ...
        await log.wait(HandedOver, count=3)
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Hear an event."""
        self.events.append(event)
        self._changed.set()

    def of(self, kind: type[E]) -> list[E]:
        """All events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait(
        self,
        kind: type[E],
        *,
        count: int = 1,
        where: Callable[[E], bool] | None = None,
        within: float = 30.0,
    ) -> E:
        """Wait until `count` events of one kind were heard; the last of them.

        Args:
            kind: of event.
            count: how many, those from before the call included.
            where: only events for which this is true.
            within: real seconds; `TimeoutError` after them.
        """
        async with asyncio.timeout(within):
            while True:
                self._changed.clear()
                found = [e for e in self.of(kind) if where is None or where(e)]
                if len(found) >= count:
                    return found[count - 1]
                await self._changed.wait()
