"""What is critical ends `run` cleanly, or is told to `on_critical_error`, which decides."""

import asyncio
import logging
import threading

import pytest
from engine_cases import Outage, breakers_on, open_world

from postdate.backends.memory import MemoryAccount
from postdate.engine.breakers import CriticalError
from postdate.errors import CriticalFailure, ServiceBusy, StorageUnreachable
from postdate.events import BreakerTriggered, HandedOver, TermBegan, TermEnded, TermLost
from postdate.sync import Endpoint as SyncEndpoint
from postdate.testing.clock import VirtualClock, settle
from postdate.testing.signals import EventLog

WINDOW = {"time_to_trigger_fetch_circuit_breaker": 5}


async def fails(world, seconds=30):
    """Break the table, and let time pass."""
    outage = Outage(StorageUnreachable, "nobody listens").of(world.backend.store, "due", "next_due")
    await world.clock.advance(seconds)
    return outage


# --- by default -----------------------------------------------------------------------------------


async def test_by_default_run_stops_cleanly_and_raises_one_line_with_the_way_out():
    async with open_world(lookahead=0, **WINDOW) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.endpoint.schedule("orders", "x", delay=1)
        await world.clock.advance(2)
        await fails(world)
        with pytest.raises(CriticalFailure) as raised:
            await running
        text = str(raised.value)
        assert text.startswith(
            "Failed to fetch due delayed messages from the storage, since 2026-03-01T12:00"
        )
        assert "nobody listens" in text
        assert "`postdate doctor`" in text
        assert "\n" not in text
        assert isinstance(raised.value.__cause__, StorageUnreachable)
        assert raised.value.exit_code == 1
        assert (await world.backend.lease.holder()).leased is False
        assert [len(world.log.of(kind)) for kind in (TermEnded, TermLost)] == [1, 0]
        assert len(world.log.of(BreakerTriggered)) == 1
        assert world.rows == {}


async def test_rows_of_what_was_sent_are_removed_before_run_ends():
    async with open_world(lookahead=0, send_concurrency=2) as world:
        for n in range(40):
            await world.endpoint.schedule("orders", n, delay=1)
        send = world.backend.sender.send

        async def slow(*args, **options):
            await world.clock.sleep(1)
            return await send(*args, **options)

        world.backend.sender.send = slow
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(5.5)
        world.endpoint.parts.breakers.critical("disk", "Failed to write", OSError("full"))
        await world.clock.advance(5)
        with pytest.raises(CriticalFailure, match=r"Failed to write, since .*: full"):
            await running
        sent = len(world.in_queue("orders"))
        assert 0 < sent < 40
        assert len(world.rows) == 40 - sent
        assert len(world.log.of(HandedOver)) == sent


async def test_the_same_endpoint_can_run_again():
    async with open_world(lookahead=0, **WINDOW) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        outage = await fails(world)
        with pytest.raises(CriticalFailure):
            await running
        outage.lasts = False
        await world.endpoint.schedule("orders", "x", delay=1)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(60)
        assert not running.done()
        assert len(world.in_queue("orders")) == 1
        assert len(world.log.of(TermBegan)) == 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_who_was_asked_to_stop_before_ends_without_an_error():
    async with open_world(lookahead=0) as world:
        stop, sending, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        send = world.backend.sender.send

        async def held(*args, **options):
            sending.set()
            await go_on.wait()
            return await send(*args, **options)

        world.backend.sender.send = held
        await world.endpoint.schedule("orders", "x", delay=1)
        await world.clock.advance(1)
        running = asyncio.create_task(world.endpoint.run(stop))
        await sending.wait()
        stop.set()
        await settle()
        world.endpoint.parts.breakers.critical("disk", "Failed to write", OSError("full"))
        go_on.set()
        await running
        assert world.rows == {}


