"""What a drain is asked to do, and what of it each task is told. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from postdate.errors import UsageError
from postdate.model import names
from postdate.spark.ranges import KeyRange

#: Rows of one range: enough that opening a task costs little, few enough that all slots end together.
ROWS_PER_RANGE = 2_000
_MOST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """How to drain."""

    #: Ask a running leader to step aside, instead of waiting until it stops.
    take_over: bool = False
    #: Messages per second and destination, over all tasks together; others go as fast as they can.
    rates: Mapping[str, float] = field(default_factory=dict)
    #: About so many rows go to one task, or are one of its shares where a rate limits how many tasks run.
    rows_per_range: int = ROWS_PER_RANGE

    def check(self) -> None:
        """Refuse what can't be.

        Raises:
            UsageError: a rate is no rate, a destination no destination, or a range holds no rows.
        """
        if not 1 <= self.rows_per_range <= _MOST_ROWS:
            raise UsageError(f"rows_per_range is {self.rows_per_range}; it must be from 1 to {_MOST_ROWS:,}")
        for destination, rate in self.rates.items():
            names.destination(destination)
            if not math.isfinite(rate) or rate <= 0:
                raise UsageError(
                    f"the rate of {destination} is {rate}; write messages per second, more than zero"
                )


@dataclass(frozen=True, slots=True)
class Order:
    """What every task of a drain is told. It travels in the function that runs there, not in a plan."""

    run: str
    term: int
    lease_id: str = field(repr=False)
    #: The ranges of each task, in due order.
    shares: Sequence[Sequence[KeyRange]] = field(repr=False)
    #: Messages per second and destination (lower case), for each task.
    rates: Mapping[str, float]

    def claim(self, task: int) -> str:
        """The document that the attempts of a task claim."""
        return f"{folder(self.run)}task/{task}"


def folder(run: str) -> str:
    """Where the documents of a run lie."""
    return f"drain/{run}/"


def stop_mark(run: str) -> str:
    """The document that asks all tasks of a run to stop."""
    return f"{folder(run)}stop"


def shares(ranges: Sequence[KeyRange], most: int | None) -> list[list[KeyRange]]:
    """Ranges for each task: one, or where only so many tasks may be, every so-manieth.

    Tasks begin in order, so that what is due first goes first.
    """
    count = len(ranges) if most is None else min(most, len(ranges))
    return [list(ranges[number::count]) for number in range(count)]
