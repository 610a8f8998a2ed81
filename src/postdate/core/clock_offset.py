"""Where the storage service's clock stands, as an interval that is never wrong.

A response carries `Date`, cut to whole seconds. If the request left at local instant `sent` and the
answer was here at `received`, then the service's clock showed something in `[Date, Date + 1 s)` at an
instant in `[sent, received]`. So the offset (service minus local) lies in
`[Date - received, Date + 1 s - sent]`. Every response gives such an interval; the truth lies in all of
them, so their intersection shrinks to about the round-trip time after some twenty responses (measured:
1 response 1,008 ms, 10: 91 ms, 20: 27 ms wide).

`local` is the monotonic clock, so a step of the wall clock changes nothing. What remains is drift: the
interval is widened by `DRIFT` for each second since the last response (and a fresh one, at its upper end,
for the time that its answer may have been on the way), and when a new interval does not meet the old one
at all, the old one is thrown away.
"""

import math
from dataclasses import dataclass

#: Seconds of widening per second: twice the worst drift that a machine with a healthy crystal shows.
DRIFT = 100e-6


@dataclass(frozen=True, slots=True)
class OffsetInterval:
    """The offset (service minus local, in seconds) lies between `low` and `high`, as of `at` (local)."""

    low: float
    high: float
    at: float

    @property
    def uncertainty(self) -> float:
        """Width in seconds."""
        return self.high - self.low

    def aged(self, now: float) -> "OffsetInterval":
        """The interval as it must be trusted at local instant `now`."""
        slack = max(0.0, now - self.at) * DRIFT
        return OffsetInterval(self.low - slack, self.high + slack, max(now, self.at))


def good_probe(known: OffsetInterval, after: float) -> float:
    """The local instant, at or within a second after `after`, at which one call tells most.

    A `Date` tells on which side of a whole second the service was. Asked when the middle of the interval is
    at a whole second, the answer rules out one half of it, whatever it is.
    """
    middle = (known.low + known.high) / 2
    return math.ceil(after + middle) - middle


def observe(known: OffsetInterval | None, *, date: float, sent: float, received: float) -> OffsetInterval:
    """Narrow `known` by one response.

    Args:
        known: what was known before, or None.
        date: the `Date` header in seconds since the epoch, whole.
        sent: local monotonic seconds before the call.
        received: local monotonic seconds after it.
    """
    on_the_way = max(0.0, received - sent)
    fresh = OffsetInterval(date - received, date + 1.0 - sent + on_the_way * DRIFT, received)
    if known is None:
        return fresh
    old = known.aged(received)
    low, high = max(old.low, fresh.low), min(old.high, fresh.high)
    if low > high:
        return fresh
    return OffsetInterval(low, high, received)
