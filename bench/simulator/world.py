"""One simulated run: endpoints that share an account, their messages, and what came of them."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch
from zlib import crc32

from bench.simulator.account import LimitedAccount
from bench.simulator.backend import Arrival, LimitedBackend
from bench.simulator.limits import Service
from postdate.compose import Parts, put_together
from postdate.events import DispatchFailed, Event, Events, PassFailed, RemoveFailed, Throttled
from postdate.model.delayed import DelayedMessage
from postdate.model.envelope import EnvelopeForm
from postdate.model.message import Message
from postdate.model.requests import Outcome, RequestKind, by_operation
from postdate.settings import BackendName, Settings
from postdate.testing.clock import VirtualClock

#: Half past: an hour's partition, whatever a run does within its next minutes.
START = datetime(2026, 3, 1, 12, 15, tzinfo=UTC)
#: Seconds of virtual time between two looks of a run at whether it is over.
_STEP = 0.25
#: Seeds for chance within the engine: of one run, and of one of its processes.
_SEEDS = 1_000_003
_SEEDS_EACH = 101


class _VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own timeouts count virtual time too, so nothing depends on this machine's speed."""

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        super().__init__()

    def time(self) -> float:
        return self._virtual.monotonic()


@contextmanager
def _chance(seed: int) -> Iterator[None]:
    """Let what the engine makes of `Random()` follow the seed."""
    seeds = count(seed)
    modules = [m for name, m in sys.modules.items() if name.startswith("postdate.engine.")]
    patches = [
        patch.object(m, "Random", lambda: Random(next(seeds))) for m in modules if hasattr(m, "Random")
    ]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


@dataclass(frozen=True)
class Planned:
    """One message: when it is due, in seconds after the start of the run, and for which queue."""

    due_s: float
    queue: str


@dataclass
class Shard:
    """One endpoint: a table, a lease, and a process that leads."""

    parts: Parts
    backend: LimitedBackend


@dataclass
class Heard:
    """What the engines told, counted."""

    counts: Counter[str] = field(default_factory=Counter)
    #: Seconds after the start, and how many sends may run at once from then on.
    gate: list[tuple[float, int]] = field(default_factory=list)


