"""What was measured of one contender: the same figures for each, whatever it delivers with."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Self, TypedDict


@dataclass(frozen=True)
class Lateness:
    """How late the messages of one workload were, in seconds after their due times.

    Where nothing arrived, the percentiles are infinite and the curve is empty.
    """

    #: Messages that arrived, each counted once.
    count: int
    #: Messages that had not arrived when the contender was no longer waited for.
    lost: int
    #: Arrivals beyond the first of a message.
    duplicated: int
    #: Messages that arrived before they were due.
    early: int
    p50_s: float
    p99_s: float
    max_s: float
    #: The percentiles 0 to 100, each a value that occurred (nearest rank).
    curve: list[float]

    @classmethod
    def of(cls, late: Iterable[float], *, expected: int, duplicated: int = 0) -> Self:
        """The figures of one value for each message that arrived, of `expected` that should have."""
        values = sorted(late)
        count = len(values)
        if count > expected:
            raise ValueError(f"{count} messages arrived, and only {expected} were expected")
        curve = [values[max(0, math.ceil(count * percent / 100) - 1)] for percent in range(101) if values]
        return cls(
            count=count,
            lost=expected - count,
            duplicated=duplicated,
            early=sum(value < 0 for value in values),
            p50_s=curve[50] if curve else math.inf,
            p99_s=curve[99] if curve else math.inf,
            max_s=curve[100] if curve else math.inf,
            curve=curve,
        )


class Drain(TypedDict):
    """Messages that were due already, delivered as fast as the contender can."""

    messages: int
    #: From the first delivery to the last.
    seconds: float
    per_s: float
    #: Microseconds per message, of all of the contender's own processes.
    client_cpu_us: float
    #: The same of the server that it stands on.
    server_cpu_us: float
    #: Requests, commands or statements that the server was sent, for each message.
    requests_per_message: float


class IdleHour(TypedDict):
    """What an hour without messages costs."""

    requests: float
    #: How long it was measured, and what was made of it.
    how: str


class Memory(TypedDict):
    """Resident memory while messages wait whose time is far away."""

    waiting: int
    client_mb: float
    server_mb: float


class Kill(TypedDict):
    """The active process killed (SIGKILL) among messages that are due."""

    scheduled: int
    #: Messages that did not arrive, and that nothing holds any more.
    lost: int
    #: Messages that did not arrive while they were waited for, and are still held: not lost for ever.
    outstanding: int
    #: Arrivals beyond the first of a message.
    duplicated: int
    #: Between two deliveries.
    longest_gap_s: float
    #: Who took over, and how long was waited.
    how: str


@dataclass
class Figures:
    """One contender's figures; None where a workload was not measured."""

    name: str
    version: str
    #: What a reader must know to judge them: settings, concurrency, what was measured shorter.
    notes: list[str] = field(default_factory=list)
    drain: Drain | None = None
    trickle: Lateness | None = None
    burst: Lateness | None = None
    after_idle: Lateness | None = None
    idle_hour: IdleHour | None = None
    memory: Memory | None = None
    kill: Kill | None = None
    #: What went wrong, one line for each workload; whoever runs it must then fail at the end.
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON can hold them; what is infinite becomes null."""
        return {name: finite(value) for name, value in asdict(self).items()}


def finite(value: Any) -> Any:
    """The value as JSON can hold it: numbers that are infinite, or none, become null."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
