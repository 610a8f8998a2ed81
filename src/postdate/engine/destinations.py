"""Whether destinations are there: asked of the service once for many messages."""

import asyncio
from collections.abc import Collection
from difflib import get_close_matches
from weakref import WeakValueDictionary

from postdate.clock import Clock
from postdate.concurrency import for_each
from postdate.errors import DestinationNotFound, PostdateError
from postdate.model.names import destination as parse_destination
from postdate.ports import QueueSender

#: A queue that was seen is not asked for again for so long. "Not there" is never remembered.
_SEEN_SECONDS = 60.0
#: Destinations asked for at once.
_AT_ONCE = 16


class Destinations:
    """Refuses destinations whose queue is not there."""

    def __init__(self, sender: QueueSender, clock: Clock) -> None:
        self._sender = sender
        self._clock = clock
        self._seen: dict[str, float] = {}
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def check(self, destination: str) -> None:
        """Refuse a destination whose queue is not there, with near names that are.

        Raises:
            DestinationNotFound: it is not there now.
        """
        for error in (await self.refused([destination])).values():
            raise error

    async def refused(self, destinations: Collection[str]) -> dict[str, PostdateError]:
        """Those of the destinations that can't be used, each with its reason."""
        refused: dict[str, PostdateError] = {}
        missing: list[str] = []

        async def ask(destination: str) -> None:
            try:
                if not await self._is_there(destination):
                    missing.append(destination)
            except PostdateError as error:
                refused[destination] = error

        unknown = (one for one in dict.fromkeys(destinations) if not self._was_seen(one))
        await for_each(unknown, _AT_ONCE, ask)
        names: dict[str, list[str]] = {}
        for destination in missing:
            alias = parse_destination(destination).alias
            try:
                if alias not in names:
                    names[alias] = await self._sender.names(alias)
                refused[destination] = DestinationNotFound(destination, _near(destination, names[alias]))
            except PostdateError as error:
                refused[destination] = error
        return refused

    def _was_seen(self, destination: str) -> bool:
        return self._clock.monotonic() < self._seen.get(destination, 0.0)

    async def _is_there(self, destination: str) -> bool:
        # Whoever else wants to know waits for the same answer.
        async with self._asking.setdefault(destination, asyncio.Lock()):
            if self._was_seen(destination):
                return True
            now = self._clock.monotonic()
            there = await self._sender.exists(destination)
            if there:
                self._seen[destination] = now + _SEEN_SECONDS
            return there


def _near(destination: str, names: list[str]) -> list[str]:
    """Names that look like it, as destinations."""
    address = parse_destination(destination)
    near = get_close_matches(address.queue, names, n=3, cutoff=0.5)
    return [f"{name}@{address.alias}" if address.alias else name for name in near]
