"""How much is measured: `FULL` for figures that are published, `QUICK` to see that all works."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """The sizes of the workloads; the same for every contender of a run."""

    #: Messages that are due already when the contender starts.
    drain: int = 20_000
    #: Messages a second, one due time after the other, and for how long.
    trickle_rate: int = 20
    trickle_seconds: int = 60
    #: Messages that are due at one instant, and how long before it they are scheduled.
    burst: int = 10_000
    burst_ahead_s: float = 60.0
    #: How long nothing is scheduled, to count requests and extrapolate them to an hour.
    idle_s: float = 60.0
    #: Messages that come out of such quiet, one by one.
    after_idle: int = 5
    #: Messages that wait, due far in the future, while memory is measured.
    waiting: int = 100_000
    #: Messages of which some are delivered when the active process is killed.
    kill: int = 1_000
    #: How long the rest is waited for after the kill.
    kill_wait_s: float = 60.0


FULL = Scale()
QUICK = Scale(
    drain=500,
    trickle_seconds=5,
    burst=200,
    burst_ahead_s=5.0,
    idle_s=5.0,
    after_idle=1,
    waiting=2_000,
    kill=100,
    kill_wait_s=10.0,
)