async def test_where_nobody_serves_it_is_told_as_an_event_and_a_later_run_is_not_ended_by_it():
    async with open_world(lookahead=0) as world:
        world.endpoint.parts.breakers.critical("disk", "Failed to write", OSError("full"))
        (event,) = world.log.of(BreakerTriggered)
        assert (event.breaker, event.text, event.error) == ("disk", "Failed to write", "OSError: full")
        assert event.since == world.clock.now()
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(60)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# --- with a callback ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_a_callback_that_returns_means_go_on(form):
    told = []

    async def awaited(record):
        await asyncio.sleep(0)
        told.append(record)

    callback = told.append if form == "plain" else awaited
    async with open_world(lookahead=0, on_critical_error=callback, **WINDOW) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        outage = await fails(world, 120)
        assert not running.done()
        (record,) = told
        assert isinstance(record, CriticalError)
        assert record.breaker == "fetch"
        outage.lasts = False
        await world.endpoint.schedule("orders", "x", delay=1)
        await world.clock.advance(15)
        assert len(world.in_queue("orders")) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("form", ["plain", "async"])
async def test_a_callback_that_raises_is_logged_and_run_ends(form, caplog):
    def broken(record):
        raise KeyError("a bug of theirs")

    async def awaited(record):
        broken(record)

    callback = broken if form == "plain" else awaited
    async with open_world(lookahead=0, on_critical_error=callback, **WINDOW) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        with caplog.at_level(logging.ERROR, "postdate"):
            await fails(world)
        with pytest.raises(CriticalFailure):
            await running
        assert any("on_critical_error" in r.getMessage() and r.exc_info for r in caplog.records)


async def test_a_callback_that_takes_its_time_holds_up_no_delivery_and_not_the_end():
    async def slow(_):
        await asyncio.Event().wait()

    async with open_world(lookahead=0, on_critical_error=slow) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        world.endpoint.parts.breakers.critical("disk", "Failed to write", OSError("full"))
        await world.endpoint.schedule("orders", "x", delay=1)
        await world.clock.advance(2)
        assert len(world.in_queue("orders")) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "postdate-on-critical-error"]


async def test_a_reason_is_one_line_whatever_the_error_says():
    log = EventLog()
    breakers = breakers_on(VirtualClock(), log)

    async def serve(stop):
        await stop.wait()

    watching = asyncio.create_task(breakers.watch(serve))
    await settle()
    breakers.critical("disk", "Failed to write", OSError("one\ntwo"))
    with pytest.raises(CriticalFailure) as raised:
        await watching
    assert str(raised.value).count("\n") == 0


async def test_two_that_serve_on_the_same_breakers_both_end():
    breakers = breakers_on(VirtualClock())

    async def serve(stop):
        await stop.wait()

    watching = [asyncio.create_task(breakers.watch(serve)) for _ in range(2)]
    await settle()
    breakers.critical("disk", "Failed to write", OSError("full"))
    ends = await asyncio.gather(*watching, return_exceptions=True)
    assert [type(end) for end in ends] == [CriticalFailure, CriticalFailure]


async def test_what_serving_raises_is_raised():
    async def serve(stop):
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        await breakers_on(VirtualClock()).watch(serve, asyncio.Event())


# --- without await --------------------------------------------------------------------------------


def test_the_synchronous_endpoint_ends_and_tells_alike():
    told, account = [], MemoryAccount()
    settings = {"backend": "memory", "memory": account, "lookahead": 0, "probe_interval": 0.02}
    windows = {f"time_to_trigger_{part}_circuit_breaker": 0.05 for part in ("fetch", "store", "dispatch")}

    def stop(record):
        told.append((record.breaker, threading.current_thread().name))
        raise RuntimeError("end it")

    with SyncEndpoint("Sync.Tests", on_critical_error=stop, **settings, **windows) as endpoint:
        endpoint.setup("orders")
        Outage(ServiceBusy).of(endpoint._endpoint.parts.backend.store, "due", "next_due")
        with pytest.raises(CriticalFailure):
            endpoint.run()
    assert told == [("fetch", "postdate-sync")]
