"""What is asked of any delayed message store and stands in no other file; docs/explain/failures.md has the list."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import open_world

from postdate.events import HandedOver, PassFinished, TermLost
from postdate.testing.clock import settle

HUNDRED_MS = timedelta(seconds=0.1)


async def ended(world, running):
    running.cancel()
    await world.clock.advance(30)
    await asyncio.gather(running, return_exceptions=True)


async def test_an_idle_leader_hands_over_at_the_due_time_and_nothing_before():
    async with open_world(lookahead=0) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(timedelta(minutes=20))
        due = world.clock.now() + timedelta(seconds=5)
        await world.endpoint.schedule("orders", "x", at=due)
        await world.clock.advance(4.999)
        assert world.in_queue("orders") == []
        await world.clock.advance(0.101)
        (told,) = world.log.of(HandedOver)
        assert timedelta(0) <= told.handed_over_at - due <= HUNDRED_MS
        await ended(world, running)


async def test_a_row_whose_storing_takes_longer_than_its_delay_wakes_the_leader_when_it_is_there():
    async with open_world(lookahead=0, idle_interval=60) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(timedelta(minutes=20))
        add, stored_at = world.backend.store.add, []

        async def slow(messages):
            await world.clock.sleep(0.2)
            results = await add(messages)
            stored_at.append(world.clock.now())
            return results

        world.backend.store.add = slow
        scheduling = asyncio.create_task(world.endpoint.schedule("orders", "x", delay=0.001))
        await world.clock.advance(1)
        await scheduling
        (told,) = world.log.of(HandedOver)
        assert told.handed_over_at - stored_at[0] <= 3 * HUNDRED_MS
        await ended(world, running)


@pytest.mark.parametrize("last_look", [False, True], ids=["its rows are read", "its last look is answered"])
async def test_a_row_that_is_stored_while_a_pass_is_under_way_is_not_overlooked(last_look):
    async with open_world(lookahead=0, idle_interval=60) as world:
        store, due, next_due = world.backend.store, world.backend.store.due, world.backend.store.next_due
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def held(until):
            async for page in due(until):
                yield page
            reading.set()
            await go_on.wait()

        async def held_look(*arguments):
            found = await next_due(*arguments)
            if world.log.of(HandedOver):  # the pass asks when it has to be back
                reading.set()
                await go_on.wait()
            return found

        await world.endpoint.schedule("orders", "first", delay=1)
        if last_look:
            store.next_due = held_look
        else:
            store.due = held
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        await reading.wait()
        store.due, store.next_due = due, next_due
        # Read already, and the pass is not over.
        await world.endpoint.schedule("orders", "second", delay=0.01)
        await world.clock.advance(0.1)
        go_on.set()
        await world.clock.advance(0.1)
        assert [m.body for m in world.opened("orders")] == [b"first", b"second"]
        await ended(world, running)


@pytest.mark.parametrize("delay", [timedelta(days=25), timedelta(days=400), timedelta(days=3105)], ids=str)
async def test_however_far_away_a_message_is_no_sleep_is_longer_than_a_minute_and_it_comes_in_time(delay):
    async with open_world(lookahead=0, disable_timeout_manager=True) as world:
        due = world.clock.now() + delay
        await world.endpoint.schedule("orders", "x", at=due)
        running = asyncio.create_task(world.endpoint.run())
        slept, inner = [], world.clock.sleep

        async def listened(seconds):
            slept.append(seconds)
            await inner(seconds)

        world.clock.sleep = listened
        await world.clock.advance(timedelta(minutes=30))
        # Those that say what was counted and clean up are no part of the leader's loop.
        assert max(seconds for seconds in slept if seconds not in (300.0, 3600.0)) <= 60
        await ended(world, running)
        await world.clock.advance(due - world.clock.now() - timedelta(seconds=30))
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(29.9)
        assert world.in_queue("orders") == []
        await world.clock.advance(0.2)
        (told,) = world.log.of(HandedOver)
        assert timedelta(0) <= told.handed_over_at - due <= HUNDRED_MS
        await ended(world, running)


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)], ids=["back", "ahead"])
async def test_a_clock_that_jumps_by_an_hour_loses_no_row_and_makes_nobody_spin(step):
    async with open_world(lookahead=0) as world:
        for n in range(60):
            await world.endpoint.schedule("orders", n, delay=5 + n)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(20.25)
        before = len(world.log.of(PassFinished))
        world.clock.step(step)
        await world.clock.advance(60)
        assert len(world.log.of(PassFinished)) - before <= 20 * 60
        assert world.log.of(TermLost) == []  # leases go by a clock that nobody sets
        await world.clock.advance(timedelta(hours=1))
        assert sorted(int(m.body) for m in world.opened("orders")) == list(range(60))
        assert world.rows == {}
        await ended(world, running)


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
async def test_stopping_waits_for_a_slow_dispatch_and_leaves_the_row_delivered_or_whole(guarantee):
    async with open_world(lookahead=0, guarantee=guarantee) as world:
        await world.endpoint.schedule("orders", "x", delay=1)
        send, sending = world.backend.sender.send, asyncio.Event()

        async def slow(*args, **options):
            sending.set()
            await world.clock.sleep(7)
            return await send(*args, **options)

        world.backend.sender.send = slow
        stop = asyncio.Event()
        running = asyncio.create_task(world.endpoint.run(stop))
        await world.clock.advance(1)
        await sending.wait()
        stop.set()
        await settle()
        running.cancel()  # not even this cuts it short
        await world.clock.advance(6.9)
        assert not running.done()
        await world.clock.advance(0.2)
        assert running.done()
        assert (len(world.in_queue("orders")), world.rows) == (1, {})
        await asyncio.gather(running, return_exceptions=True)
