"""A real consumer: what it receives, and when."""

import asyncio
from itertools import pairwise

from postdate import Endpoint
from postdate.bench.observe import number_in
from postdate.clock import SystemClock

_POLL_SECONDS = 0.005
#: Longer than any run: what was received once does not come back, and needs no delete.
_HIDDEN_SECONDS = 3_600


class Consumer:
    """Polls a queue nearly without rest."""

    def __init__(self, endpoint: Endpoint, queue: str) -> None:
        self._endpoint = endpoint
        self._queue = queue
        self._clock = SystemClock()
        #: Monotonic seconds before and after the receive that brought each message first, by its number.
        self.first: dict[int, tuple[float, float]] = {}
        #: Receives beyond the first of a message.
        self.duplicated = 0

    @property
    def longest_gap_s(self) -> float:
        """Between two messages that came for the first time."""
        instants = sorted(received for _, received in self.first.values())
        return max((b - a for a, b in pairwise(instants)), default=0.0)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        receiver = self._endpoint.parts.backend.receiver
        while not stop.is_set():
            sent = self._clock.monotonic()
            page = await receiver.receive(self._queue, count=32, visibility_s=_HIDDEN_SECONDS)
            received = self._clock.monotonic()
            for message in page:
                number = number_in(message.text)
                self.duplicated += number in self.first
                self.first.setdefault(number, (sent, received))
            if not page:
                await self._clock.sleep(_POLL_SECONDS)

    async def until(self, count: int, *, within_s: float) -> bool:
        """Wait until so many messages have come; False: they did not in time."""
        end = self._clock.monotonic() + within_s
        while len(self.first) < count:
            if self._clock.monotonic() > end:
                return False
            await self._clock.sleep(_POLL_SECONDS)
        return True
