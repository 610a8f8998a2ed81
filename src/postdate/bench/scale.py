"""How much is measured: `FULL` for figures that are published, `QUICK` to see that all works."""

from dataclasses import dataclass

#: Puts under way at once, in turn, when the service's limit is looked for.
LIMIT_CONCURRENCIES = (8, 16, 32, 64)
#: How many at each, at least and at most.
_LIMIT_PUTS = range(200, 5_001)
#: Rows that one transaction of the benchmark's own inserts or deletes.
ROWS_A_BATCH = 100


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
    idle_s: float = 30.0
    #: Messages that come out of such quiet, one by one.
    after_idle: int = 3
    #: Messages that wait, due far in the future, while memory is measured.
    waiting: int = 100_000
    #: Messages of which some are delivered when the active process is killed.
    kill: int = 1_000
    #: How long the rest is waited for after the kill.
    kill_wait_s: float = 60.0

    # What follows is about the contenders on Azure Storage alone.
    #: How far ahead messages are scheduled where they are rows at any distance.
    ahead_s: float = 15.0
    #: How far ahead a burst is scheduled so that it goes straight to its queue.
    burst_queue_ahead_s: float = 60.0
    #: How far ahead a trickle and a burst are scheduled so that they are rows, past any direct delay.
    rows_ahead_s: float = 100.0
    burst_rows_ahead_s: float = 150.0
    #: Endpoints that are idle side by side, for how long, and the delay of the message that ends it.
    idle_endpoints: int = 20
    idle_quiet_s: float = 90.0
    after_idle_delay_s: float = 100.0
    #: Hours that an idle process is watched, and how many times as fast as others its clock runs.
    idle_hours: int = 2
    idle_speed: float = 60.0
    #: Due rows at which the time of one message is compared.
    linear: tuple[int, ...] = (1_000, 10_000, 100_000)
    #: Waiting rows at which the memory of the engine alone is compared.
    flat: tuple[int, int] = (10_000, 1_000_000)
    #: Waiting rows at which that of a whole process is, in the emulator.
    process_waiting: tuple[int, int] = (10_000, 100_000)
    #: How well the service's clock must be known before lateness is measured.
    clock_known_s: float = 0.005
    #: Lookahead, direct delays and sleeps are some seconds, so that rows need no minutes of waiting.
    short: bool = False

    @property
    def limit_puts(self) -> int:
        """Puts at each concurrency, when the service's limit is looked for."""
        return min(max(self.drain, _LIMIT_PUTS[0]), _LIMIT_PUTS[-1])


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
    ahead_s=5.0,
    burst_queue_ahead_s=4.0,
    rows_ahead_s=6.0,
    burst_rows_ahead_s=7.0,
    idle_endpoints=2,
    idle_quiet_s=2.0,
    after_idle_delay_s=6.0,
    idle_hours=1,
    idle_speed=120.0,
    linear=(200, 500),
    flat=(1_000, 5_000),
    process_waiting=(500, 1_000),
    clock_known_s=0.05,
    short=True,
)
