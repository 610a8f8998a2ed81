"""Saying how many requests there were, and what they cost: now and then while serving, and at the end."""

from postdate.clock import Clock
from postdate.events import Event, Events, HandedOver, RequestsCounted
from postdate.model.prices import PriceTable, billed
from postdate.model.requests import Counts, RequestCounter, by_operation

#: Seconds between two records while serving.
_PAUSE_SECONDS = 300.0


class Accountant:
    """Tells of the requests since it told last. Hears of hand-overs as an observer."""

    def __init__(self, requests: RequestCounter, clock: Clock, events: Events, prices: PriceTable) -> None:
        self._requests = requests
        self._clock = clock
        self._events = events
        self._prices = prices
        self._told: Counts = {}
        self._told_at = clock.monotonic()
        self._handed_over = 0
        events.observe(self._hear)

    def _hear(self, event: Event) -> None:
        self._handed_over += isinstance(event, HandedOver)

    async def run(self) -> None:
        """Tell every five minutes, until cancelled."""
        while True:
            await self._clock.sleep(_PAUSE_SECONDS)
            self.tell()

    def tell(self) -> None:
        """Emit `RequestsCounted`, unless there was no request."""
        counts, now = self._requests.counts(), self._clock.monotonic()
        new = {key: count - self._told.get(key, 0) for key, count in counts.items()}
        new = {key: count for key, count in new.items() if count}
        if not new:
            return
        named = by_operation(new)
        cost = self._prices.cost(billed(named))
        record = RequestsCounted(
            covered_s=now - self._told_at,
            requests=sum(new.values()),
            counts=named,
            handed_over=self._handed_over,
            cost=cost.amount,
            currency=cost.currency,
            unpriced=cost.unpriced,
        )
        self._told, self._told_at, self._handed_over = counts, now, 0
        self._events.emit(record)
