"""The scenario of the article with somebody in its way: a consumer that is killed, and a backlog beside it."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from test_retries import memory_settings

from bench.retries import MESSAGES, RETRIES, Scenario
from postdate import Endpoint
from postdate.backends.memory import MemoryAccount
from postdate.errors import StorageUnreachable
from postdate.model import headers as h
from postdate.model.envelope import unwrap, wrap
from postdate.model.message import Message
from postdate.testing.clock import VirtualClock

UNIT = timedelta(seconds=1)
KILLED_AT = 100
ATTEMPTS = MESSAGES * (RETRIES + 1)
#: The retry that is under way when the 13 before it are over: 1 + 2 + ... + 13 = 91, and 14 more are 105.
RETRY_AT_KILL = 14
VISIBILITY = 30


class Stage:
    """An account in virtual time, and what became of the scenario on it."""

    def __init__(self):
        self.clock, self.account, self.scenario = VirtualClock(), MemoryAccount(), Scenario()
        self.began = self.clock.monotonic()

    @asynccontextmanager
    async def consumer(self, **changes):
        """One open endpoint with the scenario's handler."""
        settings = memory_settings(UNIT).model_copy(update=changes)
        endpoint = Endpoint(settings, clock=self.clock, memory=self.account, observers=[self.scenario.hear])
        async with self.scenario.on(endpoint, self.clock.monotonic):
            yield endpoint

    async def until(self, second):
        await self.clock.advance(self.began + second - self.clock.monotonic())

    def check(self, *, late):
        """E1 to E3, E5, E6: every attempt is there once, and none early; `late`: of the k-th retry, at most."""
        scenario = self.scenario
        assert len(scenario.attempts) == ATTEMPTS == 420
        assert set(Counter(a.order for a in scenario.attempts).values()) == {RETRIES + 1}
        wanted = {(str(n), k) for n in range(1, MESSAGES + 1) for k in range(1, RETRIES + 2)}
        assert {(a.order, a.number) for a in scenario.attempts} == wanted
        gaps = scenario.gaps(UNIT)
        assert len(gaps) == MESSAGES * RETRIES == 400
        assert min(gap.real - gap.asked for gap in gaps) >= -1e-6  # the rounding of sums
        assert [gap for gap in gaps if gap.real - gap.asked > late(gap.retry)] == []
        queues = self.account.queues
        failed = [unwrap(m.text, m.native_id).message for m in queues["error"].messages.values()]
        assert sorted(m.message_id for m in failed) == sorted(f"order-{n}" for n in range(1, MESSAGES + 1))
        assert all(h.RETRIES not in m.headers for m in failed)
        assert all(not slot.messages for name, slot in queues.items() if name != "error")


class Kill:
    """What a killed process asks of the storage service goes nowhere, from that instant on."""

    def __init__(self, endpoint):
        self.dead = False
        self._over = asyncio.Event()
        backend = endpoint.parts.backend
        for part, names in (
            (backend.receiver, ("receive", "ack", "nack", "extend")),
            (backend.sender, ("send", "exists", "withdraw", "hide_again")),
            (backend.lease, ("acquire", "renew", "release")),
            (backend.store, ("next_due", "remove", "update", "add")),
        ):
            for name in names:
                self._cut(part, name)

    def _cut(self, part, name):
        inner = getattr(part, name)

        async def call(*arguments, **options):
            if self.dead:
                await self._over.wait()
                raise StorageUnreachable("killed")
            return await inner(*arguments, **options)

        setattr(part, name, call)

    def bury(self):
        """The test is over: let its tasks end."""
        self._over.set()


