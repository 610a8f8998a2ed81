"""A storage account as the benchmark itself talks to it, and as the contenders that we wrote do."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from azure.core.exceptions import AzureError, HttpResponseError, ResourceExistsError
from azure.core.pipeline.transport import AioHttpTransport, AsyncHttpTransport, HttpRequest
from azure.data.tables.aio import TableClient
from azure.storage.blob.aio import BlobLeaseClient, ContainerClient
from azure.storage.queue.aio import QueueClient

from postdate.backends.azure_storage.clients import API_VERSION, AccountClients, Credentials
from postdate.backends.azure_storage.connection import endpoints_of
from postdate.backends.azure_storage.hot_calls import HotQueues, HotTable, RefusedCall, Transport
from postdate.backends.azure_storage.rows import chunks, json_of, wire_bytes
from postdate.backends.azure_storage.transport import ObservingTransport, open_session
from postdate.bench.observe import Recorder
from postdate.bench.workload import seconds_of
from postdate.clock import StorageClock, SystemClock
from postdate.concurrency import for_each
from postdate.core.clock_offset import OffsetInterval
from postdate.model.keys import RowKey
from postdate.model.requests import RequestCounter, Service
from postdate.settings import Settings

Client = TypeVar("Client", QueueClient, TableClient, ContainerClient)

_TRANSACTIONS = 8
_DELETE_HEADERS = {
    "x-ms-version": "2019-02-02",
    "DataServiceVersion": "3.0",
    "Accept": "application/json;odata=minimalmetadata",
}


class OneByOne(HotTable):
    """The lean pipeline with a delete of one row, which ours does not have: it deletes by the hundred."""

    async def delete_one(self, key: RowKey, etag: str) -> None:
        """Delete a row of this version; one that is gone is no error.

        Raises:
            RefusedCall: it was changed, or the service said no.
        """
        url = f"{self._url}(PartitionKey='{key.partition}',RowKey='{key.row}')"
        request = HttpRequest("DELETE", url, {**_DELETE_HEADERS, "If-Match": etag})
        response = (await self._pipeline.run(request, retry_total=0)).http_response
        if response.status_code not in (204, 404):
            raise RefusedCall(response)


class Account:
    """One session on the account of some settings. An async context manager."""

    def __init__(self, settings: Settings, recorder: Recorder | None = None) -> None:
        self.settings = settings
        #: The service's clock, learned from all answers that come through here.
        self.clock = StorageClock(SystemClock())
        #: Counts what the contender on this session asks.
        self.requests = RequestCounter()
        self.endpoints = endpoints_of(settings.account())
        self._credentials = Credentials()
        self.credential = self._credentials.of(self.endpoints)
        self._recorder = recorder
        self._session = open_session()
        self._clients: list[Any] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.close()
        await self._session.close()
        await self._credentials.close()

    def transport(self, service: Service) -> AsyncHttpTransport[Any, Any]:
        """A transport on the session, watched by the recorder if there is one."""
        observing = ObservingTransport(self._session, service, self.clock, self.requests)
        return observing if self._recorder is None else self._recorder.wrap(observing)

    def plain_transport(self) -> AsyncHttpTransport[Any, Any]:
        """The SDK's transport on the session, neither watched nor counted."""
        plain: AsyncHttpTransport[Any, Any] = AioHttpTransport(
            session=self._session, session_owner=False, use_env_settings=False
        )
        return plain

    def queue(self, name: str) -> QueueClient:
        """The SDK's client of a queue, with its own policies, on our session."""
        return self._kept(
            QueueClient(
                self.endpoints.queue.url,
                name,
                credential=self.credential,
                transport=self.transport(Service.QUEUE),
                api_version=API_VERSION,
            )
        )

    def table(self) -> TableClient:
        """The SDK's client of the endpoint's table, with its own policies, on our session."""
        return self._kept(
            TableClient(
                self.endpoints.table.url,
                self.settings.table_name,
                credential=self.credential,
                transport=self.transport(Service.TABLE),
            )
        )

    def container(self) -> ContainerClient:
        """The SDK's client of the container that carries the lease."""
        return self._kept(
            ContainerClient(
                self.endpoints.blob.url,
                self.settings.table_name,
                credential=self.credential,
                transport=self.transport(Service.BLOB),
                api_version=API_VERSION,
            )
        )

    def hot_queues(self, transport: Transport | None = None) -> HotQueues:
        """Putting messages through the lean pipeline."""
        used = transport or self.transport(Service.QUEUE)
        return HotQueues(self.endpoints.queue.url, API_VERSION, self.credential, used)

    def one_by_one(self, transport: Transport | None = None) -> OneByOne:
        """The endpoint's table through the lean pipeline."""
        used = transport or self.transport(Service.TABLE)
        return OneByOne(
            self.endpoints.table.url, self.settings.table_name, self.credential, used, {"retry_total": 0}
        )

    async def insert(self, entities: Sequence[dict[str, Any]]) -> dict[RowKey, str]:
        """Insert rows, a hundred at a time; their etags."""
        table = self.one_by_one()
        etags: dict[RowKey, str] = {}
        encoded = [(RowKey(one["PartitionKey"], one["RowKey"]), json_of(one)) for one in entities]

        async def write(chunk: list[tuple[RowKey, bytes]]) -> None:
            found = await table.insert([json for _, json in chunk])
            etags.update(zip((key for key, _ in chunk), found, strict=True))

        sized = ((one, one[0].partition, wire_bytes(one[1])) for one in encoded)
        await for_each(chunks(sized), _TRANSACTIONS, write)
        return etags

    async def provision(self, *queues: str) -> None:
        """Make the endpoint's table and container, and queues."""
        await self.table().create_table()
        await self.container().create_container()
        for name in queues:
            await self.queue(name).create_queue()

    async def provision_alias(self, alias: str, queue: str) -> None:
        """Make a queue in a further account."""
        endpoints = endpoints_of(self.settings.alias_accounts()[alias])
        clients = AccountClients(
            endpoints, self._credentials.of(endpoints), self._session, None, self.requests, None
        )
        try:
            await clients.queue(queue).create_queue()
        finally:
            await clients.close()

    async def remove(self, *queues: str) -> None:
        """Delete what `provision` made; what is not there is no error.

        Raises:
            AzureError: something could not be deleted; the rest was tried.
        """
        answers = await asyncio.gather(
            self.table().delete_table(),
            self._remove_container(),
            *(self.queue(name).delete_queue() for name in queues),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, AzureError) and getattr(answer, "status_code", None) != 404:
                raise answer

    async def _remove_container(self) -> None:
        container = self.container()
        with suppress(AzureError):
            # Of a process that was killed: a container under a lease can't be deleted.
            await BlobLeaseClient(container).break_lease(0)
        await container.delete_container()

    async def clear(self, queue: str) -> None:
        """Remove all messages of a queue."""
        await self.queue(queue).clear_messages()

    async def know_the_time(self, queue: str, *, within_s: float = 0.005, tries: int = 30) -> None:
        """Ask until the service's clock is known to `within_s`, or `tries` are used up.

        A try waits, up to a second, for the instant at which an answer tells most.
        """
        client = self.queue(queue)
        for _ in range(tries):
            local = self.clock.monotonic()
            await self.clock.sleep(self.clock.good_probe(local) - local)
            await client.get_queue_properties()
            uncertainty = self.clock.uncertainty
            if uncertainty is not None and uncertainty <= within_s:
                return

    def _kept(self, client: Client) -> Client:
        self._clients.append(client)
        return client


def interval_of(clock: StorageClock) -> OffsetInterval | None:
    """What a clock knows of the service's: the offset to the machine's monotonic clock, as bounds."""
    if clock.uncertainty is None:
        return None
    before = clock.monotonic()
    low, high = (seconds_of(instant) for instant in (clock.now(), clock.latest()))
    after = clock.monotonic()
    return OffsetInterval(low - after, high - before, after)


async def take_lease(container: ContainerClient, seconds: int) -> Any | None:
    """The lease on a container, or None: somebody else holds it."""
    try:
        return await container.acquire_lease(seconds)
    except ResourceExistsError:
        return None


async def renew_lease(lease: Any) -> bool:
    """Whether it is still ours."""
    try:
        await lease.renew()
    except HttpResponseError as error:
        if error.status_code == 409:
            return False
        raise
    return True


async def give_back(lease: Any) -> None:
    """Free a lease, if it is still ours."""
    with suppress(AzureError):
        await lease.release()
