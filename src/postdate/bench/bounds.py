"""When a message became receivable, as the service itself says it: bounds, since its answers are cut.

A put is handled at some instant between the request's leaving and the answer's arrival. The answer stamps
that instant, cut to whole seconds, and the message is receivable exactly so many seconds after it as the
request asked to hide it. So three things bound the instant: when the request left and when the answer came
(by the service's clock, which is known to some milliseconds), and the second of the stamp.

Lateness is counted to the upper bound: where the truth is not known, it is taken to be late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from postdate.bench.figures import Lateness
from postdate.core.clock_offset import OffsetInterval, observe


@dataclass(frozen=True, slots=True)
class Observed:
    """One answered put: local monotonic seconds around it, and what was asked and stamped."""

    sent: float
    received: float
    #: Whole seconds since the epoch, by the service's clock.
    stamped: float
    hidden_s: int
    #: Which message of the workload.
    number: int


@dataclass(frozen=True, slots=True)
class Span:
    """An instant by the service's clock, in seconds since the epoch: from `low` to `high`."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """What is not known of it, in seconds."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Punctuality:
    """How late the messages of a workload were, and how well that is known."""

    #: By the upper bounds.
    lateness: Lateness
    #: Between the bounds.
    width_p50_s: float
    width_p99_s: float
    #: Messages whose lower bound is before their due time; early for sure are those of `lateness`.
    maybe_early: int
    #: Puts whose stamp is outside of what the clock allows: then the bounds are the wider of both.
    contradictions: int


def receivable(put: Observed, known: OffsetInterval) -> Span:
    """When the message of a put could be received; inverted (`low > high`) if clock and stamp contradict."""
    low = max(put.sent + known.low, put.stamped)
    high = min(put.received + known.high, put.stamped + 1.0)
    return Span(low + put.hidden_s, high + put.hidden_s)


def learned(known: OffsetInterval | None, put: Observed) -> OffsetInterval:
    """The service's clock after one more stamp."""
    return observe(known, date=put.stamped, sent=put.sent, received=put.received)


@dataclass(frozen=True, slots=True)
class Appearances:
    """When each message of a workload could first be received."""

    #: By the message's number.
    first: dict[int, Span]
    #: Puts beyond the first of a message.
    duplicated: int
    contradictions: int


def appearances(puts: Iterable[Observed], known: OffsetInterval | None) -> Appearances:
    """When each message could first be received.

    Args:
        puts: of one workload, in any order.
        known: the service's clock before the first put; each put tells a little more.
    """
    first: dict[int, Span] = {}
    duplicated = contradictions = 0
    for put in sorted(puts, key=lambda put: put.received):
        known = learned(known, put)
        span = receivable(put, known)
        if span.low > span.high:
            contradictions += 1
            span = Span(span.high, span.low)
        seen = first.get(put.number)
        duplicated += seen is not None
        if seen is None or span.high < seen.high:
            first[put.number] = span
    return Appearances(first, duplicated, contradictions)


def judge(puts: Iterable[Observed], due: Sequence[float], known: OffsetInterval | None) -> Punctuality:
    """How late each message was; a message that was put twice counts by its first appearance.

    Args:
        puts: as `appearances`.
        due: due time of each message, by its number, in seconds since the epoch.
        known: as `appearances`.
    """
    found = appearances(puts, known)
    late = [span.high - due[number] for number, span in found.first.items()]
    widths = sorted(span.width for span in found.first.values())
    return Punctuality(
        lateness=Lateness.of(late, expected=len(due), duplicated=found.duplicated),
        width_p50_s=_rank(widths, 0.50),
        width_p99_s=_rank(widths, 0.99),
        maybe_early=sum(span.low < due[number] for number, span in found.first.items()),
        contradictions=found.contradictions,
    )


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