@asynccontextmanager
async def killable(stage):
    """A consumer that serves until it is killed, and whose remains are cleared away at the end."""
    async with stage.consumer() as endpoint:
        kill, stop = Kill(endpoint), asyncio.Event()
        running = asyncio.create_task(endpoint.run(stop))
        try:
            yield endpoint, kill
        finally:
            stop.set()
            kill.bury()
            await stage.clock.advance(60)
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("in_hand", [False, True], ids=["all put off", "all in hand"])
async def test_a_consumer_killed_at_second_100_is_taken_over_from_without_a_loss(in_hand):
    """E10: 420 attempts and 400 delays all the same, none early."""
    stage = Stage()
    async with stage.consumer() as other, killable(stage) as (first, kill):
        await first.setup()
        await stage.scenario.send(first)
        await stage.until(KILLED_AT)
        before = len(stage.scenario.attempts)
        assert before == MESSAGES * RETRY_AT_KILL
        if in_hand:  # the next attempts are made, and what should become of the messages is never written
            handling = first.parts.backend.receiver
            nack = handling.nack

            async def dies(*arguments, **options):
                kill.dead = True
                return await nack(*arguments, **options)

            handling.nack = dies
            await stage.until(106)
            assert len(stage.scenario.attempts) == before + MESSAGES
        assert kill.dead == in_hand
        kill.dead = True
        stop = asyncio.Event()
        running = asyncio.create_task(other.run(stop))
        for _ in range(200):
            await stage.clock.advance(1)
            if stage.scenario.all_failed.is_set():
                break
        stop.set()
        await stage.clock.advance(30)
        await running
        # Messages in hand come back when their visibility timeout is over.
        stage.check(late=lambda retry: VISIBILITY + 1 if in_hand and retry == RETRY_AT_KILL + 1 else 1)


# --- a backlog ------------------------------------------------------------------------------------

BACKLOG = 10_000
PLACES = 40
#: Seconds of work for each message, so that the backlog of second 50 is there for 5.5 s, and the retries of
#: second 55 come behind its end.
WORK = 0.022
BEGINS, RETRIED = 50, 55


class Backlog:
    """Messages of another type that are handled beside those that fail: all that are in hand end together."""

    def __init__(self, stage, endpoint):
        self.stage, self.handled_at, self._tick = stage, {}, asyncio.Event()

        @endpoint.handler(bytes, names=["Backlog"])
        async def work(body: bytes) -> None:
            await self._tick.wait()
            self.handled_at[body] = stage.clock.monotonic() - stage.began

    async def work(self):
        """Let whoever is at work end, again and again."""
        while True:
            await self.stage.clock.sleep(WORK)
            tick, self._tick = self._tick, asyncio.Event()
            tick.set()

    async def send(self, endpoint, count):
        sender, queue = endpoint.parts.backend.sender, endpoint.settings.own_queue
        for n in range(count):
            message = Message(f"backlog-{n}", {h.ENCLOSED_TYPES: "Backlog"}, str(n).encode())
            await sender.send(queue, wrap(message))


async def test_a_backlog_of_10_000_beside_the_retries_starves_nobody():
    """E11: retries are at most 2 s late, and the backlog is gone as soon as the places allow."""
    stage = Stage()
    async with stage.consumer(receive_concurrency=PLACES) as endpoint:
        backlog = Backlog(stage, endpoint)
        await endpoint.setup()
        await stage.scenario.send(endpoint)
        stop = asyncio.Event()
        running = asyncio.create_task(endpoint.run(stop))
        await stage.until(BEGINS)
        ticking = asyncio.create_task(backlog.work())
        await backlog.send(endpoint, BACKLOG)
        await stage.until(RETRIED)
        assert 0 < len(backlog.handled_at) < BACKLOG
        await stage.until(BEGINS + 1 + 1.05 * BACKLOG * WORK / PLACES)  # the first look may be a second off
        assert len(backlog.handled_at) == BACKLOG  # the places were at work all the time
        ticking.cancel()
        await stage.until(250)
        stop.set()
        await stage.clock.advance(1)
        await running
    stage.check(late=lambda retry: 2.0)
    ended_at = max(backlog.handled_at.values())
    retried = [a.at - stage.began for a in stage.scenario.attempts if a.number == 11]
    assert len(retried) == MESSAGES
    # Their turn comes when what was visible before them is done, and at once then.
    assert RETRIED <= min(retried) <= max(retried) <= ended_at + 1
