"""One workload's processes: an emptied server, one that schedules, workers, and the record of deliveries."""

import asyncio
import itertools
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.peers.contender import Contender
from bench.peers.processes import Child, PeerFailed, cpu_seconds, memory_mb
from bench.peers.scheduling import READY
from bench.peers.servers import Server
from bench.peers.wiring import Message, Record, Wiring
from postdate.clock import SystemClock

_LOOK_SECONDS = 0.05
_PROBE_SECONDS = 0.5
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Reading:
    """Meters at one instant."""

    at: float
    client_cpu_s: float
    server_cpu_s: float
    requests: int
    delivered: int


class Stage:
    """Where one workload of one contender runs."""

    def __init__(self, contender: Contender, server: Server, folder: Path, stack: AsyncExitStack) -> None:
        self.contender = contender
        self.server = server
        self.clock = SystemClock()
        self.record = Record(folder / "record")
        self._workers: dict[str, Child] = {}
        self._folder = folder
        self._stack = stack
        self._scheduler: Child | None = None
        self._labels = itertools.count(1)
        self._probes = itertools.count(-1, -1)

    def now(self) -> float:
        """Seconds since 1970, as the deliveries are noted."""
        return self.clock.now().timestamp()

    async def open(self) -> None:
        """Start the scheduling process."""
        self._scheduler = await self._stack.enter_async_context(
            self.contender.scheduler(*self._wired("client"))
        )

    async def start_worker(self) -> None:
        """Start one more worker; it may need a while."""
        label = f"worker-{next(self._labels)}"
        folder, wiring = self._wired(label)
        worker = await self._stack.enter_async_context(self.contender.worker(folder, wiring))
        if self.contender.worker_schedules:
            await worker.hear(READY)
            self._scheduler = worker
        self._workers[label] = worker

    async def start_workers(self, count: int = 1) -> None:
        """Start workers and wait until each has delivered a probe.

        Raises:
            PeerFailed: one does not within a minute.
        """
        for _ in range(count):
            await self.start_worker()
        until = self.clock.monotonic() + _READY_SECONDS
        while len(self.record.probed) < count:
            if self.clock.monotonic() > until:
                raise PeerFailed(
                    f"only {len(self.record.probed)} of {count} workers delivered within a minute"
                )
            await self.schedule([(next(self._probes), int(self.now() * 1000))])
            await self.clock.sleep(_PROBE_SECONDS)
            self.look()

    async def schedule(self, messages: Sequence[Message]) -> None:
        """Have messages scheduled, and wait until they are durable."""
        assert self._scheduler is not None
        await self._scheduler.schedule(messages)

    def look(self) -> int:
        """Read the record; how many messages were delivered.

        Raises:
            PeerFailed: a worker that should run has ended.
        """
        for worker in self._workers.values():
            worker.check()
        self.record.refresh()
        return self.record.count

    async def until(self, done: Callable[[], bool], *, within: float) -> bool:
        """Wait until it is done; False: it was not, within that many seconds."""
        until = self.clock.monotonic() + within
        while True:
            self.look()
            if done():
                return True
            if self.clock.monotonic() > until:
                return False
            await self.clock.sleep(_LOOK_SECONDS)

    async def until_delivered(self, count: int, *, quiet_s: float) -> None:
        """Wait for that many messages, as long as some arrive every `quiet_s` seconds."""
        while (seen := self.look()) < count:
            if not await self.until(partial(self._more_than, seen), within=quiet_s):
                return

    def _more_than(self, seen: int) -> bool:
        return self.record.count > seen

    async def kill_busiest(self) -> None:
        """SIGKILL the worker that delivered most so far."""
        delivered = Counter(delivery.label for delivery in self.record.deliveries)
        await self._workers.pop(max(self._workers, key=delivered.__getitem__)).kill()

    def read(self) -> Reading:
        """All meters."""
        return Reading(
            at=self.clock.monotonic(),
            client_cpu_s=cpu_seconds(worker.pid for worker in self._workers.values()),
            server_cpu_s=cpu_seconds([self.server.process.pid]),
            requests=self.server.requests(),
            delivered=self.look(),
        )

    def client_mb(self) -> float:
        """Resident memory of the workers, in MiB."""
        return memory_mb(worker.pid for worker in self._workers.values())

    def server_mb(self) -> float:
        """Resident memory of the server, in MiB."""
        return memory_mb([self.server.process.pid])

    def _wired(self, label: str) -> tuple[Path, Wiring]:
        folder = self._folder / label
        folder.mkdir()
        record = str(self._folder / "record")
        return folder, Wiring(url=self.contender.url(self.server), record=record, label=label)


@asynccontextmanager
async def stage(contender: Contender, server: Server) -> AsyncIterator[Stage]:
    """A stage on an emptied server; all its processes end with the block."""
    with tempfile.TemporaryDirectory(prefix="postdate-bench-peer-") as folder:
        async with AsyncExitStack() as stack:
            await asyncio.to_thread(server.reset)
            one = Stage(contender, server, Path(folder), stack)
            await one.open()
            yield one
