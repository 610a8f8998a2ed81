"""A fault at every call: nothing that was accepted is lost, nothing comes early, whatever breaks when.

Each run breaks one call to the storage service, the first, the second, and so on: before it is applied, or
after (the answer is lost). Then the service heals, another process takes over, and everything that was
accepted must have arrived or wait in a row that delivers it.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest
from engine_cases import open_world

from postdate.backends.memory import MemoryAccount
from postdate.errors import OutcomeUnknown, PostdateError, ServiceBusy
from postdate.events import HandedOver
from postdate.testing.clock import VirtualClock

CALLS = {
    "store": ("add", "remove", "update", "get", "next_due"),
    "lease": ("acquire", "renew", "release", "holder"),
    "sender": ("send", "exists", "withdraw", "hide_again"),
}


class Fault:
    """Breaks the n-th call to the service."""

    def __init__(self, number, when):
        self.number, self.when = number, when
        self.calls = 0

    def install(self, backend):
        for part, names in CALLS.items():
            for name in names:
                self._wrap(getattr(backend, part), name)
        self._wrap_pages(backend.store)

    def _wrap_pages(self, store):
        """Reading: it breaks before the first page, or after it."""
        inner = store.due

        async def due(until):
            self.calls += 1
            breaks = self.calls == self.number
            if breaks and self.when == "before":
                raise ServiceBusy("503 before the first page")
            async for page in inner(until):
                yield page
                if breaks:
                    raise OutcomeUnknown("the answer broke off after a page")

        store.due = due

    def _wrap(self, port, name):
        inner = getattr(port, name)

        async def call(*args, **kwargs):
            await asyncio.sleep(0)
            self.calls += 1
            if self.calls != self.number:
                return await inner(*args, **kwargs)
            if self.when == "before":
                raise ServiceBusy("503 before the call was applied")
            await inner(*args, **kwargs)
            raise OutcomeUnknown("applied, and the answer was lost")

        setattr(port, name, call)


async def scenario(fault, guarantee):
    """Accept, cancel, move, deliver under one fault; then heal and deliver the rest."""
    account, clock = MemoryAccount(), VirtualClock()
    due, cancelled, unsure = {}, set(), set()
    async with open_world(
        account=account, clock=clock, lookahead=5, guarantee=guarantee, unremoved_limit=4
    ) as world:
        fault.install(world.backend)
        handles = {}
        for n in range(12):
            # Half are short delays, which need no row.
            delay = 3 + 6 * (n % 3)
            at = clock.now() + timedelta(seconds=delay)
            with suppress(PostdateError):
                handles[f"m{n}"] = await world.endpoint.schedule("orders", n, at=at, message_id=f"m{n}")
                due[f"m{n}"] = at
        for name in ("m2", "m5"):
            if name in handles:
                try:
                    if await world.endpoint.cancel(handles[name]) == "cancelled":
                        cancelled.add(name)
                except PostdateError:
                    unsure.add(name)
        if "m8" in handles:
            try:
                moved = await world.endpoint.reschedule(handles["m8"], delay=40)
                due["m8"] = moved.due_at or due["m8"]  # where it failed, not before the first due time
            except PostdateError:
                unsure.add("m8")
        running = asyncio.create_task(world.endpoint.run())
        await clock.advance(25)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        # The process is gone; its lease may not be.
        early = [e for e in world.log.of(HandedOver) if e.handed_over_at < e.due_at - timedelta(seconds=5)]
        assert early == []
    async with open_world(account=account, clock=clock, lookahead=5) as world:
        running = asyncio.create_task(world.endpoint.run())
        await clock.advance(200)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert world.rows == {}
        messages = world.opened("orders")
        visible = {
            opened.message_id: stored.visible_at
            for opened, stored in zip(messages, world.in_queue("orders"), strict=True)
        }
        return due, cancelled, unsure, [m.message_id for m in messages], visible


@pytest.mark.parametrize("when", ["before", "after"])
async def test_at_least_once_loses_nothing_wherever_a_call_breaks(when):
    number, total = 1, 2
    while number <= total:
        fault = Fault(number, when)
        due, cancelled, unsure, arrived, visible = await scenario(fault, "at_least_once")
        # Who could not tell whether a cancellation worked has to take either; a move never loses its message.
        lost = due.keys() - cancelled - (unsure - {"m8"}) - set(arrived)
        assert lost == set(), f"call {number}"
        assert cancelled.isdisjoint(arrived), f"call {number}"
        assert all(visible[m] >= due[m] for m in due.keys() & visible.keys()), f"call {number}"
        doubled = len(arrived) - len(set(arrived))
        assert doubled <= 4, f"call {number}"
        total = fault.calls
        number += 1
    assert number > 35  # the sweep went through a whole scenario


async def test_at_most_once_doubles_nothing_wherever_a_call_breaks():
    number, total = 1, 2
    while number <= total:
        fault = Fault(number, "after")
        _, cancelled, _, arrived, _ = await scenario(fault, "at_most_once")
        assert len(arrived) == len(set(arrived)), f"call {number}"
        assert cancelled.isdisjoint(arrived)
        total = fault.calls
        number += 1
    assert number > 35
