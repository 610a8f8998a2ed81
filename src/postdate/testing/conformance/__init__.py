"""The contracts of `postdate.ports` as test suites, for the shipped backends and for yours.

Subclass a suite in a test module of your own and provide its harness as a fixture; pytest does the rest:

    class TestMyStore(DelayedStoreConformance):
        @pytest.fixture
        async def harness(self):
            async with MyStore("there") as store, MyStore("nowhere") as absent:
                await store.create()
                yield StoreHarness(store, absent, spoil)

A delayed store needs `DelayedStoreConformance` and `DelayedStoreChangesConformance`, on a store that is empty
for each test. `SharedTableConformance` is for those that share a table with .NET endpoints. The suites need
pytest-asyncio with `asyncio_mode = auto`. How to write a store, step by step: docs/how-to/own-store.md.
"""

from postdate.testing.conformance.delivery_log import DeliveryLogConformance, DeliveryLogHarness
from postdate.testing.conformance.inbox import InboxHarness, InboxStoreConformance
from postdate.testing.conformance.lease import LeaseHarness, LeaseStoreConformance
from postdate.testing.conformance.payloads import PayloadHarness, PayloadStoreConformance
from postdate.testing.conformance.queues import QueueConformance, QueueHarness
from postdate.testing.conformance.shared_table import SharedTableConformance, SharedTableHarness
from postdate.testing.conformance.store import DelayedStoreConformance, StoreHarness
from postdate.testing.conformance.store_changes import DelayedStoreChangesConformance
from postdate.testing.conformance.timeouts import TimeoutHarness, TimeoutStoreConformance

__all__ = [
    "DelayedStoreChangesConformance",
    "DelayedStoreConformance",
    "DeliveryLogConformance",
    "DeliveryLogHarness",
    "InboxHarness",
    "InboxStoreConformance",
    "LeaseHarness",
    "LeaseStoreConformance",
    "PayloadHarness",
    "PayloadStoreConformance",
    "QueueConformance",
    "QueueHarness",
    "SharedTableConformance",
    "SharedTableHarness",
    "StoreHarness",
    "TimeoutHarness",
    "TimeoutStoreConformance",
]
