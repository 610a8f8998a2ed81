"""A leader with nothing near rests: few requests, and nobody late for it."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import open_world
from hypothesis import given
from hypothesis import strategies as st
from test_leading import join, stop

from postdate.core.rest import REST_LEASE_SECONDS, longest_sleep, rest_lease
from postdate.errors import ServiceBusy
from postdate.events import TermBegan, TermLost
from postdate.model.delayed import DelayedMessage
from postdate.model.message import Message

DEFAULTS = {"direct_within": "90s"}
#: Requests of the classic algorithm in its first idle hour: 240 polls of lock, query, lock (spec, 1.4).
CLASSIC_HOUR = 720


def count_calls(world):
    """Each call of a port is one request here: renewals, looks and pages of an idle table."""
    calls = []

    def counting(name, call):
        def counted(*args, **kwargs):
            calls.append(name)
            return call(*args, **kwargs)

        return counted

    backend = world.endpoint.parts.backend
    ports = {
        "store": ("due", "next_due", "remove"),
        "lease": ("acquire", "renew"),
        "timeouts": ("due",),
        "sender": ("exists",),
    }
    for port, names in ports.items():
        part = getattr(backend, port)
        for name in names:
            setattr(part, name, counting(name, getattr(part, name)))
    return calls


async def test_an_idle_hour_costs_a_fifth_of_the_classic_algorithms_and_one_term():
    async with open_world(**DEFAULTS) as world:
        calls = count_calls(world)
        running = asyncio.create_task(world.endpoint.run())
        # An hour without the instant at its end, which is of the next.
        await world.clock.advance(timedelta(hours=1, microseconds=-1))
        await stop(running)
        assert len(calls) <= CLASSIC_HOUR / 5
        assert {name: calls.count(name) for name in ("acquire", "renew")}["acquire"] == 1
        assert len(world.log.of(TermBegan)) == 1
        assert world.log.of(TermLost) == []


async def test_what_is_scheduled_while_the_leader_rests_comes_in_time():
    async with open_world(**DEFAULTS) as world:
        leader, _ = await join(world, **DEFAULTS)
        running = asyncio.create_task(leader.run())
        await world.clock.advance(timedelta(minutes=30))
        dues = []
        for n in range(40):
            at = world.clock.now() + timedelta(seconds=85 + n)
            dues.append(at)
            await world.endpoint.schedule("orders", n, at=at)
            await world.clock.advance(7.3)
        await world.clock.advance(120)
        await stop(running)
        assert len(world.rows) == 0
        late = [m.visible_at - at for m, at in zip(world.in_queue("orders"), sorted(dues), strict=True)]
        assert min(late) >= timedelta(0)
        assert max(late) < timedelta(seconds=1)


@pytest.mark.parametrize("seconds", range(300, 360, 4))
async def test_the_crash_of_a_resting_leader_makes_nobody_late(seconds):
    async with open_world(**DEFAULTS) as world:
        (one, _), (two, log) = await join(world, **DEFAULTS), await join(world, **DEFAULTS)
        crashing = asyncio.create_task(one.run())
        await world.clock.advance(1)
        following = asyncio.create_task(two.run())
        dues = []
        # A sender that goes on while the leader rests, dies, and is replaced.
        for n in range(seconds // 20 + 6):
            if n == seconds // 20:
                await world.clock.advance(seconds % 20)

                async def dead(*_):
                    raise ServiceBusy("this process is dead")

                one.parts.backend.lease.release = one.parts.backend.lease.renew = dead
                crashing.cancel()
            at = world.clock.now() + timedelta(seconds=90.5)
            dues.append(at)
            await world.endpoint.schedule("orders", n, at=at)
            await world.clock.advance(20)
            if n == seconds // 20 + 4:  # 100 s later at most
                assert log.of(TermBegan)
        await world.clock.advance(120)
        await stop(following, crashing)
        late = [m.visible_at - at for m, at in zip(world.in_queue("orders"), dues, strict=True)]
        assert min(late) >= timedelta(0)
        assert max(late) < timedelta(seconds=1)


async def test_with_work_near_the_lease_is_a_short_one():
    async with open_world(**DEFAULTS) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(timedelta(minutes=10))
        until = world.backend.lease._slot.until
        assert until - world.clock.monotonic() > 0
        await world.endpoint.schedule("orders", "x", delay=200)
        for _ in range(200):
            await world.clock.advance(1)
            lasts = world.backend.lease._slot.until - world.clock.monotonic()
            if len(world.rows) == 0:
                break
            due = min(row.delayed.due_at for row in await rows_of(world))
            # Whoever takes over after a crash is there before it is due.
            assert (due - world.clock.now()).total_seconds() > lasts + 3
        assert len(world.rows) == 0
        await stop(running)


async def test_work_that_nobody_expected_ends_the_long_lease_at_once():
    async with open_world(**DEFAULTS, idle_interval="5s") as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(timedelta(minutes=10))

        def lasts():
            return world.backend.lease._slot.until - world.clock.monotonic()

        while lasts() < 50:
            await world.clock.advance(1)
        message = Message("short", {"NServiceBus.MessageId": "short"}, b"x")
        now = world.clock.now()
        await world.backend.store.add([DelayedMessage(message, "orders", now, now)])
        await world.clock.advance(5.5)
        assert len(world.in_queue("orders")) == 1
        assert lasts() <= 15
        await stop(running)


async def rows_of(world):
    return [
        row async for page in world.backend.store.due(world.clock.now() + timedelta(days=1)) for row in page
    ]


async def test_rows_of_another_implementation_keep_the_leader_watchful_for_a_day():
    async with open_world(**DEFAULTS) as world:
        await world.endpoint.setup("orders")
        running = asyncio.create_task(world.endpoint.run())

        async def theirs(delay):
            at = world.clock.now() + timedelta(seconds=delay)
            message = Message("theirs", {"NServiceBus.MessageId": "theirs"}, b"x")
            await world.backend.store.add([DelayedMessage(message, "orders", at, None)])

        await theirs(1)
        await world.clock.advance(timedelta(minutes=10))  # found by then, late: nobody knew
        calls = count_calls(world)
        await world.clock.advance(timedelta(minutes=10))
        assert calls.count("next_due") >= 59
        await theirs(12)
        await world.clock.advance(12)
        assert len(world.in_queue("orders")) == 2
        await world.clock.advance(timedelta(days=1, minutes=1))
        calls.clear()
        await world.clock.advance(timedelta(minutes=10))
        assert calls.count("next_due") <= 13
        await stop(running)


@given(st.floats(0, 1e6), st.floats(0, 300), st.floats(0.1, 20))
def test_a_long_lease_is_over_before_anybody_is_needed(now, ahead, probe):
    if rest_lease(now + ahead, now=now, probe_seconds=probe):
        assert now + REST_LEASE_SECONDS + probe <= now + ahead
    assert not rest_lease(None, now=now, probe_seconds=probe)


@given(st.integers(1, 3600), st.integers(0, 3600), st.integers(15, 80))
def test_a_row_is_seen_in_time_for_a_take_over(idle, direct, takeover):
    idle, direct, takeover = (timedelta(seconds=n) for n in (idle, direct, takeover))
    sleep = longest_sleep(idle, direct_limit=direct, takeover=takeover)
    assert sleep <= idle
    assert sleep + takeover <= max(direct, takeover + timedelta(seconds=10))
