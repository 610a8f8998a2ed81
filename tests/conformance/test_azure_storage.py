"""The Azure Storage backend keeps every contract, on a real storage service (Azurite).

Only its clock can't be moved: where a contract needs time to pass, it passes.
"""

import asyncio
import uuid

import pytest
from azure.data.tables.aio import TableClient

from postdate.backends.azure_storage.backend import open_backend
from postdate.clock import StorageClock, SystemClock
from postdate.model.limits import BINARY_PROPERTY_BYTES
from postdate.settings import LeaseTarget
from postdate.testing.conformance import (
    DelayedStoreChangesConformance,
    DelayedStoreConformance,
    DeliveryLogConformance,
    DeliveryLogHarness,
    InboxHarness,
    InboxStoreConformance,
    LeaseHarness,
    LeaseStoreConformance,
    PayloadHarness,
    PayloadStoreConformance,
    QueueConformance,
    QueueHarness,
    SharedTableConformance,
    SharedTableHarness,
    StoreHarness,
    TimeoutHarness,
    TimeoutStoreConformance,
)


@pytest.fixture
async def backend(postdate_settings):
    opened = await open_backend(postdate_settings, StorageClock(SystemClock()))
    yield opened
    await opened.close()


@pytest.fixture
async def table(postdate_settings, backend, azurite):
    """A client of the table, to reach around the store."""
    await backend.store.create()
    client = TableClient.from_connection_string(azurite.connection_string, postdate_settings.table_name)
    async with client:
        yield client


@pytest.fixture
async def store_harness(postdate_settings, backend, table):
    elsewhere = postdate_settings.model_copy(update={"endpoint": f"absent-{uuid.uuid4()}"})
    absent = await open_backend(elsewhere, StorageClock(SystemClock()))

    async def spoil(key):
        await table.upsert_entity({"PartitionKey": key.partition, "RowKey": key.row, "Headers": "not json"})

    yield StoreHarness(backend.store, absent.store, spoil, largest_body=BINARY_PROPERTY_BYTES)
    await absent.close()


class TestAzureStore(DelayedStoreConformance):
    @pytest.fixture
    def harness(self, store_harness):
        return store_harness


class TestAzureStoreChanges(DelayedStoreChangesConformance):
    @pytest.fixture
    def harness(self, store_harness):
        return store_harness


class TestAzureTable(SharedTableConformance):
    @pytest.fixture
    def harness(self, backend, table):
        async def insert(properties):
            await table.create_entity(properties)

        return SharedTableHarness(backend.store, insert)


@pytest.mark.parametrize("target", list(LeaseTarget))
class TestAzureLease(LeaseStoreConformance):
    @pytest.fixture
    async def harness(self, postdate_settings, target):
        settings = postdate_settings.model_copy(update={"lease_target": target})
        backends = [await open_backend(settings, StorageClock(SystemClock())) for _ in range(10)]
        unused = iter(backends)
        yield LeaseHarness(lambda: next(unused).lease, asyncio.sleep)
        for backend in backends:
            await backend.close()


class TestAzureQueues(QueueConformance):
    @pytest.fixture
    async def harness(self, backend):
        queue, absent = (f"{name}-{uuid.uuid4().hex[:12]}" for name in ("orders", "absent"))
        await backend.sender.create(queue)
        return QueueHarness(
            backend.sender, backend.receiver, queue, absent, asyncio.sleep, hides_past_expiry=True
        )


class TestAzurePayloads(PayloadStoreConformance):
    @pytest.fixture
    async def harness(self, backend):
        await backend.lease.create()
        return PayloadHarness(backend.payloads)


class TestAzureTimeouts(TimeoutStoreConformance):
    @pytest.fixture
    async def harness(self, postdate_settings, azurite):
        def places(**more):
            unique = uuid.uuid4().hex[:12]
            return {
                "timeout_table": f"Timeouts{unique}",
                "timeout_manager_table": f"Manager{unique}",
                "timeout_state_container": f"state-{unique}",
                **more,
            }

        shared = places()
        backends = [
            await open_backend(postdate_settings.model_copy(update=update), StorageClock(SystemClock()))
            for update in (shared, {**shared, "endpoint": "Contoso.Billing"}, places())
        ]
        own, other, absent = (backend.timeouts for backend in backends)
        await own.create()
        table = TableClient.from_connection_string(azurite.connection_string, shared["timeout_table"])

        async with table:

            async def insert(rows):
                await table.submit_transaction([("upsert", row) for row in rows])

            yield TimeoutHarness(own, other, absent, postdate_settings.endpoint, insert)
        for backend in backends:
            await backend.close()


class TestAzureInbox(InboxStoreConformance):
    @pytest.fixture
    async def harness(self, postdate_settings, backend):
        elsewhere = postdate_settings.model_copy(update={"endpoint": f"absent-{uuid.uuid4()}"})
        absent = await open_backend(elsewhere, StorageClock(SystemClock()))
        await backend.inbox.create()
        yield InboxHarness(backend.inbox, absent.inbox, SystemClock().now, asyncio.sleep)
        await absent.close()


class TestAzureDeliveryLog(DeliveryLogConformance):
    @pytest.fixture
    async def harness(self, backend):
        await backend.lease.create()
        return DeliveryLogHarness(backend.delivery_log)
