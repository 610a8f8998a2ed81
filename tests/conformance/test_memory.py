"""The memory backend keeps every contract."""

import pytest

from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.backends.memory.timeouts import MemoryTimeouts
from postdate.model.legacy_timeout import TimeoutPlaces
from postdate.model.limits import BINARY_PROPERTY_BYTES
from postdate.model.rowcodec import encode_row
from postdate.testing.clock import VirtualClock
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
def clock():
    return VirtualClock()


@pytest.fixture
def account():
    return MemoryAccount()


@pytest.fixture
def backend(account, clock):
    return MemoryBackend(account, "delays", clock, frozenset({"accountb"}))


@pytest.fixture
async def store(backend):
    await backend.store.create()
    return backend.store


@pytest.fixture
def store_harness(account, clock, store):
    absent = MemoryBackend(account, "absent", clock, frozenset()).store

    async def spoil(key):
        row = await store.get(key)
        store.insert_raw({**encode_row(row.delayed), "Headers": "not json"})

    return StoreHarness(store, absent, spoil, largest_body=BINARY_PROPERTY_BYTES)


class TestMemoryStore(DelayedStoreConformance):
    @pytest.fixture
    def harness(self, store_harness):
        return store_harness


class TestMemoryStoreChanges(DelayedStoreChangesConformance):
    @pytest.fixture
    def harness(self, store_harness):
        return store_harness


class TestMemoryTable(SharedTableConformance):
    @pytest.fixture
    def harness(self, store):
        async def insert(properties):
            store.insert_raw(properties)

        return SharedTableHarness(store, insert)


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


class TestMemoryTimeouts(TimeoutStoreConformance):
    @pytest.fixture
    async def harness(self, account):
        def store(owner, table):
            return MemoryTimeouts(account.timeouts, TimeoutPlaces(owner, table=table))

        own = store("Contoso.Orders", "timeouts")
        await own.create()

        async def insert(rows):
            for row in rows:
                own.insert_raw(row)

        return TimeoutHarness(
            own,
            store("Contoso.Billing", "timeouts"),
            store("Contoso.Orders", "absent"),
            "Contoso.Orders",
            insert,
        )


class TestMemoryInbox(InboxStoreConformance):
    @pytest.fixture
    async def harness(self, account, clock, backend):
        await backend.inbox.create()
        absent = MemoryBackend(account, "delays", clock, frozenset(), inbox_table="absent")
        return InboxHarness(backend.inbox, absent.inbox, clock.now, clock.advance)


class TestMemoryDeliveryLog(DeliveryLogConformance):
    @pytest.fixture
    def harness(self, backend):
        return DeliveryLogHarness(backend.delivery_log)
