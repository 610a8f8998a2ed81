"""A storage account in virtual time: what it takes, how long that takes, and what it refuses."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import TypeAlias

from bench.simulator.limits import Bucket, Limits, Service, Spread
from postdate.backends.memory import MemoryAccount
from postdate.errors import ServiceBusy
from postdate.model.requests import Outcome, RequestCounter, RequestKind
from postdate.testing.clock import VirtualClock

#: What a request needs at one place: `queue`, `partition` or `account`, whose, and how much.
Charge: TypeAlias = tuple[str, str, float]

_ONE_REQUEST: Charge = ("account", "", 1.0)


class Processor:
    """One core of one process: what it is asked to do, it does one after the other."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._free_at = 0.0
        self.busy_s = 0.0

    def occupy(self, seconds: float) -> float:
        """Reserve so much time; seconds until it is done."""
        now = self._clock.monotonic()
        self._free_at = max(now, self._free_at) + seconds
        self.busy_s += seconds
        return self._free_at - now


class LimitedAccount:
    """What all processes of a simulation share: contents, limits, latencies, and chance.

    A request is on its way for half of its latency; there it is accepted and has its effect, or is refused;
    the answer takes the other half.
    """

    def __init__(self, service: Service, clock: VirtualClock, seed: int, *, saved_up: bool = True) -> None:
        self.service = service
        self.clock = clock
        self.memory = MemoryAccount()
        #: Requests by second, kind and outcome; and what was accepted by place and second.
        self.requests: Counter[tuple[int, str, Outcome]] = Counter()
        self.taken: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.refused_by: Counter[str] = Counter()
        self.in_flight = 0
        self.most_in_flight: Counter[int] = Counter()
        self._random = Random(seed)
        self._saved_up = saved_up
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def on_the_way(self, spread: Spread, items: int = 0) -> float:
        """Seconds for half of a round trip, by chance."""
        return spread.draw(self._random, items) * self.service.latencies.factor / 2

    async def admit(self, kind: RequestKind, charges: Iterable[Charge], counter: RequestCounter) -> None:
        """A request has arrived: count it.

        Raises:
            ServiceBusy: a limit is reached; some time later, as an answer takes.
        """
        now = self.clock.monotonic()
        wanted = [_ONE_REQUEST, *charges]
        for what, whose, _ in wanted:
            if not self._bucket(what, whose).open(now):
                self.refused_by[what] += 1
                self._count(kind, Outcome.THROTTLED, counter)
                await self.clock.sleep(self.on_the_way(self.service.latencies.busy))
                raise ServiceBusy(f"{kind}: the service answered 503 ServerBusy: {what} {whose}")
        for what, whose, tokens in wanted:
            self._bucket(what, whose).take(tokens)
            self.taken[what, whose][int(now)] += tokens
        self._count(kind, Outcome.OK, counter)

    def consume(self, queue: str, messages: int) -> int:
        """Receive and delete so many messages; how many of them the service takes now."""
        now = self.clock.monotonic()
        for done in range(messages):
            # 32 messages come in one request; each is deleted by one of its own.
            charges = (("account", "", 1.0 + 1 / 32), ("queue", queue, 2.0))
            if not all(self._bucket(what, whose).open(now) for what, whose, _ in charges):
                return done
            for what, whose, tokens in charges:
                self._bucket(what, whose).take(tokens)
                self.taken[what, whose][int(now)] += tokens
        return messages

    def change(self, limits: Limits) -> None:
        """Other limits from now on, with nothing saved up."""
        self.service = replace(self.service, limits=limits)
        self._saved_up = False
        self._buckets.clear()

    def _bucket(self, what: str, whose: str) -> Bucket:
        bucket = self._buckets.get((what, whose))
        if bucket is None:
            limits = self.service.limits
            rates: Mapping[str, float] = {
                "account": limits.account_requests_s,
                "queue": limits.queue_messages_s,
                "partition": limits.partition_entities_s,
            }
            bucket = Bucket(rates[what], limits.burst_s, self.clock.monotonic(), full=self._saved_up)
            self._buckets[what, whose] = bucket
        return bucket

    def _count(self, kind: RequestKind, outcome: Outcome, counter: RequestCounter) -> None:
        counter.add(kind, outcome)
        self.requests[int(self.clock.monotonic()), str(kind), outcome] += 1
