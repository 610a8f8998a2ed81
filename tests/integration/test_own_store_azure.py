"""An account whose table nobody asks for: rows in a store of the user's own, all else on Azurite."""

import asyncio
from datetime import timedelta

import pytest

from postdate import CancelOutcome, Endpoint
from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.bench.ground import AccountGrounds
from postdate.clock import SystemClock
from postdate.model.requests import Service
from postdate.testing.clock import VirtualClock


class WrongClock(SystemClock):
    """A machine's clock that is an hour behind."""

    def now(self):
        return super().now() - timedelta(hours=1)


@pytest.fixture
async def store():
    made = MemoryBackend(MemoryAccount(), "theirs", VirtualClock(), frozenset()).store
    await made.create()
    return made


@pytest.fixture
def orders(endpoint_name):
    return f"orders-{endpoint_name[-8:]}"


async def test_a_whole_life_makes_no_request_to_the_table_service(postdate_settings, store, orders):
    classic = postdate_settings.model_copy(update={"lookahead": timedelta(0)})
    async with Endpoint(classic, store=store) as endpoint, asyncio.TaskGroup() as tasks:
        assert not any("table" in name for name in await endpoint.setup(orders))
        handle = await endpoint.schedule(orders, "never", delay=3600)
        await endpoint.schedule(orders, "soon", delay=1)
        assert await endpoint.cancel(handle) is CancelOutcome.CANCELLED
        stop = asyncio.Event()
        tasks.create_task(endpoint.run(stop))
        async for delivery in endpoint.receive(orders, idle=timedelta(seconds=30)):
            assert delivery.text == "soon"
            await delivery.ack()
            break
        stop.set()
        requests = endpoint.parts.backend.requests
    services = {kind.service for kind, _ in requests.counts()}
    assert services == {Service.QUEUE, Service.BLOB}
    assert await store.next_due() is None


@pytest.mark.parametrize("change", ["schedule", "reschedule"])
async def test_the_first_call_of_a_process_learns_the_accounts_time(postdate_settings, store, orders, change):
    async with Endpoint(postdate_settings, store=store) as endpoint:
        await endpoint.setup(orders)
        handle = await endpoint.schedule(orders, "x", delay=7200)
    unchecked = postdate_settings.model_copy(update={"check_destinations": False})
    async with Endpoint(unchecked, store=store, clock=WrongClock()) as endpoint:
        if change == "schedule":
            await endpoint.schedule(orders, "y", delay=3600)
        else:
            await endpoint.reschedule(handle, delay=3600)
        due_at = await store.next_due()
    assert timedelta(seconds=3590) < due_at - SystemClock().now() < timedelta(seconds=3610)


async def test_the_benchmark_leaves_the_users_store_alone(postdate_settings):
    theirs = postdate_settings.model_copy(update={"store": "shop.delays:open_store"})
    async with AccountGrounds(theirs).fresh() as ground, Endpoint(ground.settings) as endpoint:
        assert "store" not in endpoint.parts.backend.description
