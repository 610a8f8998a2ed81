"""The SDK's clients and the hot calls, all on one session, with retries and timeouts set in this one place.

What each figure is for (fact sheet 4.2, measured):

- Queue and blob clients wait 15 to 42 s between tries by default (fact 3): here about a second, twice.
- Tables are tried again soon, at most three times, and honour `Retry-After`.
- Whatever must not be repeated silently passes `retry_total=0` at the call, with `calling(once=True)`.
- The queue and blob API version is pinned to one that Azurite 3.36 knows (fact 19).
- The SDK's HTTP log, 0.27 ms per request at INFO (fact sheet 4.4), gets a logger that is always quiet:
  nobody's logging set-up is touched, and no keys or signatures reach a log through it.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import aiohttp
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.data.tables.aio import TableClient
from azure.storage.blob.aio import ContainerClient
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from postdate.backends.azure_storage.connection import Endpoints
from postdate.backends.azure_storage.hot_calls import HotQueues, HotTable
from postdate.backends.azure_storage.transport import ObservingTransport
from postdate.clock import StorageClock
from postdate.model.requests import RequestCounter, Service

WrapTransport = Callable[[AsyncHttpTransport[Any, Any]], AsyncHttpTransport[Any, Any]]

API_VERSION = "2025-11-05"
#: Queue clients kept per account; making one costs 26 µs, and destinations may be many.
QUEUE_CLIENTS = 512

_QUIET = logging.Logger("postdate.azure_http", logging.CRITICAL)  # noqa: LOG001 - outside the tree on purpose
_UPLOAD_BYTES = 1_048_576
_COMMON: dict[str, Any] = {"logging_enable": False, "logger": _QUIET}
_TABLE_RETRIES: dict[str, Any] = {
    "retry_total": 3,
    "retry_connect": 1,
    "retry_read": 1,
    "retry_status": 3,
    "retry_backoff_factor": 0.2,
    "retry_backoff_max": 5,
}
_STORAGE_RETRIES: dict[str, Any] = {
    "retry_total": 2,
    "retry_connect": 1,
    "initial_backoff": 1,
    "increment_base": 0,  # makes the wait constant
    "random_jitter_range": 0.5,
}

Credential = AzureNamedKeyCredential | AzureSasCredential | AsyncTokenCredential


class Credentials:
    """Identities, one per client id for the whole backend; closed last, since clients still ask them."""

    def __init__(self) -> None:
        self._tokens: dict[str | None, AsyncTokenCredential] = {}

    def of(self, endpoints: Endpoints) -> Credential:
        """What opens an account."""
        if endpoints.key is not None:
            return AzureNamedKeyCredential(endpoints.account, endpoints.key)
        if endpoints.sas is not None:
            return AzureSasCredential(endpoints.sas)
        client_id = endpoints.client_id
        if client_id not in self._tokens:
            self._tokens[client_id] = _identity(client_id)
        return self._tokens[client_id]

    async def close(self) -> None:
        """Close what the identities hold open. Safe to call twice."""
        while self._tokens:
            _, credential = self._tokens.popitem()
            await credential.close()


def _identity(client_id: str | None) -> AsyncTokenCredential:
    # Late: importing azure.identity takes 0.3 s, and connection strings don't need it.
    from azure.identity.aio import (  # noqa: PLC0415 - 0.3 s that connection strings need not pay
        DefaultAzureCredential,
        ManagedIdentityCredential,
    )

    if client_id is not None:
        return ManagedIdentityCredential(client_id=client_id)
    return DefaultAzureCredential()


class AccountClients:
    """The clients of one account."""

    def __init__(
        self,
        endpoints: Endpoints,
        credential: Credential,
        session: aiohttp.ClientSession,
        clock: StorageClock | None,
        requests: RequestCounter,
        wrap_transport: WrapTransport | None,
    ) -> None:
        def transport(service: Service) -> AsyncHttpTransport[Any, Any]:
            observing = ObservingTransport(session, service, clock, requests)
            return observing if wrap_transport is None else wrap_transport(observing)

        self.endpoints = endpoints
        self._credential = credential
        self._tables, self._blobs = transport(Service.TABLE), transport(Service.BLOB)
        queues = transport(Service.QUEUE)
        self.queues = QueueServiceClient(
            endpoints.queue.url,
            credential=credential,
            transport=queues,
            api_version=API_VERSION,
            **_STORAGE_RETRIES,
            **_COMMON,
        )
        self._queue_clients: OrderedDict[str, QueueClient] = OrderedDict()
        self.hot_queues = HotQueues(endpoints.queue.url, API_VERSION, credential, queues)

    def hot_table(self, name: str) -> HotTable:
        """A table's transactions and pages; nothing to close."""
        return HotTable(self.endpoints.table.url, name, self._credential, self._tables, _TABLE_RETRIES)

    def table(self, name: str) -> TableClient:
        """A client of a table; the caller closes it."""
        return TableClient(
            self.endpoints.table.url,
            name,
            credential=self._credential,
            transport=self._tables,
            **_TABLE_RETRIES,
            **_COMMON,
        )

    def container(self, name: str) -> ContainerClient:
        """A client of a blob container; the caller closes it."""
        return ContainerClient(
            self.endpoints.blob.url,
            name,
            credential=self._credential,
            transport=self._blobs,
            api_version=API_VERSION,
            # aiohttp writes a larger piece in one go, and holds up the event loop meanwhile.
            max_single_put_size=_UPLOAD_BYTES,
            max_block_size=_UPLOAD_BYTES,
            **_STORAGE_RETRIES,
            **_COMMON,
        )

    def queue(self, name: str) -> QueueClient:
        """A client of a queue, kept for the next call; without encoding: what is given is sent."""
        client = self._queue_clients.pop(name, None)
        if client is None:
            client = self.queues.get_queue_client(name)
            if len(self._queue_clients) >= QUEUE_CLIENTS:
                self._queue_clients.popitem(last=False)
        self._queue_clients[name] = client
        return client

    async def close(self) -> None:
        """Close the account's clients; the session stays open."""
        self._queue_clients.clear()
        await self.queues.close()
