"""What the tests of the receiver share: an endpoint in memory that handles messages in virtual time."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from postdate import Endpoint, Settings
from postdate.backends.memory import MemoryAccount
from postdate.model.envelope import unwrap, wrap
from postdate.model.message import Message
from postdate.testing.clock import VirtualClock
from postdate.testing.signals import EventLog

QUEUE = "orders"


@dataclass
class Scene:
    """One account; endpoints on it share the queue `orders`, the clock and the log."""

    clock: VirtualClock
    memory: MemoryAccount
    log: EventLog

    def endpoint(self, **options: Any) -> Endpoint:
        defaults = {
            name: f.get_default(call_default_factory=True) for name, f in Settings.model_fields.items()
        }
        beside = {name: options.pop(name, None) for name in ("recoverability", "on_critical_error")}
        settings = Settings(
            **defaults | {"endpoint": "Orders", "queue": QUEUE, "backend": "memory"} | options
        )
        return Endpoint(
            settings,
            clock=self.clock,
            observers=[self.log],
            memory=self.memory,
            **beside,
        )

    async def put(self, message_id="m1", body=b"{}", queue=QUEUE, **headers) -> None:
        """A message in the queue, as some sender wrote it."""
        async with self.endpoint() as sender:
            await sender.parts.backend.sender.send(queue, wrap(Message(message_id, headers, body)))

    async def put_text(self, text, queue=QUEUE) -> None:
        async with self.endpoint() as sender:
            await sender.parts.backend.sender.send(queue, text)

    def in_queue(self, queue=QUEUE):
        """Everything that lies in a queue, hidden or not."""
        return list(self.memory.queues[queue].messages.values())

    def messages(self, queue="error") -> list[Message]:
        """What lies in a queue, out of its envelopes."""
        return [unwrap(stored.text, stored.native_id).message for stored in self.in_queue(queue)]

    async def run_for(self, *endpoints: Endpoint, seconds: float) -> None:
        """Let endpoints serve for so long, then stop them."""
        async with serving(*endpoints):
            await self.clock.advance(seconds)


@asynccontextmanager
async def open_scene(*queues):
    clock, memory, log = VirtualClock(), MemoryAccount(), EventLog()
    scene = Scene(clock, memory, log)
    async with scene.endpoint() as endpoint:
        await endpoint.setup(*queues)
    yield scene


@asynccontextmanager
async def serving(*endpoints: Endpoint):
    """Endpoints that run, opened and closed with the block; what `run` raises is raised."""
    async with _running(endpoints, _serve):
        yield


@asynccontextmanager
async def serving_open(*endpoints: Endpoint):
    """Endpoints that are open already, running for the length of the block."""
    async with _running(endpoints, Endpoint.run):
        yield


@asynccontextmanager
async def _running(endpoints, run):
    stop, clock = asyncio.Event(), endpoints[0]._clock
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(endpoint, stop)) for endpoint in endpoints]
        try:
            yield
        finally:
            stop.set()
            for _ in range(60):  # what is cut off by the stop has its grace
                if all(task.done() for task in tasks):
                    break
                await clock.advance(1)


async def _serve(endpoint: Endpoint, stop: asyncio.Event) -> None:
    async with endpoint:
        await endpoint.run(stop)


def always_failing(endpoint: Endpoint, error: Exception, calls: list) -> Endpoint:
    """A handler that fails each time; `calls` gets each attempt's number and instant."""

    @endpoint.handler
    async def fail(body: bytes, context) -> None:
        del body
        calls.append((context.message_id, context.attempt, context._parts.clock.now()))
        raise error

    return endpoint


def stopped() -> asyncio.Event:
    """What ends a `run` at once that should have been refused, so that its test fails instead of hanging."""
    stop = asyncio.Event()
    stop.set()
    return stop


MINUTE = timedelta(minutes=1)
