"""Rarer ways to lose, double or hold up a message, each once seen in the engine."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import NEVER_CRITICAL, open_world

from postdate import CancelOutcome
from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.clock import StorageClock
from postdate.compose import put_together
from postdate.engine.acceptance import Outgoing
from postdate.errors import AccessDenied, MessageTooLarge, OutcomeUnknown, ServiceBusy, StorageUnreachable
from postdate.events import Events
from postdate.model.envelope import unwrap
from postdate.settings import load_settings
from postdate.testing.clock import VirtualClock


async def ended(world, running):
    running.cancel()
    await world.clock.advance(30)
    assert running.done()
    await asyncio.gather(running, return_exceptions=True)


# --- scheduled again ------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["cancelled", "moved"])
async def test_a_short_delay_that_was_cancelled_or_moved_can_be_scheduled_again(change):
    async with open_world() as world:
        again = {"at": world.clock.now() + timedelta(seconds=10), "message_id": "id-1"}
        handle = await world.endpoint.schedule("orders", "x", **again)
        assert await world.endpoint.schedule("orders", "x", **again) == handle
        if change == "cancelled":
            await world.endpoint.cancel(handle)
        else:
            await world.endpoint.reschedule(handle, delay=20)
        assert await world.endpoint.schedule("orders", "x", **again) != handle
        await world.clock.advance(10)
        assert len(await world.take("orders")) == 1


@pytest.mark.parametrize("second", ["after a cancellation", "at another time"])
async def test_the_same_large_message_scheduled_again_is_not_taken_for_a_duplicate(second):
    async with open_world() as world:
        large, due = b"x" * 100_000, world.clock.now() + timedelta(seconds=100)
        handle = await world.endpoint.schedule("orders", large, at=due, message_id="id-1")
        if second == "after a cancellation":
            assert await world.endpoint.cancel(handle) is CancelOutcome.CANCELLED
        expected = 1 if second == "after a cancellation" else 2
        at = due if expected == 1 else due + timedelta(seconds=100)
        await world.endpoint.schedule("orders", large, at=at, message_id="id-1")
        bodies = []
        for _ in range(2):
            await world.clock.advance(100)
            await world.endpoint.deliver_due()
            await world.clock.advance(1)
            async for delivery in world.endpoint.receive("orders", idle=timedelta(0)):
                bodies.append(delivery.body)
                await delivery.ack()
        assert bodies == [large] * expected


# --- the machine's clock is wrong and no answer came yet ------------------------------------------


@pytest.mark.parametrize("wrong_by", [timedelta(hours=-1), timedelta(hours=1)])
@pytest.mark.parametrize("what", ["at", "delay", "move"])
async def test_a_wrong_machine_clock_sends_nothing_early_although_the_first_call_asks_no_own_queue(
    wrong_by, what
):
    true = VirtualClock()
    machine = VirtualClock(true.now() + wrong_by)
    clock = StorageClock(machine)
    settings = load_settings(endpoint="Unit.Tests", backend="memory", check_destinations=False)
    backend = MemoryBackend(MemoryAccount(), settings.table_name, true, frozenset())
    await backend.store.create()
    await backend.sender.create("orders")
    next_due = backend.store.next_due

    async def observed(after=None):
        clock.observe(true.now(), sent=machine.monotonic(), received=machine.monotonic())
        return await next_due(after)

    backend.store.next_due = observed
    parts = put_together(settings, backend, clock, Events([]))
    due = true.now() + timedelta(hours=1, seconds=20)
    if what == "at":
        await parts.intake.schedule(Outgoing("orders", "x", at=due))
    elif what == "delay":
        due = true.now() + timedelta(seconds=20)
        await parts.intake.schedule(Outgoing("orders", "x", delay=20))
    else:
        other = put_together(settings, backend, true, Events([]))
        handle = await other.intake.schedule(Outgoing("orders", "x", delay=10))
        await parts.changes.reschedule(handle, at=due)
    slot = backend.sender._queues["orders"].messages.values()
    assert all(due <= m.visible_at <= due + timedelta(seconds=2) for m in slot)
    assert len(slot) + len(backend.store._slot().rows) == 1


# --- certain answers ------------------------------------------------------------------------------


async def test_a_leader_with_a_larger_lookahead_that_comes_between_look_and_removal_makes_it_unsure():
    async with open_world(lookahead=30) as world:
        handle = await world.endpoint.schedule("orders", "x", delay=100)
        await world.clock.advance(50)
        async with open_world(account=world.account, clock=world.clock, lookahead=60) as leader:
            send, remove = leader.backend.sender.send, world.backend.store.remove
            removed, read = asyncio.Event(), asyncio.Event()

            async def slow_send(*args, **options):
                read.set()
                await removed.wait()
                return await send(*args, **options)

            async def late_remove(rows, guard=None):
                passing.append(asyncio.create_task(leader.endpoint.deliver_due()))
                await read.wait()
                return await remove(rows, guard)

            passing = []
            leader.backend.sender.send, world.backend.store.remove = slow_send, late_remove
            with pytest.raises(OutcomeUnknown, match="either cancelled or delivered"):
                await world.endpoint.cancel(handle)
            removed.set()
            await passing[0]
        assert len(world.in_queue("orders")) == 1


async def test_a_move_whose_removal_is_applied_late_does_not_lose_the_message():
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=3600)
        store, remove = world.backend.store, world.backend.store.remove

        async def unanswered(rows, guard=None):
            late.append((rows, guard))
            raise OutcomeUnknown("no answer; the request is under way")

        late = []
        store.remove = unanswered
        with pytest.raises(OutcomeUnknown):
            await world.endpoint.reschedule(handle, delay=7200)
        store.remove = remove
        for rows, guard in late:
            await remove(rows, guard)
        assert len(world.rows) == 1


# --- one thing that fails -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ServiceBusy, AccessDenied, OutcomeUnknown])
async def test_rows_that_cannot_be_removed_bound_what_a_crash_can_double(error):
    async with open_world(lookahead=0, unremoved_limit=10, **NEVER_CRITICAL) as world:
        for n in range(300):
            await world.endpoint.schedule("orders", n, delay=1)
        await world.clock.advance(1)
        store, remove = world.backend.store, world.backend.store.remove

        async def refuse(rows, guard=None):
            raise error("no")

        store.remove = refuse
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(300)
        assert len(world.in_queue("orders")) == 10
        store.remove = remove
        await world.clock.advance(60)
        await ended(world, running)
        assert (len(world.in_queue("orders")), world.rows) == (300, {})


async def test_a_busy_queue_does_not_hold_up_the_others_of_its_account():
    async with open_world(lookahead=0) as world:
        await world.backend.sender.create("deleting")
        for n in range(100):
            await world.endpoint.schedule("deleting", n, delay=1)
        for n in range(50):
            await world.endpoint.schedule("orders", n, delay=2)
        send = world.backend.sender.send

        async def half(destination, text, **options):
            await world.clock.sleep(0.01)
            if destination == "deleting":
                raise ServiceBusy("409 QueueBeingDeleted")
            return await send(destination, text, **options)

        world.backend.sender.send = half
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(4)
        assert len(world.in_queue("orders")) == 50
        await ended(world, running)


async def test_a_row_that_refuses_its_back_off_stops_nobody():
    async with open_world(lookahead=0) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=1)
        await world.endpoint.schedule("orders", "y", delay=5)
        await world.backend.sender.delete("gone")

        async def refuse(*_, **__):
            raise MessageTooLarge("413 EntityTooLarge")

        world.backend.store.update = refuse
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(7)
        assert not running.done()
        assert len(world.in_queue("orders")) == 1
        await ended(world, running)


async def test_at_most_once_keeps_the_rows_of_an_account_that_is_left_alone():
    settings = {"guarantee": "at_most_once", "lookahead": 0, "send_concurrency": 4}
    async with open_world(**settings, **NEVER_CRITICAL) as world:
        for n in range(100):
            await world.endpoint.schedule("orders", n, delay=1)
        await world.clock.advance(1)
        send, down = world.backend.sender.send, True

        async def unreachable(destination, text, **options):
            if down:
                raise StorageUnreachable("nobody listens")
            return await send(destination, text, **options)

        world.backend.sender.send = unreachable
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(60)
        assert len(world.rows) == 100
        down = False
        await world.clock.advance(180)
        await ended(world, running)
        bodies = [unwrap(m.text, m.native_id).message.body for m in world.in_queue("orders")]
        assert sorted(map(int, bodies)) == list(range(100))


@pytest.mark.parametrize("error", [KeyError("a bug"), asyncio.CancelledError()])
async def test_an_election_that_ends_by_a_bug_ends_the_run_and_gives_the_lease_back(error):
    async with open_world() as world:

        async def broken(duration_s):
            raise error

        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        world.backend.lease.renew = broken
        await world.clock.advance(10)
        assert running.done()
        with pytest.raises(ExceptionGroup):
            await running
        assert (await world.backend.lease.holder()).leased is False