class World:
    """An account with shards on it, in virtual time."""

    def __init__(
        self, service: Service, *, seed: int, shards: int = 1, saved_up: bool = True, **settings: Any
    ) -> None:
        self.clock = VirtualClock(START)
        self.began = self.clock.monotonic()
        self.seed = seed
        self.account = LimitedAccount(service, self.clock, seed, saved_up=saved_up)
        self.heard = Heard()
        self.planned: list[Planned] = []
        self._settings = settings
        self._stop = asyncio.Event()
        self._processes = count()
        self.shards = [self.process(index) for index in range(shards)]

    def process(self, shard: int) -> Shard:
        """One more process of a shard."""
        settings = Settings(
            **{
                "endpoint": f"Simulated.Orders.{shard}",
                "backend": BackendName.MEMORY,
                "check_destinations": False,
                # Its six looks an hour are no part of what is simulated.
                "disable_timeout_manager": True,
                **self._settings,
            }
        )
        backend = LimitedBackend(self.account, settings.table_name)
        events = Events([self._observe])
        with _chance(self.seed * _SEEDS + next(self._processes) * _SEEDS_EACH):
            return Shard(put_together(settings, backend, self.clock, events), backend)

    @property
    def now(self) -> float:
        """Seconds after the start."""
        return self.clock.monotonic() - self.began

    def _observe(self, event: Event) -> None:
        if isinstance(event, Throttled):
            self.heard.gate.append((self.now, event.concurrency))
        if isinstance(event, DispatchFailed | PassFailed | RemoveFailed | Throttled):
            self.heard.counts[event.name] += 1

    def messages(self, planned: Sequence[Planned]) -> list[DelayedMessage]:
        """Messages whose body is their number."""
        first = len(self.planned)
        self.planned.extend(planned)
        return [
            DelayedMessage(
                Message(f"{first + number:032x}", {}, str(first + number).encode()),
                one.queue,
                self.due_at(first + number),
                scheduled_at=START,
            )
            for number, one in enumerate(planned)
        ]

    def due_at(self, number: int) -> datetime:
        """When a planned message is due."""
        return START + timedelta(seconds=self.planned[number].due_s)

    async def preload(self, planned: Sequence[Planned]) -> None:
        """Put rows into the tables as if they had been there for long; each shard gets its own by id."""
        await self.set_up({one.queue for one in planned})
        by_shard: dict[int, list[DelayedMessage]] = {}
        for message in self.messages(planned):
            by_shard.setdefault(self.shard_of(message.message.message_id), []).append(message)
        for index, messages in by_shard.items():
            await self.shards[index].backend.inner.store.add(messages)

    async def set_up(self, queues: set[str]) -> None:
        """Tables and queues."""
        for shard in self.shards:
            await shard.backend.inner.store.create()
            for queue in sorted(queues):
                await shard.backend.sender.create(queue)

    def shard_of(self, message_id: str) -> int:
        """Which shard a message belongs to."""
        return crc32(message_id.encode()) % len(self.shards)

    @property
    def arrivals(self) -> list[Arrival]:
        """What lies in queues, in order of arrival."""
        return sorted((a for s in self.shards for a in s.backend.arrivals), key=lambda a: (a.at, a.text))

    async def serve_until(self, done: Callable[[], bool], *, at_most_s: float) -> None:
        """Let all shards lead until something is so, but no longer than some virtual time; then stop."""
        serving = [asyncio.ensure_future(shard.parts.service.serve(self._stop)) for shard in self.shards]
        while not done() and self.now < at_most_s:
            await self.clock.advance(_STEP)
        self._stop.set()
        while not all(task.done() for task in serving):
            await self.clock.advance(_STEP)
        await asyncio.gather(*serving)

    async def deliver(
        self,
        *,
        at_most_s: float,
        beside: Sequence[Coroutine[object, object, None]] = (),
        also: Callable[[], bool] = lambda: True,
    ) -> None:
        """Serve until everything planned has been handed over and its rows are gone.

        Args:
            at_most_s: virtual seconds after the start at which it ends anyway.
            beside: what else goes on until then.
            also: what else must be so.
        """
        others = [asyncio.ensure_future(one) for one in beside]

        def done() -> bool:
            arrived = sum(len(shard.backend.arrivals) for shard in self.shards)
            removed = sum(shard.backend.store.removed for shard in self.shards)
            return min(arrived, removed) >= len(self.planned) and also()

        await self.serve_until(done, at_most_s=at_most_s)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def held(self) -> set[int]:
        """Numbers of the planned messages whose rows are in the tables."""
        return {
            int(body)
            for table in self.account.memory.tables.values()
            for row in table.rows.values()
            if isinstance(body := row.properties["Body"], bytes) and body.isdigit()
        }

    def requests(self) -> dict[str, dict[str, int]]:
        """Requests of all shards' leaders, by operation and outcome."""
        total: Counter[tuple[RequestKind, Outcome]] = Counter()
        for shard in self.shards:
            total.update(shard.backend.requests.counts())
        return by_operation(total)


def all_to(queues: int) -> dict[str, EnvelopeForm]:
    """Settings that let the number of a message stand in its queue as it is."""
    return {queue_name(index): EnvelopeForm.RAW_TEXT for index in range(queues)}


def queue_name(index: int) -> str:
    """The name of a destination."""
    return f"orders-{index}"


def simulate(world: World, play: Callable[[World], Coroutine[object, object, None]]) -> World:
    """Run one world from start to end, on a loop whose time is the world's."""
    with asyncio.Runner(loop_factory=lambda: _VirtualLoop(world.clock)) as runner:
        runner.run(play(world))
    return world
