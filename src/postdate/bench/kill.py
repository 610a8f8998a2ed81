"""The active one of two processes is killed among messages that are due."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from postdate import Endpoint
from postdate.bench.account import Account
from postdate.bench.classic import LEASE_SECONDS
from postdate.bench.consumer import Consumer
from postdate.bench.drain import QUIET_SECONDS, running
from postdate.bench.figures import Kill
from postdate.bench.ground import Ground
from postdate.bench.punctual import schedule
from postdate.bench.scale import Scale
from postdate.bench.workload import Messages, classic_entity, seconds_of
from postdate.clock import SystemClock
from postdate.demo.processes import ServingProcess, Told, environment_of, start_process, stop_all
from postdate.errors import StorageError
from postdate.settings import Settings

_RATE = 50.0
_START_SECONDS = 60.0
_SETTLE_SECONDS = 3.0
_LOOK_SECONDS = 0.01
#: A lease, a probe, and the time of a call: what comes later than that after a kill is waited for besides.
_TAKEOVER_SECONDS = 20.0


async def kill_postdate(ground: Ground, settings: Settings, scale: Scale, ahead_s: float) -> Kill:
    """`postdate run` twice; the leader is killed when half of the rows are handed over."""
    handed_over = 0

    def listen(_: ServingProcess, told: Told) -> None:
        nonlocal handed_over
        handed_over += told.name == "handed_over"

    processes: list[ServingProcess] = []
    try:
        for _ in range(2):
            # If the second does not start, the first is in the list, and stopped.
            processes.append(await start_process(settings, listen))  # noqa: PERF401 - one by one
        async with Endpoint(settings) as endpoint:
            await _until(lambda: any(process.term is not None for process in processes), "nobody leads")
            due = _due(endpoint, scale, ahead_s)
            await schedule(endpoint, [ground.queue] * len(due), due)

            def kill() -> int:
                leader = next(process for process in processes if process.term is not None)
                leader.send(signal.SIGKILL)
                return leader.pid

            killed = await _watched(endpoint, ground, due, scale, lambda: handed_over, kill)
    finally:
        await stop_all(process for process in processes if process.exit_status is None)
    return killed


async def kill_classic(ground: Ground, scale: Scale) -> Kill:
    """The classic algorithm twice, each in a process; the active one is killed when half is handed over."""
    settings = ground.settings
    async with (
        _classic_process(settings) as one,
        _classic_process(settings) as other,
        Endpoint(settings) as endpoint,
        Account(settings) as account,
    ):
        due = _due(endpoint, scale, scale.ahead_s)
        messages = Messages(settings, SystemClock(), ground.queue).at(due)
        await account.insert([classic_entity(message) for message in messages])

        def kill() -> int:
            active = max(one, other, key=lambda process: process.handed_over)
            active.kill()
            return active.pid

        return await _watched(endpoint, ground, due, scale, lambda: one.handed_over + other.handed_over, kill)


def _due(endpoint: Endpoint, scale: Scale, ahead_s: float) -> Sequence[float]:
    first = seconds_of(endpoint.parts.clock.now()) + ahead_s
    return [round(first + number / _RATE, 6) for number in range(scale.kill)]


async def _watched(
    endpoint: Endpoint,
    ground: Ground,
    due: Sequence[float],
    scale: Scale,
    handed_over: Callable[[], int],
    kill: Callable[[], int],
) -> Kill:
    consumer, clock = Consumer(endpoint, ground.queue), SystemClock()
    async with running(consumer.run):
        patience = due[-1] - seconds_of(endpoint.parts.clock.now()) + QUIET_SECONDS
        await _until(lambda: handed_over() * 2 >= len(due), "half was never handed over", patience)
        before = handed_over()
        kill()
        left = max(0.0, due[-1] - seconds_of(endpoint.parts.clock.now()))
        await consumer.until(len(due), within_s=left + _TAKEOVER_SECONDS + scale.kill_wait_s)
        await clock.sleep(_SETTLE_SECONDS)  # a second copy comes a little later
    missing = len(due) - len(consumer.first)
    waiting = sum([1 async for _ in endpoint.upcoming()])
    return Kill(
        scheduled=len(due),
        lost=max(0, missing - waiting),
        outstanding=min(missing, waiting),
        duplicated=consumer.duplicated,
        longest_gap_s=consumer.longest_gap_s,
        how=f"one of two processes, the active one, killed when {before} of {len(due)} were handed over;"
        f" the other takes over when the lease of {LEASE_SECONDS} s ends",
    )


async def _until(condition: Callable[[], bool], otherwise: str, within_s: float = _START_SECONDS) -> None:
    clock = SystemClock()
    end = clock.monotonic() + within_s
    while not condition():
        if clock.monotonic() > end:
            raise StorageError(f"{otherwise} within {within_s:.0f} s")
        await clock.sleep(_LOOK_SECONDS)


class _ClassicProcess:
    """A process that polls, and says how many rows it handed over."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.handed_over = 0
        self.reading = asyncio.create_task(self._read(), name="postdate-bench-classic")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.handed_over = int(line)


@asynccontextmanager
async def _classic_process(settings: Settings) -> AsyncIterator[_ClassicProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "postdate.bench.classic_process",
        env=environment_of(settings),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    watched = _ClassicProcess(process)
    try:
        yield watched
    finally:
        watched.kill()
        await process.wait()
        await watched.reading
