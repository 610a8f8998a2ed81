"""Punctual and cheap: few messages to the instant, a burst ahead at once, a trickle in few requests."""

import asyncio
from datetime import timedelta

from engine_cases import open_world
from test_leading import stop

from postdate import Outgoing


async def test_a_few_messages_appear_exactly_when_they_are_due():
    async with open_world() as world:
        dues = [world.clock.now() + timedelta(seconds=40 + 0.137 * n) for n in range(60)]
        for n, at in enumerate(dues):
            await world.endpoint.schedule("orders", n, at=at)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(39)
        await stop(running)
        late = [m.visible_at - at for m, at in zip(world.in_queue("orders"), dues, strict=True)]
        assert min(late) >= timedelta(0)
        assert max(late) <= timedelta(milliseconds=1)


async def test_a_burst_goes_out_ahead_at_once_and_is_late_by_less_than_a_second():
    async with open_world() as world:
        at = world.clock.now() + timedelta(seconds=40.5)
        many = [Outgoing("orders", n, at=at) for n in range(2500)]
        await world.endpoint.schedule_many(many)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(20)
        await stop(running)
        late = [m.visible_at - at for m in world.in_queue("orders")]
        assert len(late) == 2500
        assert min(late) >= timedelta(0)
        assert max(late) < timedelta(seconds=1)


async def test_a_steady_hundred_a_second_appear_exactly_when_they_are_due():
    async with open_world() as world:
        start = world.clock.now() + timedelta(seconds=40)
        dues = [start + timedelta(milliseconds=10 * n) for n in range(4000)]
        await world.endpoint.schedule_many(Outgoing("orders", n, at=at) for n, at in enumerate(dues))
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(80)
        await stop(running)
        late = [m.visible_at - at for m, at in zip(world.in_queue("orders"), dues, strict=True)]
        assert min(late) >= timedelta(0)
        assert max(late) <= timedelta(milliseconds=1)


async def test_of_a_burst_nobody_is_later_than_nine_tenths_of_a_second():
    async with open_world() as world:
        start = world.clock.now() + timedelta(seconds=40)
        dues = [start + timedelta(milliseconds=n) for n in range(1000)]
        await world.endpoint.schedule_many(Outgoing("orders", n, at=at) for n, at in enumerate(dues))
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(35)
        await stop(running)
        late = [m.visible_at - at for m, at in zip(world.in_queue("orders"), dues, strict=True)]
        assert min(late) >= timedelta(0)
        assert max(late) <= timedelta(seconds=0.9, milliseconds=1)


async def test_a_trickle_is_gathered_so_that_it_costs_few_requests():
    async with open_world() as world:
        store, queries, removals = world.backend.store, [], []
        due, next_due, remove = store.due, store.next_due, store.remove

        def counting_due(until):
            queries.append("due")
            return due(until)

        async def counting_next(after=None):
            queries.append("next")
            return await next_due(after)

        async def counting_remove(rows, guard=None):
            removals.append(len(rows))
            return await remove(rows, guard)

        store.due, store.next_due, store.remove = counting_due, counting_next, counting_remove
        for n in range(1200):
            await world.endpoint.schedule("orders", n, delay=60 + n / 20)
        queries.clear()
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(125)
        await stop(running)
        assert sum(removals) == 1200
        assert len(queries) + len(removals) <= 0.03 * 1200 + 10


async def test_stopping_does_not_wait_for_the_instant_of_a_send():
    async with open_world() as world:
        await world.endpoint.schedule("orders", "x", delay=40.9)
        await world.clock.advance(20)
        stop = asyncio.Event()
        running = asyncio.create_task(world.endpoint.run(stop))
        await world.clock.advance(0.1)
        assert world.in_queue("orders") == []
        stop.set()
        await world.clock.advance(0)
        await running
        assert len(world.in_queue("orders")) + len(world.rows) == 1


async def test_a_pass_that_a_test_awaits_never_waits_for_a_clock_that_stands_still():
    async with open_world() as world:
        for n in range(20):
            await world.endpoint.schedule("orders", n, delay=40.37 + n / 7)
        await world.clock.advance(20)
        result = await world.endpoint.deliver_due()
        assert result.handed_over == 20
