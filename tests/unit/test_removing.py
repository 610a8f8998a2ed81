"""Rows of what was handed over are removed in batches, and never in the way of what is sent next."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import breakers_on, open_world

from postdate import Outgoing
from postdate.engine.remover import HandedOverRows, Remover
from postdate.errors import ServiceBusy
from postdate.events import Events
from postdate.model.delayed import DelayedMessage, DelayedRow
from postdate.model.message import Message
from postdate.testing.clock import VirtualClock, settle

LIMIT = 100
SEND, REMOVAL = 0.01, 0.05


class Store:
    """Removes in its own time; batches that hold a row with one of the ids in `failing` it does not."""

    def __init__(self, clock, failing=()):
        self.clock, self.failing = clock, set(failing)
        self.sizes, self.removed = [], 0

    async def remove(self, rows, guard=None):
        self.sizes.append(len(rows))
        await self.clock.sleep(REMOVAL)
        if self.failing.intersection(row.delayed.message.message_id for row in rows):
            raise ServiceBusy("busy")
        self.removed += len(rows)
        return [True] * len(rows)


def remover_on(store, limit=LIMIT):
    return Remover(
        store,
        store.clock,
        Events([]),
        guard=lambda: True,
        breaker=breakers_on(store.clock).dispatch,
        limit=limit,
        handed_over=HandedOverRows(),
    )


def row(number, clock):
    delayed = DelayedMessage(Message(f"m{number}", {}, b""), "orders", clock.now())
    return DelayedRow(delayed.key, f"v{number}", delayed)


async def send_all(remover, clock, count, *, at_once=16):
    """As a pass sends: a place for each, some at once; True when all went."""
    gate = asyncio.Semaphore(at_once)

    async def one(number):
        await clock.sleep(SEND)
        gate.release()
        remover.add(row(number, clock))

    async with asyncio.TaskGroup() as sends:
        for number in range(count):
            if not await remover.reserve():
                return False
            await gate.acquire()
            sends.create_task(one(number))
    await remover.flush()
    return True


async def finished(work, clock, within=timedelta(minutes=5)):
    task = asyncio.create_task(work)
    await settle()
    await clock.advance(within)
    assert task.done(), "it hangs"
    return task.result()


@pytest.mark.parametrize(("limit", "most"), [(100, 50), (200, 100)])
async def test_however_slow_removals_are_rows_go_in_full_batches(limit, most):
    clock = VirtualClock()
    store = Store(clock)
    assert await finished(send_all(remover_on(store, limit), clock, 10 * limit), clock)
    assert store.removed == 10 * limit
    assert len(store.sizes) <= 10 * limit / most * 1.1 + 1


async def test_rows_that_wait_behind_a_removal_that_failed_are_removed_and_nobody_hangs():
    clock = VirtualClock()
    store = Store(clock, failing=["m0"])
    assert await finished(send_all(remover_on(store), clock, 500), clock)
    assert store.removed == 500 - store.sizes[0]


async def test_when_nothing_can_be_removed_sending_ends_at_the_limit():
    clock = VirtualClock()
    store = Store(clock, failing=[f"m{n}" for n in range(500)])
    remover = remover_on(store)
    assert not await finished(send_all(remover, clock, 500), clock)
    assert remover.full
    assert store.removed == 0


@pytest.mark.parametrize("limit", [2, 3])
async def test_the_smallest_limits_work_too(limit):
    clock = VirtualClock()
    store = Store(clock)
    assert await finished(send_all(remover_on(store, limit), clock, 50), clock)
    assert store.removed == 50


async def test_a_partition_that_is_busy_after_each_read_is_emptied_all_the_same():
    async with open_world(lookahead=0) as world:
        store = world.backend.store
        due, remove = store.due, store.remove
        busy_until = 0.0

        def reading(until):
            nonlocal busy_until
            busy_until = world.clock.monotonic() + 5
            return due(until)

        async def refused(rows, guard=None):
            if world.clock.monotonic() < busy_until:
                raise ServiceBusy("503")
            return await remove(rows, guard)

        await world.endpoint.schedule_many(Outgoing("orders", n, delay=1) for n in range(300))
        store.due, store.remove = reading, refused
        await world.clock.advance(1)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(300)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(world.rows) == 0
        assert len(world.in_queue("orders")) == 300
