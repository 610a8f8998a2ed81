"""A death, a freeze or a fault at every call: no message is lost, and no effect is had twice.

Each run stops one process at one call to the storage service, the first, the second, and so on: before the
call is applied, or after. Then another process takes over, and each message must have had its effects once:
a record, and one message downstream, which has as many copies as need be under one id.
"""

import asyncio
import itertools
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta

import pytest
from inbox_cases import CLAIM, bill, consume, inbox_of, open_processes

from postdate.errors import OutcomeUnknown, ServiceBusy

ORDERS = ["order-0", "order-1", "order-2"]
CALLS = {
    "inbox": ("claim", "prolong", "complete", "release", "settle", "create", "records"),
    "sender": ("send", "exists"),
    "receiver": ("receive", "ack", "nack"),
}


class Trouble:
    """Acts at the n-th call of a process to the service."""

    def __init__(self, number, when, how):
        self.number, self.when, self.how = number, when, how
        self.calls = 0
        self.happened = asyncio.Event()
        self.buried = False
        self.thawed = asyncio.Event()

    def install(self, backend):
        for part, names in CALLS.items():
            for name in names:
                self._wrap(getattr(backend, part), name)

    def _wrap(self, port, name):
        inner = getattr(port, name)

        async def call(*args, **kwargs):
            await asyncio.sleep(0)
            self.calls += 1
            if self.happened.is_set() and self.how != "fault":
                await self._still()
            if self.calls != self.number:
                return await inner(*args, **kwargs)
            if self.when == "after":
                (answer,) = await asyncio.gather(inner(*args, **kwargs), return_exceptions=True)
            self.happened.set()
            if self.how == "fault":
                raise OutcomeUnknown("no answer") if self.when == "after" else ServiceBusy("503")
            await self._still()
            if self.when == "before":
                return await inner(*args, **kwargs)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        setattr(port, name, call)

    async def _still(self):
        """A dead process does nothing more; a frozen one goes on when it is thawed."""
        if self.buried:
            raise ServiceBusy("the process is dead")
        await self.thawed.wait()
        if self.buried:
            raise ServiceBusy("the process is dead")


async def scenario(trouble):
    """One process meets its trouble; a second one takes over; then the first goes on, if it was frozen."""
    async with open_processes(2) as (one, two):
        for order in ORDERS:
            await one.endpoint.send("orders", order, message_id=order)
        trouble.install(one.backend)
        working = asyncio.create_task(consume(one, inbox_of(one), bill))
        watching = asyncio.create_task(trouble.happened.wait())
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(4):
            # The messages become visible, and claims end.
            await one.clock.advance(CLAIM + 1)
            await consume(two, inbox_of(two), bill)
        trouble.buried = trouble.how == "death"
        trouble.thawed.set()
        with suppress(ServiceBusy, OutcomeUnknown):
            await working
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        # Whoever is left over comes back, now to a process of the best health.
        await one.clock.advance(CLAIM + 1)
        await consume(two, inbox_of(two), bill)
        return await outcome(two)


async def outcome(world):
    """Of each order: its records, the copies of its invoice, and how often a consumer downstream took one."""
    at = world.clock.now() - timedelta(hours=1)
    records = {order: await inbox_of(world).recorded(order, at=at) for order in ORDERS}
    copies = defaultdict(list)
    for message in world.opened("invoices"):
        order = message.body.partition(b'"order":"')[2].partition(b'"')[0].decode()
        copies[order].append((message.message_id, message.body))
    taken = defaultdict(int)

    async def take(delivery, _once):
        taken[delivery.json()["order"]] += 1

    await consume(world, inbox_of(world, "shipping"), take, "invoices")
    left = world.in_queue("orders") + world.in_queue("invoices")
    return records, copies, taken, left


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["death", "freeze", "fault"])
async def test_each_effect_is_had_once_wherever_a_process_stops(how, when):
    healthy = Trouble(0, when, how)
    await scenario(healthy)
    assert healthy.calls > 15
    for number in range(1, healthy.calls + 1):
        trouble = Trouble(number, when, how)
        records, copies, taken, left = await scenario(trouble)
        where = f"call {number}"
        assert left == [], where
        assert copies.keys() == set(ORDERS), where
        for order in ORDERS:
            # All copies are one message, and it is of the attempt whose record was kept.
            assert len(set(copies[order])) == 1, where
            attempt = records[order]["bill"]["attempt"]
            assert copies[order][0][1] == f'{{"order":"{order}","attempt":{attempt}}}'.encode(), where
            assert taken[order] == 1, where
        assert sum(map(len, copies.values())) <= len(ORDERS) + 1, where
        assert trouble.happened.is_set(), where


async def cancelled_after(turns):
    """Whether the work was done by then; and what became of all."""
    async with open_processes(2) as (one, two):
        for order in ORDERS:
            await one.endpoint.send("orders", order, message_id=order)
        Trouble(0, "before", "fault").install(one.backend)  # each call is a turn of the loop
        working = asyncio.create_task(consume(one, inbox_of(one), bill))
        for _ in range(turns):
            await asyncio.sleep(0)
        done = working.done()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        for _ in range(3):
            await one.clock.advance(CLAIM + 1)
            await consume(two, inbox_of(two), bill)
        return done, await outcome(two)


async def test_each_effect_is_had_once_wherever_a_task_is_cancelled():
    for turns in itertools.count(1):
        done, (records, copies, taken, left) = await cancelled_after(turns)
        where = f"turn {turns}"
        assert left == [], where
        assert all(records[order] for order in ORDERS), where
        assert [len(set(copies[order])) for order in ORDERS] == [1, 1, 1], where
        assert [taken[order] for order in ORDERS] == [1, 1, 1], where
        if done:
            break
    assert turns > 30  # the sweep went through all of the work
