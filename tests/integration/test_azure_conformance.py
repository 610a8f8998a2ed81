"""The Azure Storage backend keeps every contract of `postdate.ports`, on Azurite."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.data.tables.aio import TableClient

from postdate.backends.azure_storage import AzureStorageBackend, open_backend
from postdate.clock import StorageClock, SystemClock
from postdate.settings import LeaseTarget, Settings
from postdate.testing.conformance import (
    DelayedStoreChangesConformance,
    DelayedStoreConformance,
    LeaseHarness,
    LeaseStoreConformance,
    PayloadHarness,
    PayloadStoreConformance,
    QueueConformance,
    QueueHarness,
    StoreHarness,
)


@pytest.fixture
async def backend(postdate_settings: Settings) -> AsyncIterator[AzureStorageBackend]:
    opened = await open_backend(postdate_settings, StorageClock(SystemClock()))
    yield opened
    await opened.close()


@pytest.fixture
async def store_harness(
    backend: AzureStorageBackend, postdate_settings: Settings
) -> AsyncIterator[StoreHarness]:
    await backend.store.create()
    other = postdate_settings.model_copy(update={"endpoint": postdate_settings.endpoint + "-absent"})
    absent = await open_backend(other, StorageClock(SystemClock()))
    plain = TableClient.from_connection_string(
        postdate_settings.connection.get_secret_value(), postdate_settings.table_name
    )

    async def insert(properties: dict[str, Any]) -> None:
        await plain.create_entity(properties)

    yield StoreHarness(backend.store, absent.store, insert)
    await plain.close()
    await absent.close()


class TestReading(DelayedStoreConformance):
    @pytest.fixture
    async def harness(self, store_harness):
        return store_harness


class TestWriting(DelayedStoreChangesConformance):
    @pytest.fixture
    async def harness(self, store_harness):
        return store_harness


class TestPayloads(PayloadStoreConformance):
    @pytest.fixture
    async def harness(self, backend):
        await backend.lease.create()
        return PayloadHarness(backend.payloads)


class TestQueues(QueueConformance):
    @pytest.fixture
    async def harness(self, backend, endpoint_name):
        await backend.sender.create(endpoint_name)
        # The emulator's time can't be moved, so these few seconds pass.
        return QueueHarness(
            backend.sender, backend.receiver, endpoint_name, endpoint_name + "-absent", asyncio.sleep
        )


class TestContainerLease(LeaseStoreConformance):
    @pytest.fixture
    async def harness(self, backend):
        # A lease of 15 s, the shortest there is, expires once in this suite.
        return LeaseHarness(backend.new_lease, asyncio.sleep)


class TestBlobLease(LeaseStoreConformance):
    @pytest.fixture
    async def harness(self, postdate_settings):
        on_blob = postdate_settings.model_copy(update={"lease_target": LeaseTarget.BLOB})
        backend = await open_backend(on_blob, StorageClock(SystemClock()))
        yield LeaseHarness(backend.new_lease, asyncio.sleep)
        await backend.close()

    test_an_expired_lease_can_be_taken_and_is_lost_to_the_first = None  # 15 s once are enough
