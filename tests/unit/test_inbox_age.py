"""What an inbox remembers goes when it is old, and not before."""

import asyncio

from inbox_cases import DAY, inbox_of, once_of, open_processes

from postdate.errors import ServiceBusy
from postdate.events import InboxCallFailed, InboxForgot


async def fresh(world, message_id, at):
    async with inbox_of(world).once(message_id, at=at) as once:
        return once.fresh


async def test_a_message_is_remembered_for_the_retention_and_then_forgotten():
    async with open_processes(1) as (world,):
        at = world.clock.now()
        assert await fresh(world, "order-7", at)
        await world.clock.advance(7 * DAY)
        assert await inbox_of(world).forget() == 0
        assert not await fresh(world, "order-7", at)
        await world.clock.advance(DAY)
        assert await inbox_of(world).forget() == 1
        assert world.log.of(InboxForgot) == [InboxForgot("billing", 1)]
        assert await fresh(world, "order-7", at)


async def test_a_message_that_came_late_is_remembered_as_long():
    """Its own instant lies far back: it lay in its queue, or in the error queue, for a month."""
    async with open_processes(1) as (world,):
        at = world.clock.now() - 30 * DAY
        assert await fresh(world, "order-7", at)
        await world.clock.advance(6 * DAY)
        assert await inbox_of(world).forget() == 0
        assert not await fresh(world, "order-7", at)
        await world.clock.advance(2 * DAY)
        assert await inbox_of(world).forget() == 1


async def test_each_consumer_has_a_retention_of_its_own():
    async with open_processes(1) as (world,):
        for consumer in ("billing", "shipping"):
            async with once_of(world, consumer=consumer):
                pass
        await world.clock.advance(3 * DAY)
        assert await inbox_of(world, "shipping", retention=DAY).forget() == 1
        assert await inbox_of(world, "billing").forget() == 0
        assert await world.backend.inbox.consumers() == ["billing"]


async def test_a_leader_forgets_once_an_hour_for_the_inboxes_of_its_process():
    async with open_processes(1) as (world,):
        for _ in range(3):  # with a new inbox each time, which are one for the leader
            async with once_of(world, retention=DAY):
                pass
        forget, calls = world.backend.inbox.forget, []

        async def count(*arguments):
            calls.append(arguments)
            return await forget(*arguments)

        world.backend.inbox.forget = count
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(3600)
        assert len(calls) <= 2
        await world.clock.advance(DAY)
        assert world.log.of(InboxForgot) == []
        await world.clock.advance(DAY)
        assert world.log.of(InboxForgot) == [InboxForgot("billing", 1)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_clean_up_that_fails_is_told_and_tried_again():
    async with open_processes(1) as (world,):
        async with once_of(world):
            pass
        forget, failures = world.backend.inbox.forget, []

        async def refuse_once(consumer, before):
            if not failures:
                failures.append(consumer)
                raise ServiceBusy("503")
            return await forget(consumer, before)

        world.backend.inbox.forget = refuse_once
        await world.clock.advance(8 * DAY)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(3700)
        assert [event.doing for event in world.log.of(InboxCallFailed)] == ["forgetting old messages"]
        assert world.log.of(InboxForgot) == [InboxForgot("billing", 1)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
