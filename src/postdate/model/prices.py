"""What requests cost, by a table of list prices.

Azure prices operations in groups, its meters, for 10,000 requests. Every request that was authenticated is
billed, refused ones too, but not those that were throttled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from postdate.model.requests import Outcome, RequestKind

#: A meter that costs nothing, in every table.
FREE = "free"
_PER = 10_000


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount of money; and which operations it leaves out, since the table has no price for them."""

    amount: float
    currency: str
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices of one region and redundancy. `settings.prices` reads it from a file."""

    #: What these prices are and when they were read, for people.
    about: str
    currency: str
    #: The price of 10,000 requests, by meter.
    prices: Mapping[str, float]
    #: Each operation's meter.
    meters: Mapping[RequestKind, str] = field(default_factory=dict)

    def of(self, kind: RequestKind) -> float | None:
        """The price of one request; None: this table has none."""
        meter = self.meters.get(kind)
        if meter is None:
            return None
        return 0.0 if meter == FREE else self.prices[meter] / _PER

    def cost(self, requests: Mapping[RequestKind, float]) -> Cost:
        """What so many billed requests cost."""
        amount, unpriced = 0.0, []
        for kind, count in requests.items():
            price = self.of(kind)
            if price is None:
                unpriced.append(str(kind))
            else:
                amount += price * count
        return Cost(amount, self.currency, tuple(sorted(unpriced)))


def billed(counts: Mapping[str, Mapping[str, int]]) -> dict[RequestKind, int]:
    """The billed requests among those counted, by operation.

    Args:
        counts: by operation and outcome, as `model.requests.by_operation` has them.
    """
    requests = {
        RequestKind.parse(operation): sum(
            n for outcome, n in outcomes.items() if outcome != Outcome.THROTTLED
        )
        for operation, outcomes in counts.items()
    }
    return {kind: count for kind, count in requests.items() if count}
