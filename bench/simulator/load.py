"""What else uses the account while leaders work: senders and consumers."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from random import Random

from bench.simulator.world import START, World
from postdate.engine.acceptance import Outgoing
from postdate.errors import StorageError

#: Seconds between two looks of the consumers.
_LOOK_S = 0.05

#: Seconds after the start at which one more message is due, by chance.
Due = Callable[[Random], float]


class Senders:
    """Processes beside the leader that schedule messages, one by one, evenly in time."""

    def __init__(self, world: World, *, per_s: float, due: Due, queue: str) -> None:
        self._world = world
        self._per_s = per_s
        self._due = due
        self._queue = queue
        self._random = Random(world.seed)
        self._intake = world.process(0).parts.intake
        self.accepted = 0
        self.refused = 0

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as sending:
            number = 0
            while True:
                await self._world.clock.sleep(1 / self._per_s)
                sending.create_task(self._schedule(number))
                number += 1

    async def _schedule(self, number: int) -> None:
        at = START + timedelta(seconds=self._due(self._random))
        try:
            await self._intake.schedule(Outgoing(self._queue, b"later", at=at, message_id=f"later-{number}"))
        except StorageError:
            self.refused += 1
        else:
            self.accepted += 1


class Consumers:
    """Take what is visible, as fast as the service lets them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: Counter[str] = Counter()
        self._began: float | None = None
        self._last = 0.0
        self.consumed = 0

    async def run(self) -> None:
        """Consume until cancelled. Only for messages that are due when they arrive."""
        seen = [0] * len(self._world.shards)
        while True:
            for index, shard in enumerate(self._world.shards):
                arrivals = shard.backend.arrivals
                self._waiting.update(arrival.queue for arrival in arrivals[seen[index] :])
                seen[index] = len(arrivals)
            for queue, waiting in sorted(self._waiting.items()):
                taken = self._world.account.consume(queue, waiting)
                self._waiting[queue] -= taken
                self.consumed += taken
                if taken:
                    self._last = self._world.now
                    self._began = self._last - _LOOK_S if self._began is None else self._began
            await self._world.clock.sleep(_LOOK_S)

    @property
    def done(self) -> bool:
        """Whether everything that was planned has been consumed."""
        return self.consumed >= len(self._world.planned)

    @property
    def per_s(self) -> float:
        """Messages consumed per second, from the first to the last."""
        return 0.0 if self._began is None else self.consumed / (self._last - self._began)
