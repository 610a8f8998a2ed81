"""All ports of one storage account, on one session, opened and closed together."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import Any

import aiohttp
from azure.data.tables.aio import TableClient
from azure.storage.blob.aio import ContainerClient

from postdate.backends.azure_storage.bulk_blobs import BulkBlobs
from postdate.backends.azure_storage.claims import ClaimedBlob
from postdate.backends.azure_storage.clients import AccountClients, Credentials, WrapTransport
from postdate.backends.azure_storage.connection import Place, endpoints_of
from postdate.backends.azure_storage.container_lease import ContainerLease
from postdate.backends.azure_storage.delayed_table import DelayedTable
from postdate.backends.azure_storage.delivery_log import LogBlobs
from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, refusal, translate
from postdate.backends.azure_storage.inbox import InboxTable
from postdate.backends.azure_storage.payload_blobs import PayloadBlobs
from postdate.backends.azure_storage.queues import AzureQueueReceiver, AzureQueueSender
from postdate.backends.azure_storage.scan import TableScan
from postdate.backends.azure_storage.timeouts_in_bulk import AzureTimeoutsInBulk
from postdate.backends.azure_storage.transport import open_session
from postdate.clock import StorageClock
from postdate.errors import PostdateError
from postdate.model.requests import RequestCounter
from postdate.settings import LeaseTarget, Settings

_ONCE: dict[str, Any] = {"retry_total": 0}


class AzureStorageBackend:
    """`ports.Backend`. Made by `open_backend`; close it."""

    def __init__(
        self,
        settings: Settings,
        clock: StorageClock,
        session: aiohttp.ClientSession,
        accounts: Mapping[str, AccountClients],
        credentials: Credentials,
        requests: RequestCounter,
    ) -> None:
        own, name = accounts[""], settings.table_name
        self._own = own
        self._accounts = accounts
        self._session = session
        self._credentials = credentials
        self.requests = requests
        self._inbox_table = settings.inbox_table_name
        self._table: TableClient = own.table(name)
        self._container: ContainerClient = own.container(name)
        self._clock = clock
        self._lease_target = settings.lease_target
        self._timeout_places = settings.timeout_places
        self._timeouts: AzureTimeoutsInBulk | None = None
        self.store = DelayedTable(self._table, own.hot_table(name), own.endpoints.table, name)
        self.lease = self.new_lease()
        self.sender = AzureQueueSender(accounts)
        self.receiver = AzureQueueReceiver(accounts)
        self.payloads = PayloadBlobs(self._container, own.endpoints.blob, clock)

    @property
    def timeouts(self) -> AzureTimeoutsInBulk:
        """Timeouts that older endpoints left; its clients are made here, since few endpoints have any."""
        if self._timeouts is None:
            self._timeouts = AzureTimeoutsInBulk(self._own, self._timeout_places)
        return self._timeouts

    def new_lease(self) -> ContainerLease:
        """A further lease store on the same lease, for a second elector in this process."""
        return ContainerLease(self._container, self._own.endpoints.blob, self._clock, self._lease_target)

    @cached_property
    def bulk(self) -> BulkBlobs:
        """Documents of bulk runs."""
        return BulkBlobs(self._container, self._own.endpoints.blob)

    @cached_property
    def delivery_log(self) -> LogBlobs:
        """The delivery log."""
        return LogBlobs(self._container, self._own.endpoints.blob)

    def claim(self, name: str) -> ClaimedBlob:
        """A document of a bulk run that one process at a time may write."""
        return ClaimedBlob(self._container, self._own.endpoints.blob, name)

    def scan(self, table: str | None = None) -> TableScan:
        """Reads a table of the account by key ranges; default: the delays table."""
        name = table or str(self._table.table_name)
        return TableScan(self._own.hot_table(name), self._own.endpoints.table, name)

    @cached_property
    def inbox(self) -> InboxTable:
        """Made when it is first asked for: most processes never do."""
        table, endpoints = self._own.table(self._inbox_table), self._own.endpoints
        return InboxTable(table, self._own.hot_table(self._inbox_table), endpoints.table, self._clock)

    @property
    def description(self) -> Mapping[str, str]:
        """What this is and where, for people: never a secret."""
        endpoints = self._own.endpoints
        way_in = "key" if endpoints.key else "shared access signature" if endpoints.sas else "identity"
        lease = (
            "container" if self._lease_target is LeaseTarget.CONTAINER else "blob leader.json in container"
        )
        lines = {
            "backend": "azure_storage",
            "account": f"{endpoints.account} (from {endpoints.source}, by {way_in})",
            "table": f"{endpoints.table.url}/{self._table.table_name}",
            "queues": endpoints.queue.url,
            "lease": f"{lease} {endpoints.blob.url}/{self._container.container_name}",
        }
        for alias, account in self._accounts.items():
            if alias:
                lines[f"alias {alias}"] = f"{account.endpoints.account} at {account.endpoints.queue.url}"
        return lines

    async def reach(self) -> dict[str, PostdateError | None]:
        """One cheap request to each service; what went wrong, or None.

        A table, container or queue that is missing is an answer all the same, hence None. Services of
        our own account go by name (`table`, `queue`, `blob`), queues of others by `queue@alias`.
        """
        probes: dict[str, tuple[Place, Callable[[], Awaitable[Any]]]] = {
            "table": (self._own.endpoints.table, self._look_at_table),
            "blob": (self._own.endpoints.blob, lambda: self._container.get_container_properties(**_ONCE)),
        }
        for alias, account in self._accounts.items():
            probe = account.queue("postdate-probe").get_queue_properties
            name = f"queue@{alias}" if alias else "queue"
            probes[name] = (account.endpoints.queue, partial(probe, **_ONCE))

        async def ask(name: str) -> PostdateError | None:
            place, call = probes[name]
            try:
                await call()
            except CALL_ERRORS as error:
                if refusal(error) in (Refusal.NOT_PROVISIONED, Refusal.NO_QUEUE, Refusal.GONE):
                    return None
                return translate(error, f"reaching the {place.service} service", place, changes=False)
            return None

        return dict(zip(probes, await asyncio.gather(*map(ask, probes)), strict=True))

    async def _look_at_table(self) -> None:
        pages = self._table.list_entities(results_per_page=1, select=["PartitionKey"], **_ONCE)
        await anext(pages.by_page())

    async def close(self) -> None:
        """Close clients, then the session, and identities last. Safe to call twice."""
        closing: list[Awaitable[Any]] = [self._table.close(), self._container.close()]
        if self._timeouts is not None:
            closing.append(self._timeouts.close())
        if "inbox" in vars(self):
            closing.append(self.inbox.close())
        closing += [account.close() for account in self._accounts.values()]
        await asyncio.gather(*closing)
        await self._session.close()
        await self._credentials.close()


async def open_backend(
    settings: Settings, clock: StorageClock, *, wrap_transport: WrapTransport | None = None
) -> AzureStorageBackend:
    """Open the storage account that the settings name, and those of the aliases. Sends nothing yet.

    Args:
        settings: which account, table and lease.
        clock: learns the service's time from each response of our own account.
        wrap_transport: puts something between the SDK's clients and the network; for tests.

    Raises:
        ConfigurationError: an account's setting is missing or wrong.
    """
    named = {"": settings.account(), **settings.alias_accounts()}
    endpoints = {alias: endpoints_of(account) for alias, account in named.items()}
    # Read before anything is opened, so that a wrong setting leaves nothing to close.
    _ = settings.table_name
    session, credentials, requests = open_session(), Credentials(), RequestCounter()
    accounts = {
        alias: AccountClients(
            one, credentials.of(one), session, None if alias else clock, requests, wrap_transport
        )
        for alias, one in endpoints.items()
    }
    return AzureStorageBackend(settings, clock, session, accounts, credentials, requests)
