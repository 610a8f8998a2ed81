"""The promises under chaos: random faults, ended, freezes and wrong clocks, in virtual time.

Each seed is one story. Several processes with clocks of their own compete for the lease of one endpoint;
clients schedule, cancel, move and schedule again; a consumer receives. Between every process and the service
lies a network that delays calls, refuses them, loses answers, or delivers a request long after its caller gave
up. Processes crash without a word, freeze and wake, are stopped, and join. Then the network heals, and what was
accepted must have come, not early; what was cancelled must not have.

A seed that fails is run alone with `pytest tests/unit/test_simulation.py -k 'seed and 17'`.
"""

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from random import Random

import pytest

from postdate import CancelOutcome
from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.clock import StorageClock
from postdate.compose import put_together
from postdate.engine.acceptance import Outgoing
from postdate.engine.changes import RescheduleOutcome
from postdate.errors import OutcomeUnknown, PostdateError, ServiceBusy, StorageUnreachable
from postdate.events import Events, PassFinished
from postdate.model.envelope import unwrap
from postdate.ports import LeaseLost
from postdate.settings import load_settings
from postdate.testing.clock import VirtualClock

SEEDS = 150
CHAOS_SECONDS = 40
#: A held row of a broken move waits so long, and its back-off comes on top.
HEALED_SECONDS = 120
LIMIT = 8
CALLS = {
    "store": ("add", "remove", "update", "get", "next_due"),
    "lease": ("acquire", "renew", "release", "holder"),
    "sender": ("send", "withdraw", "hide_again", "exists"),
}


class Dead(Exception):
    """Unwinds what is left of a crashed process when the story is over."""


@dataclass
class Told:
    """What a client knows of one message (told apart by its body)."""

    accepted: bool = False
    #: The due times it was given; it must not come before all of them.
    earliest: list = field(default_factory=list)
    cancelled: int = 0
    unsure: bool = False
    #: A schedule or a move got no answer: there may be a copy that no handle names.
    copies: bool = False


class Process:
    """A machine with a clock of its own, behind a bad network. Its `clock` is what its engine asks."""

    def __init__(self, world, **settings):
        self.world, self.random = world, world.random
        self.offset = timedelta(seconds=self.random.uniform(-7200, 7200))
        self.started = self.random.uniform(0, 1e6)
        self.frozen_until, self.dead = 0.0, False
        self.clock = StorageClock(self)
        self.settings = settings_of(**settings)
        backend = MemoryBackend(world.account, self.settings.table_name, world.clock, frozenset())
        self.lease_id = lambda: backend.lease._lease_id
        for port, names in CALLS.items():
            for name in names:
                self._wrap(getattr(backend, port), name)
        self._wrap_pages(backend.store)
        self.parts = put_together(self.settings, backend, self.clock, Events([world.hear]))
        self.running = None
        service = self.parts.service
        for part in (service._elector, service._poller, service._passes, service._passes._dispatcher):
            part._random = self.random

    # The machine's clock: wall and monotonic have nothing to do with those of the others.

    def now(self):
        return self.world.clock.now() + self.offset

    latest = now
    uncertainty = 0.0

    def monotonic(self):
        return self.world.clock.monotonic() + self.started

    def good_probe(self, after):
        return after

    async def sleep(self, seconds):
        await self.world.clock.sleep(seconds)
        await self._turn()

    pause = sleep

    async def _turn(self):
        """Nothing of a frozen process goes on before it thaws; nothing of a dead one ever does."""
        while (ice := self.frozen_until - self.world.clock.monotonic()) > 0:
            await self.world.clock.sleep(ice)
        if self.dead:
            await self.world.over.wait()
            raise Dead

    # The network.

    def _wrap(self, port, name):
        inner = getattr(port, name)

        async def call(*args, guard=None, **options):
            await self._turn()
            if guard is not None:
                if not guard():
                    raise LeaseLost
                self.world.acted(self)
            elif name == "remove" and len(args) > 1:
                guard, args = args[1], args[:1]
                return await call(*args, guard=guard)
            return await self._through(lambda: inner(*args, **options))

        setattr(port, name, call)

    def _wrap_pages(self, store):
        due = store.due

        async def pages(until):
            async for page in due(until):
                yield await self._through(lambda page=page: answer(page))

        store.due = pages

    async def _through(self, apply):
        """To the service and back, or not."""
        world, sent, fate = self.world, self.monotonic(), self.random.random()
        await world.clock.sleep(self.random.expovariate(20))
        if world.healed or fate > 0.12:
            result = await apply()
            date = world.clock.now().replace(microsecond=0)
            await world.clock.sleep(self.random.expovariate(20))
            await self._turn()
            self.clock.observe(date, sent=sent, received=self.monotonic())
            return result
        if fate < 0.06:
            await self._turn()
            raise self.random.choice([ServiceBusy, StorageUnreachable])("refused")
        world.unknown += 1
        if fate < 0.09:
            await apply()
        else:
            world.later(apply, self.random.uniform(0, 20))
        await self.sleep(self.random.uniform(0, 3))
        raise OutcomeUnknown("no answer")


