"""The contracts of `postdate.ports` as test suites, for the shipped backends and for yours.

Subclass a suite in a test module of your own and provide its harness as a fixture; pytest does the rest:

    class TestMyStore(DelayedStoreConformance):
        @pytest.fixture
        async def harness(self): ...
            yield StoreHarness(store=..., absent=..., insert=...)
"""

from postdate.testing.conformance.lease import LeaseHarness, LeaseStoreConformance
from postdate.testing.conformance.payloads import PayloadHarness, PayloadStoreConformance
from postdate.testing.conformance.queues import QueueConformance, QueueHarness
from postdate.testing.conformance.store import DelayedStoreConformance, StoreHarness
from postdate.testing.conformance.store_changes import DelayedStoreChangesConformance

__all__ = [
    "DelayedStoreChangesConformance",
    "DelayedStoreConformance",
    "LeaseHarness",
    "LeaseStoreConformance",
    "PayloadHarness",
    "PayloadStoreConformance",
    "QueueConformance",
    "QueueHarness",
    "StoreHarness",
]
