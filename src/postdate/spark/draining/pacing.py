"""Destinations that take only so many messages per second: their rows wait here, those of others pass by.

Rows are held back before the engine sees them, so that no send waits in the place of another one.
"""

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing

from postdate.clock import Clock
from postdate.errors import InvalidDestination
from postdate.model.delayed import DelayedRow, Row
from postdate.model.names import dispatch_address

#: Seconds between two looks at what may go.
TICK_SECONDS = 0.1
#: Rows held back; with more nothing is read.
HELD_ROWS = 1_000


class Pace:
    """How many messages may have gone by now: none saved up, but what one tick would take."""

    def __init__(self, rate: float, now: float) -> None:
        """From this monotonic instant on, `rate` messages per second."""
        self._rate = rate
        self._most = max(1.0, rate * TICK_SECONDS)
        self._allowed = 0.0
        self._seen_at = now

    def take(self, wanted: int, now: float) -> int:
        """How many of those wanted may go now; they count as gone."""
        self._allowed = min(self._most, self._allowed + (now - self._seen_at) * self._rate)
        self._seen_at = now
        taken = min(wanted, int(self._allowed))
        self._allowed -= taken
        return taken


class Pacer:
    """The paces of a task's destinations."""

    def __init__(self, rates: Mapping[str, float], clock: Clock) -> None:
        """Messages per second by destination, in lower case."""
        self._clock = clock
        self._paces = {name: Pace(rate, clock.monotonic()) for name, rate in rates.items()}

    async def paced(
        self, pages: AsyncIterator[Sequence[Row]], ended: Callable[[], bool]
    ) -> AsyncGenerator[Sequence[Row]]:
        """The same rows, in due order for each destination, none faster than it may go; until `ended`."""
        held: defaultdict[str, deque[Row]] = defaultdict(deque)
        async for page in pages:
            free = []
            for row in page:
                name = destination_of(row)
                if name in self._paces:
                    held[name].append(row)
                else:
                    free.append(row)
            yield free
            async with aclosing(self._until(held, HELD_ROWS, ended)) as going:
                async for rows in going:
                    yield rows
            if ended():
                return
        async with aclosing(self._until(held, 0, ended)) as going:
            async for rows in going:
                yield rows

    async def _until(
        self, held: Mapping[str, deque[Row]], most: int, ended: Callable[[], bool]
    ) -> AsyncGenerator[Sequence[Row]]:
        """What may go, until at most so many are held."""
        while not ended():
            rows = [row for name, waiting in held.items() for row in self._taken(name, waiting)]
            if rows:
                yield rows
            if sum(map(len, held.values())) <= most:
                return
            await self._clock.sleep(TICK_SECONDS)

    def _taken(self, name: str, waiting: deque[Row]) -> list[Row]:
        count = self._paces[name].take(len(waiting), self._clock.monotonic())
        return [waiting.popleft() for _ in range(count)]


def destination_of(row: Row) -> str:
    """The queue that a row is for, in lower case; empty: it tells none."""
    if not isinstance(row, DelayedRow):
        return ""
    try:
        return dispatch_address(row.delayed.destination).lower()
    except InvalidDestination:
        return ""
