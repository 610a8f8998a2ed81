"""What the service is documented to take, what is assumed beyond that, and the buckets that count it.

Documented (learn.microsoft.com/azure/storage, pages "Scalability and performance targets" for Table and for
Queue Storage): a table partition takes up to 2,000 entities a second, a queue up to 2,000 messages a second,
an account 20,000 requests a second, each of 1 KiB at most; beyond that the service answers 503 ServerBusy.

Not documented, so assumed here: how long more is tolerated (`burst_s`); that each entity of a transaction and
each row that a query returns is an entity, that a transaction is one request, and that a consumer's receive
and delete of a message count at its queue like its put; that a refused request costs nothing.
"""

from dataclasses import dataclass, field
from math import exp, inf, log
from random import Random

#: Of the standard normal distribution.
_P99 = 2.3263478740408408


@dataclass(frozen=True)
class Limits:
    """What one storage account takes; infinite: not limited."""

    partition_entities_s: float = 2_000.0
    queue_messages_s: float = 2_000.0
    account_requests_s: float = 20_000.0
    #: Seconds' worth of a limit that an unused bucket has saved up.
    burst_s: float = 1.0
    #: What a row that a query returns counts, next to 1 for a row that is written or deleted.
    read_weight: float = 1.0
    #: Hash buckets that each hour's rows are spread over: what if the layout had them? 1: as it is.
    hash_buckets: int = 1


class Bucket:
    """A token bucket that lends: a request is accepted while anything is left, whatever it costs.

    So in any stretch of t seconds no more is accepted than `burst + rate * t`, and the last request.
    """

    def __init__(self, rate: float, burst_s: float, now: float, *, full: bool = True) -> None:
        self._rate = rate
        self._capacity = rate * burst_s
        self._level = self._capacity if full else 1.0
        self._at = now

    def open(self, now: float) -> bool:
        """Whether a request is accepted now."""
        if self._rate == inf:
            return True
        self._level = min(self._capacity, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level > 0.0

    def take(self, tokens: float) -> None:
        """Count an accepted request."""
        if self._rate != inf:
            self._level -= tokens


@dataclass(frozen=True)
class Spread:
    """A log-normal time, by its median and its 99th percentile in seconds, and more for each item."""

    p50: float
    p99: float
    per_item: float = 0.0

    def draw(self, random: Random, items: int = 0) -> float:
        """One time, for so many rows."""
        sigma = log(self.p99 / self.p50) / _P99
        return (self.p50 + self.per_item * items) * exp(sigma * random.gauss(0.0, 1.0))


@dataclass(frozen=True)
class Latencies:
    """How long the service takes, by operation. Nobody documents them: assumed, for one region."""

    put_message: Spread = Spread(0.006, 0.040)
    #: An entity-group transaction.
    batch: Spread = Spread(0.010, 0.060, per_item=0.000_2)
    query: Spread = Spread(0.008, 0.050, per_item=0.000_03)
    #: One row that is written or read.
    entity: Spread = Spread(0.006, 0.040)
    lease: Spread = Spread(0.008, 0.050)
    #: The answer 503.
    busy: Spread = Spread(0.005, 0.020)
    #: All of them by this factor.
    factor: float = 1.0


@dataclass(frozen=True)
class Client:
    """Our own processor time, in seconds; a process has one core."""

    #: For each message handed over: all that the leader does for it.
    per_message_s: float = 0.000_35


@dataclass(frozen=True)
class Service:
    """All assumptions of one run."""

    limits: Limits = field(default_factory=Limits)
    latencies: Latencies = field(default_factory=Latencies)
    client: Client = field(default_factory=Client)
