"""The memory backend keeps every contract."""

import pytest

from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.testing.clock import VirtualClock
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
def clock():
    return VirtualClock()


@pytest.fixture
def account():
    return MemoryAccount()


@pytest.fixture
def backend(account, clock):
    return MemoryBackend(account, "delays", clock, frozenset({"accountb"}))


@pytest.fixture
async def store_harness(account, clock, backend):
    await backend.store.create()

    async def insert(properties):
        backend.store.insert_raw(properties)

    absent = MemoryBackend(account, "absent", clock, frozenset())
    return StoreHarness(backend.store, absent.store, insert)


class TestMemoryStore(DelayedStoreConformance):
    @pytest.fixture
    def harness(self, store_harness):
        return store_harness


class TestMemoryStoreChanges(DelayedStoreChangesConformance):
    @pytest.fixture
    def harness(self, store_harness):
        return store_harness


class TestMemoryLease(LeaseStoreConformance):
    @pytest.fixture
    def harness(self, account, clock):
        return LeaseHarness(lambda: MemoryBackend(account, "delays", clock, frozenset()).lease, clock.advance)


class TestMemoryQueues(QueueConformance):
    @pytest.fixture
    async def harness(self, backend, clock):
        await backend.sender.create("orders")
        return QueueHarness(backend.sender, backend.receiver, "orders", "absent", clock.advance)


class TestMemoryPayloads(PayloadStoreConformance):
    @pytest.fixture
    def harness(self, backend):
        return PayloadHarness(backend.payloads)
