"""An account in memory, and the backend of one endpoint process on it.

Several backends on one account are what several processes on one storage account are.
"""

from collections.abc import Mapping

from postdate.backends.memory.delivery_log import LogSlot, MemoryLog
from postdate.backends.memory.inbox import InboxSlot, MemoryInbox
from postdate.backends.memory.lease import LeaseSlot, MemoryLease
from postdate.backends.memory.payloads import MemoryPayloads, PayloadSlot
from postdate.backends.memory.queues import MemoryQueues, QueueSlot
from postdate.backends.memory.table import MemoryTable, TableSlot
from postdate.backends.memory.timeouts import MemoryTimeouts, TimeoutSlot
from postdate.clock import Clock
from postdate.errors import PostdateError
from postdate.model.legacy_timeout import TimeoutPlaces
from postdate.model.requests import RequestCounter


class MemoryAccount:
    """What a storage account holds: tables, queues by address, leases, payloads, legacy timeouts."""

    def __init__(self) -> None:
        self.tables: dict[str, TableSlot] = {}
        self.leases: dict[str, LeaseSlot] = {}
        self.payloads: dict[str, PayloadSlot] = {}
        self.queues: dict[str, QueueSlot] = {}
        self.timeouts: dict[str, TimeoutSlot] = {}
        self.inboxes: dict[str, InboxSlot] = {}
        self.logs: dict[str, LogSlot] = {}


class MemoryBackend:
    """The ports of one endpoint process."""

    def __init__(
        self,
        account: MemoryAccount,
        table: str,
        clock: Clock,
        aliases: frozenset[str],
        timeout_places: TimeoutPlaces | None = None,
        inbox_table: str = "inbox",
    ) -> None:
        queues = MemoryQueues(account.queues, clock, aliases)
        self.store = MemoryTable(account.tables, table)
        self.lease = MemoryLease(account.leases, table, clock)
        self.sender = queues
        self.receiver = queues
        self.payloads = MemoryPayloads(account.payloads.setdefault(table, {}))
        self.timeouts = MemoryTimeouts(account.timeouts, timeout_places or TimeoutPlaces(owner=table))
        self.inbox = MemoryInbox(account.inboxes, inbox_table, clock)
        self.delivery_log = MemoryLog(account.logs.setdefault(table, {}))
        #: Stays empty: nothing here asks a service.
        self.requests = RequestCounter()

    @property
    def description(self) -> Mapping[str, str]:
        """Says that nothing here outlives the process."""
        return {"backend": "memory", "lifetime": "this process"}

    async def reach(self) -> Mapping[str, PostdateError | None]:
        """Nothing here can be out of reach."""
        return {}

    async def close(self) -> None:
        """Nothing to close."""
