"""When messages are known to become visible, so that an idle receiver looks in time."""

import heapq

#: Instants closer than so many seconds are one.
_GRAIN_SECONDS = 0.05
#: More than these are not remembered: with so much to come the receiver is not idle.
_LIMIT = 1_000


class Expected:
    """Monotonic instants to come."""

    def __init__(self) -> None:
        self._grains: list[int] = []
        self._known: set[int] = set()

    def add(self, at: float) -> None:
        """Remember an instant."""
        grain = int(at / _GRAIN_SECONDS) + 1  # not before
        if grain not in self._known and len(self._known) < _LIMIT:
            self._known.add(grain)
            heapq.heappush(self._grains, grain)

    def wait(self, now: float, *, at_most: float) -> float:
        """Seconds to wait: until the next instant, or `at_most`. Instants past are forgotten."""
        while self._grains and self._grains[0] * _GRAIN_SECONDS <= now:
            self._known.discard(heapq.heappop(self._grains))
        if not self._grains:
            return at_most
        return min(at_most, self._grains[0] * _GRAIN_SECONDS - now)
