"""Failures that last: nothing is tried in a hot loop, and what is back is noticed soon."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from engine_cases import NEVER_CRITICAL, Outage, open_world

from postdate import Outgoing
from postdate.errors import NotProvisioned, ServiceBusy, StorageError, StorageUnreachable
from postdate.events import HandedOver

ROWS = 100
MINUTES = 5
RETRY_MAXIMUM = 60
#: The longest pause of a pass, of an elector and of a queue that is left alone.
LONGEST_PAUSE = 10
#: Passes come at whole seconds, and one more for what it takes.
BEAT = 2


@dataclass(frozen=True)
class Trouble:
    """Something that fails for long, what it may cost in a minute, and how soon it is over."""

    starts: Callable[[Any], Outage]
    #: Calls that fail in the first minute, and in each one after it, at most.
    first_minute: int
    each_minute: int
    #: Seconds from the end of the trouble to the last delivery, at most.
    over_within: float


def table(world):
    return Outage(StorageUnreachable).of(world.backend.store, "due", "next_due", "remove", "update")


def removals(world):
    return Outage(ServiceBusy).of(world.backend.store, "remove")


def queues(error):
    return lambda world: Outage(error).of(world.backend.sender, "send")


def lease(world):
    return Outage(NotProvisioned, "the container is missing").of(world.backend.lease, "acquire", "renew")


#: Growing pauses reach the longest after six tries; from then on at least half of it lies between two.
QUICK_TRIES = 6
PAUSES_PER_MINUTE = 60 // (LONGEST_PAUSE // 2)
TROUBLES = {
    "the table does not answer": Trouble(
        table, QUICK_TRIES + PAUSES_PER_MINUTE + 1, PAUSES_PER_MINUTE + 1, LONGEST_PAUSE + BEAT
    ),
    # Four tries of each of the two batches that the limit allows, in each pass.
    "rows cannot be removed": Trouble(
        removals, 8 * (QUICK_TRIES + PAUSES_PER_MINUTE), 8 * PAUSES_PER_MINUTE, LONGEST_PAUSE + BEAT
    ),
    # Rows that failed by themselves come again after their back-off, the others when the queue is well.
    "the queue service does not answer": Trouble(
        queues(StorageUnreachable), 30, 15, RETRY_MAXIMUM + LONGEST_PAUSE + BEAT
    ),
    "the queue service is busy": Trouble(queues(ServiceBusy), 30, 15, RETRY_MAXIMUM + LONGEST_PAUSE + BEAT),
    "the lease gives no answer": Trouble(lease, 31 + 60 // 9, 60 // 9 + 1, LONGEST_PAUSE + BEAT),
}


async def each_minute(world, outage):
    """How often something failed, minute by minute."""
    tried = []
    for _ in range(MINUTES):
        before = len(outage.tried)
        await world.clock.advance(60)
        tried.append(len(outage.tried) - before)
    return tried


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES.keys())
@pytest.mark.parametrize("rows", [1, ROWS])
async def test_what_fails_for_long_is_tried_now_and_then_and_over_soon(trouble, rows):
    async with open_world(lookahead=0, on_critical_error=lambda _: None) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        await world.endpoint.schedule_many(Outgoing("orders", n, delay=2 + n / 100) for n in range(rows))
        outage = trouble.starts(world)
        first, *later = await each_minute(world, outage)
        print(f"failed in the first minute {first}, then {later}")
        assert 0 < first <= trouble.first_minute
        assert max(later) <= trouble.each_minute
        assert sum(later) >= MINUTES // 2  # somebody still looks whether it is back
        outage.lasts = False
        over_at = world.clock.now()
        await world.clock.advance(120)
        delivered = {e.message_id: e.handed_over_at for e in world.log.of(HandedOver)}
        assert len(delivered) == rows
        assert world.rows == {}
        assert (max(delivered.values()) - over_at).total_seconds() <= trouble.over_within
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("rows", [1, ROWS])
async def test_an_error_queue_that_is_gone_is_tried_by_each_row_once_a_back_off(rows):
    async with open_world(lookahead=0, number_of_retries=0, **NEVER_CRITICAL) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule_many(Outgoing("gone", n, delay=2) for n in range(rows))
        for queue in ("gone", "error"):
            await world.backend.sender.delete(queue)
        refused = Counter()
        send = world.backend.sender.send

        async def counted(destination, text, **options):
            refused[destination] += 1
            return await send(destination, text, **options)

        world.backend.sender.send = counted
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(60)
        # At 0, 1, 3, 7, 15 and 31 s at the latest, and by jitter at half of that.
        assert rows <= refused["error"] <= 7 * rows
        for _ in range(MINUTES):
            refused.clear()
            await world.clock.advance(60)
            assert refused["gone"] == refused["error"] <= 3 * rows
        await world.backend.sender.create("error")
        await world.clock.advance(RETRY_MAXIMUM + BEAT)
        assert len(world.in_queue("error")) == rows
        assert world.rows == {}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_pause_of_a_pass_that_fails_ends_with_the_window_so_that_the_next_try_decides():
    async with open_world(lookahead=0, time_to_trigger_fetch_circuit_breaker=20) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        tries = []

        async def sick(after=None):
            tries.append(world.clock.monotonic())
            raise StorageError("sick")

        world.backend.store.next_due = sick
        await world.clock.advance(60)
        assert running.done()
        assert 20 <= tries[-1] - tries[0] <= 20.01
        await asyncio.gather(running, return_exceptions=True)


async def test_hours_of_an_outage_of_everything_cost_little_and_lose_nothing():
    async with open_world(lookahead=0, on_critical_error=lambda _: None) as world:
        for n in range(20):
            await world.endpoint.schedule("orders", n, delay=5)
        backend = world.backend
        outage = Outage(StorageUnreachable).of(backend.store, "due", "next_due", "remove", "update", "add")
        outage.of(backend.sender, "send", "exists").of(backend.lease, "acquire", "renew", "release")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(timedelta(hours=2))
        assert len(outage.tried) <= 2 * 60 * 8
        outage.lasts = False
        await world.clock.advance(15)
        assert len(world.in_queue("orders")) == 20
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
