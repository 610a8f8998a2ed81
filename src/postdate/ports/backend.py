"""All ports of one storage account."""

from collections.abc import Mapping
from typing import Protocol

from postdate.errors import PostdateError
from postdate.model.requests import RequestCounter
from postdate.ports.delivery_log import DeliveryLogStore
from postdate.ports.inbox import InboxStore
from postdate.ports.lease import LeaseStore
from postdate.ports.payloads import PayloadStore
from postdate.ports.queues import QueueReceiver, QueueSender
from postdate.ports.store import DelayedStore
from postdate.ports.timeouts import TimeoutStore


class Backend(Protocol):
    """All ports of one storage account, opened and closed together."""

    @property
    def store(self) -> DelayedStore:
        """The endpoint's rows."""
        ...

    @property
    def lease(self) -> LeaseStore:
        """The endpoint's lease; each elector needs a backend, or a lease store, of its own."""
        ...

    @property
    def sender(self) -> QueueSender:
        """Queues of all accounts, to send to."""
        ...

    @property
    def receiver(self) -> QueueReceiver:
        """Queues of all accounts, to receive from."""
        ...

    @property
    def payloads(self) -> PayloadStore:
        """Large bodies."""
        ...

    @property
    def timeouts(self) -> TimeoutStore:
        """Timeouts that older endpoints left; made when it is first asked for."""
        ...

    @property
    def inbox(self) -> InboxStore:
        """What the endpoint's consumers remember; its table need not be there."""
        ...

    @property
    def delivery_log(self) -> DeliveryLogStore:
        """Where the delivery log is kept."""
        ...

    @property
    def requests(self) -> RequestCounter:
        """Counts requests that left, repeats too; stays empty where no service is asked."""
        ...

    @property
    def description(self) -> Mapping[str, str]:
        """What this is and where, for people: never a secret."""
        ...

    async def reach(self) -> Mapping[str, PostdateError | None]:
        """One cheap request to each service, by its name; what went wrong, or None.

        A table, container or queue that is missing is an answer all the same. Nothing is raised.
        """
        ...

    async def close(self) -> None:
        """Close connections. Safe to call twice."""
        ...
