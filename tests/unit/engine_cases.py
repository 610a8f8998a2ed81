"""An endpoint on the memory backend and a clock that stands still."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from postdate import Endpoint
from postdate.backends.memory import MemoryAccount
from postdate.engine.breakers import Breakers
from postdate.events import Events
from postdate.model.envelope import unwrap
from postdate.settings import load_settings
from postdate.settings.breakers import BreakerSettings
from postdate.testing.clock import VirtualClock
from postdate.testing.signals import EventLog


@dataclass
class World:
    """An account, its time, and what was heard."""

    account: MemoryAccount
    clock: VirtualClock
    log: EventLog
    endpoint: Endpoint

    @property
    def backend(self) -> Any:
        return self.endpoint.parts.backend

    @property
    def rows(self):
        return self.account.tables[self.endpoint.settings.table_name].rows

    def in_queue(self, queue: str):
        """Stored messages of a queue, hidden ones included, in order."""
        stored = self.account.queues[queue].messages.values()
        return sorted(stored, key=lambda m: (m.visible_at, m.order))

    def opened(self, queue: str):
        return [unwrap(m.text, m.native_id).message for m in self.in_queue(queue)]

    async def take(self, queue: str):
        """Acknowledge and return all visible messages."""
        taken = []
        while page := await self.backend.receiver.receive(queue, count=32, visibility_s=30):
            for received in page:
                await self.backend.receiver.ack(received)
                taken.append(unwrap(received.text, received.native_id).message)
        return taken


@asynccontextmanager
async def open_world(*, account=None, clock=None, on_critical_error=None, **settings):
    """A set-up endpoint with queues `orders` and `error`; delays of more than 30 s are rows."""
    account, clock, log = account or MemoryAccount(), clock or VirtualClock(), EventLog()
    values = {"endpoint": "Unit.Tests", "backend": "memory", "direct_within": "30s", **settings}
    endpoint = Endpoint(
        load_settings(**values),
        clock=clock,
        observers=[log],
        memory=account,
        on_critical_error=on_critical_error,
    )
    async with endpoint:
        await endpoint.setup("orders")
        yield World(account, clock, log, endpoint)


#: Windows so long that no failure of a test is critical.
NEVER_CRITICAL = {
    f"time_to_trigger_{what}_circuit_breaker": "1d" for what in ("store", "fetch", "dispatch")
} | {"maximum_recovery_failures_per_second": 1000}


class Outage:
    """Calls that fail as long as it lasts, each with a new error."""

    def __init__(self, error, *arguments, when=lambda *_, **__: True):
        self.error, self.arguments, self.when = error, arguments or ("by script",), when
        self.lasts = True
        #: The names of the calls that failed.
        self.tried = []

    def of(self, part, *names):
        """Break these methods of a port."""
        for name in names:
            self._wrap(part, name)
        return self

    def _wrap(self, part, name):
        inner = getattr(part, name)

        async def call(*args, **options):
            self._meet(name, *args, **options)
            return await inner(*args, **options)

        async def pages(*args, **options):
            self._meet(name, *args, **options)
            async for page in inner(*args, **options):
                yield page

        setattr(part, name, pages if name == "due" else call)

    def _meet(self, name, *args, **options):
        if self.lasts and self.when(*args, **options):
            self.tried.append(name)
            raise self.error(*self.arguments)


def breakers_on(clock, log=None, **settings):
    """The breakers of an endpoint that has nothing else."""
    return Breakers(
        BreakerSettings(**settings),
        clock,
        Events([] if log is None else [log]),
        longest_back_off=timedelta(minutes=1),
    )
