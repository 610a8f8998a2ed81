"""An endpoint on the memory backend and a clock that stands still."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from postdate import Endpoint
from postdate.backends.memory import MemoryAccount
from postdate.model.envelope import unwrap
from postdate.settings import load_settings
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
async def open_world(*, account=None, clock=None, **settings):
    """A set-up endpoint with queues `orders` and `error`; delays of more than 30 s are rows."""
    account, clock, log = account or MemoryAccount(), clock or VirtualClock(), EventLog()
    values = {"endpoint": "Unit.Tests", "backend": "memory", "direct_within": "30s", **settings}
    endpoint = Endpoint(load_settings(**values), clock=clock, observers=[log], memory=account)
    async with endpoint:
        await endpoint.setup("orders")
        yield World(account, clock, log, endpoint)