@cache
def settings_of(**settings):
    return load_settings(**SETTINGS, **settings)


async def answer(value):
    return value


SETTINGS = {
    "endpoint": "Simulation",
    "backend": "memory",
    "number_of_retries": 50,
    "retry_maximum": 5,
    "unremoved_limit": LIMIT,
    "send_concurrency": 4,
}


class World:
    """One story."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.clock, self.account = VirtualClock(), MemoryAccount()
        self.over, self.healed = asyncio.Event(), False
        self.told, self.arrived = defaultdict(Told), defaultdict(set)
        #: Terms cut off by a crash or a freeze, and calls without an answer: each may double something.
        self.unknown = self.ended = self.passes = 0
        self.processes, self.tasks = [], set()
        self.once = seed % 4 == 2
        #: Leaders that look ahead differently: then a cancellation is certain only by the larger of them.
        self.mixed = seed % 4 == 1
        self.lookahead = self.random.choice([0, 5, 30])
        self.service = MemoryBackend(self.account, settings_of().table_name, self.clock, frozenset())

    def start(self, work):
        task = asyncio.create_task(work)
        self.tasks.add(task)
        return task

    def later(self, apply, seconds):
        async def arrive():
            await self.clock.sleep(seconds)
            with suppress(PostdateError, LeaseLost):
                await apply()

        self.start(arrive())

    def hear(self, event):
        self.passes += isinstance(event, PassFinished)

    def acted(self, process):
        """Who sends or removes as a leader holds the lease at that very moment, as the service sees it."""
        slot = self.account.leases[process.settings.table_name]
        assert slot.lease_id == process.lease_id(), "two leaders act"
        assert self.clock.monotonic() < slot.until, "a leader acts without its lease"

    def join(self):
        lookahead = self.random.choice([0, 5, 30]) if self.mixed else self.lookahead
        guarantee = "at_most_once" if self.once else "at_least_once"
        process = Process(self, lookahead=lookahead, guarantee=guarantee)
        process.running = self.start(process.parts.service.serve())
        self.processes.append(process)

    async def trouble(self):
        """Crash, freeze, stop, join; at least one stays."""
        while not self.healed:
            await self.clock.sleep(self.random.uniform(2, 8))
            leaders = [p for p in self.processes if p.parts.elector.term]
            process, what = self.random.choice(leaders * 3 + self.processes), self.random.random()
            process.offset += timedelta(seconds=self.random.uniform(-3600, 3600))
            if what < 0.3:
                process.dead = True
                self.ended += 1
            elif what < 0.6:
                self.ended += 1
                process.frozen_until = self.clock.monotonic() + self.random.uniform(1, 40)
            elif what < 0.75:
                process.running.cancel()
            else:
                continue
            if what < 0.3 or what >= 0.6:
                self.processes.remove(process)
                self.join()

    async def consume(self):
        slot = self.account.queues["orders"].messages
        while not self.over.is_set():
            for fresh in (m for m in slot.values() if not m.dequeue_count):
                body = unwrap(fresh.text, "").message.body.decode()
                assert fresh.visible_at >= min(self.told[body].earliest), f"{body}: early"
            for one in await self.service.receiver.receive("orders", count=32, visibility_s=3):
                self.arrived[unwrap(one.text, "").message.body.decode()].add(one.native_id)
                if self.random.random() < 0.8:
                    await self.service.receiver.ack(one)
            await self.clock.sleep(1)

    async def burst(self):
        """Many messages that are due at once, so that trouble finds the leader at work."""
        process, due = Process(self, lookahead=0), self.clock.now() + timedelta(seconds=20)
        for n in range(12):
            await self.schedule(process, f"burst-{n}", f"burst-{n}", due)

    # --- clients ----------------------------------------------------------------------------------

    async def client(self, number):
        process = Process(self, lookahead=self.random.choice([0, 5, self.lookahead]))
        for n in range(self.random.randint(2, 5)):
            await self.clock.sleep(self.random.uniform(0, 10))
            name, due = f"{number}-{n}", self.clock.now() + timedelta(seconds=self.random.uniform(-1, 45))
            handle = await self.schedule(process, f"{name}-a", name, due)
            if handle is None or self.random.random() < 0.4:
                continue
            body = f"{name}-a"
            if self.random.random() < 0.5 and not self.once:
                handle = await self.move(process, body, handle) or handle
            await self.clock.sleep(self.random.uniform(0, 8))
            rivals = [Process(self, lookahead=0) for _ in range(self.random.choice([0, 0, 1]))]
            answers = await asyncio.gather(*(self.cancel(p, body, handle) for p in [process, *rivals]))
            if CancelOutcome.CANCELLED in answers and not self.told[body].copies:
                await self.schedule(process, f"{name}-b", name, due)

    async def schedule(self, process, body, name, due):
        told = self.told[body]
        told.earliest.append(due)
        for _ in range(1 if self.once else 4):
            try:
                handle = await process.parts.intake.schedule(
                    Outgoing("orders", body, at=due, message_id=name)
                )
            except PostdateError as error:
                told.copies |= isinstance(error, OutcomeUnknown)
                continue
            told.accepted = True
            return handle
        return None

    async def move(self, process, body, handle):
        told, due = self.told[body], self.clock.now() + timedelta(seconds=self.random.uniform(0, 45))
        told.earliest.append(due)
        try:
            result = await process.parts.changes.reschedule(handle, at=due)
        except PostdateError:
            told.copies = True
            return None
        if result.outcome is RescheduleOutcome.MOVED and not told.copies and not self.unknown:
            told.earliest = [due]
        return result.handle

    async def cancel(self, process, body, handle):
        try:
            outcome = await process.parts.changes.cancel(handle)
        except PostdateError:
            self.told[body].unsure = True
            return None
        self.told[body].cancelled += outcome is CancelOutcome.CANCELLED
        return outcome


async def story(seed):
    world = World(seed)
    await world.service.store.create()
    for queue in ("orders", "error"):
        await world.service.sender.create(queue)
    for _ in range(world.random.randint(1, 3)):
        world.join()
    world.start(world.trouble())
    consuming = world.start(world.consume())
    clients = [world.start(work) for work in (world.client(0), world.client(1), world.burst())]
    try:
        await world.clock.advance(CHAOS_SECONDS)
        world.healed = True
        await world.clock.advance(HEALED_SECONDS)
        world.left = len(world.account.tables[settings_of().table_name].rows)
        assert not consuming.done(), consuming
        assert all(client.done() and client.result() is None for client in clients)
        assert not any(process.running.done() for process in world.processes)
    finally:
        world.over.set()
        for task in world.tasks:
            task.cancel()
        await world.clock.advance(100)
        ends = await asyncio.gather(*world.tasks, return_exceptions=True)
    for end in ends:
        rest = end.split(Dead)[1] if isinstance(end, ExceptionGroup) else end
        assert rest is None or isinstance(rest, (asyncio.CancelledError, Dead)), repr(end)
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_happens_the_promises_hold(seed):
    world = await story(seed)
    assert world.left == 0
    assert world.passes < 30 * (CHAOS_SECONDS + HEALED_SECONDS), "somebody spins"
    doubled = Counter()
    for body, told in world.told.items():
        came = len(world.arrived[body])
        doubled[body] = max(0, came - 1)
        assert told.cancelled <= 1, f"{body}: heard twice that it is cancelled"
        if told.cancelled and not told.copies and not world.mixed:
            assert came == 0, f"{body}: cancelled, and delivered"
        if told.accepted and not told.cancelled and not told.unsure and not world.once:
            assert came > 0, f"{body}: lost"
    assert doubled.total() <= world.unknown + LIMIT * world.ended
    if world.once:
        assert doubled.total() == 0
