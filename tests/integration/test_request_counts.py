"""Each attempt that reaches the service is counted once, by what it does and how it ended; on Azurite."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from azure_cases import delayed, rig_for

from postdate import Endpoint, Outgoing
from postdate.cli.cost import pace_of
from postdate.core import forecast
from postdate.errors import ServiceBusy, StorageError
from postdate.events import RequestsCounted
from postdate.model.requests import Outcome, RequestKind, Service, by_operation
from postdate.ports import LeaseLost
from postdate.settings import load_prices
from postdate.testing.signals import EventLog

QUERY = RequestKind(Service.TABLE, "query")
INSERT = RequestKind(Service.TABLE, "insert")
PUT = RequestKind(Service.QUEUE, "put message")
RENEW = RequestKind(Service.BLOB, "renew lease")
#: Larger than one upload, so that it goes in blocks.
LARGE = b"x" * 1_500_000


def since(before, backend):
    after = backend.requests.counts()
    return {key: n - before.get(key, 0) for key, n in after.items() if n > before.get(key, 0)}


@pytest.fixture
async def rig(postdate_settings):
    async with rig_for(postdate_settings) as made:
        yield made


async def test_as_many_are_counted_as_reached_the_transport(rig):
    before = rig.backend.requests.counts()
    await rig.add(250)
    await rig.backend.sender.create("orders")
    for _ in range(5):
        await rig.backend.sender.send("orders", "x")
    for received in await rig.backend.receiver.receive("orders", count=3, visibility_s=30):
        await rig.backend.receiver.ack(received)
    await rig.backend.payloads.put("big", LARGE, keep_until=delayed().due_at)
    await rig.backend.payloads.delete("big")
    assert await rig.backend.lease.acquire("me", 15, 0.0) is not None
    await rig.backend.lease.renew(15)
    await rig.backend.lease.release()
    counted = since(before, rig.backend)
    assert sum(counted.values()) == len(rig.faults.calls)
    assert counted[PUT, Outcome.OK] == rig.faults.count("queue.send") == 5
    assert counted[RENEW, Outcome.OK] == rig.faults.count("lease.renew") == 1
    assert by_operation(counted)["table batch"] == {"ok": 3}


async def test_each_retry_counts_and_is_told_by_its_answer(rig):
    before = rig.backend.requests.counts()
    rig.faults.on("table.query", times=2).respond(503, "ServerBusy", headers={"Retry-After": "0"})
    assert await rig.rows() == []
    assert since(before, rig.backend) == {(QUERY, Outcome.THROTTLED): 2, (QUERY, Outcome.OK): 1}


async def test_a_refusal_counts_as_one(rig):
    before = rig.backend.requests.counts()
    assert not await rig.backend.sender.exists("nowhere")
    kind = RequestKind(Service.QUEUE, "get metadata")
    assert since(before, rig.backend) == {(kind, Outcome.REFUSED): 1}


async def test_a_request_without_an_answer_counts_as_failed(rig):
    await rig.backend.sender.create("orders")
    before = rig.backend.requests.counts()
    rig.faults.on("queue.send").break_connection()
    with pytest.raises(StorageError):
        await rig.backend.sender.send("orders", "x")
    assert since(before, rig.backend) == {(PUT, Outcome.FAILED): 1}


async def test_what_never_left_is_not_counted(rig):
    await rig.backend.sender.create("orders")
    before = rig.backend.requests.counts()
    rig.faults.on("queue.send").refuse_connection()
    with pytest.raises(StorageError):
        await rig.backend.sender.send("orders", "x")
    with pytest.raises(LeaseLost):
        await rig.backend.sender.send("orders", "x", guard=lambda: False)
    assert since(before, rig.backend) == {}


async def test_a_server_error_that_is_no_throttling_counts_as_failed(rig):
    before = rig.backend.requests.counts()
    rig.faults.on("lease.renew").respond(500, "InternalError")
    assert await rig.backend.lease.acquire("me", 15, 0.0) is not None
    with pytest.raises(ServiceBusy):
        await rig.backend.lease.renew(15)
    await rig.backend.lease.release()
    assert since(before, rig.backend)[RENEW, Outcome.FAILED] == 1


async def test_in_a_whole_life_every_request_is_known_and_priced(postdate_settings):
    log = EventLog()
    orders = f"orders-{postdate_settings.endpoint[-8:].lower()}"
    async with Endpoint(postdate_settings, observers=[log]) as endpoint:
        await endpoint.setup(orders)
        handles = [await endpoint.schedule(orders, n, delay=timedelta(hours=1)) for n in range(3)]
        await endpoint.cancel(handles[0])
        await endpoint.reschedule(handles[1], delay=timedelta(hours=2))
        await endpoint.get(handles[2])
        hidden = await endpoint.schedule(orders, "hidden", delay=20)
        await endpoint.reschedule(hidden, delay=25)
        await endpoint.schedule_many(Outgoing(orders, n, delay=timedelta(hours=3)) for n in range(120))
        await endpoint.send(orders, LARGE)
        await endpoint.send(orders, "x")
        stop = asyncio.Event()
        running = asyncio.create_task(endpoint.run(stop))
        await endpoint.schedule(orders, "now", delay=0)
        handled = 0
        async for delivery in endpoint.receive(orders):
            if delivery.dequeue_count == 1:
                await delivery.nack()
            else:
                await delivery.ack()
                handled += 1
            if handled == 3:
                break
        stop.set()
        await running
        await endpoint.parts.backend.lease.break_lease()
        await endpoint.parts.backend.sender.delete(orders)
        in_all = endpoint.parts.backend.requests.counts()
    told = log.of(RequestsCounted)
    assert len(told) == 2  # at the end of serving, and at the close
    summed: dict[str, int] = {}
    for record in told:
        assert record.unpriced == ()
        for operation, outcomes in record.counts.items():
            summed[operation] = summed.get(operation, 0) + sum(outcomes.values())
    assert summed == {name: sum(n.values()) for name, n in by_operation(in_all).items()}
    assert {kind for kind, _ in in_all} <= set(load_prices(None).meters)


async def test_a_single_pass_and_a_large_body_cost_what_is_forecast(postdate_settings):
    orders = f"orders-{postdate_settings.endpoint[-8:].lower()}"
    async with Endpoint(postdate_settings) as endpoint:
        await endpoint.setup(orders)
        await endpoint.deliver_due()  # the first one finds no word of a leader
    async with Endpoint(postdate_settings) as endpoint:
        await endpoint.deliver_due()
        assert operations(endpoint) == dict(forecast.single_pass())
    async with Endpoint(postdate_settings) as endpoint:
        await endpoint.send(orders, b"x" * 100_000)
        async for delivery in endpoint.receive(orders):
            await delivery.ack()
            break
        blobs = {kind: n for kind, n in operations(endpoint).items() if kind.service == Service.BLOB}
        assert blobs == dict(forecast.large_body())


async def test_handing_over_many_costs_what_is_forecast(postdate_settings):
    orders, count = f"orders-{postdate_settings.endpoint[-8:].lower()}", 1000
    async with Endpoint(postdate_settings) as endpoint:
        await endpoint.setup(orders)
        # All within one hour, and within the reach of one pass.
        due_at = endpoint.parts.clock.now().replace(minute=30, second=0, microsecond=0) - timedelta(hours=1)
        held = [replace(delayed(n, due_at), destination=orders) for n in range(count)]
        await endpoint.parts.backend.store.add(held)
        before = operations(endpoint)
        assert (await endpoint.deliver_due()).handed_over == count
        asked = {kind: n - before.get(kind, 0) for kind, n in operations(endpoint).items()}
    expected = forecast.times(count, forecast.handed_over(pace_of(postdate_settings)))
    assert asked[PUT] == expected[PUT]
    # The pages end with one that is not full, and the next due time is asked for.
    assert asked[QUERY] - expected[QUERY] <= 3
    assert asked[forecast.BATCH] == pytest.approx(expected[forecast.BATCH], rel=0.2)


def operations(endpoint):
    found: dict[RequestKind, float] = {}
    for (kind, _), count in endpoint.parts.backend.requests.counts().items():
        found[kind] = found.get(kind, 0) + count
    return found
