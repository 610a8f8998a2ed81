"""Leading: one process at a time, never longer than it may, and gone quickly."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import open_world

from postdate import Endpoint
from postdate.errors import ServiceBusy
from postdate.events import HandedOver, LeaseFailed, LeaseReleased, TermBegan, TermEnded, TermLost
from postdate.settings import load_settings
from postdate.testing.signals import EventLog


async def stop(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def join(world, **settings):
    """One more process of the same endpoint."""
    log = EventLog()
    values = {
        "endpoint": world.endpoint.settings.endpoint,
        "backend": "memory",
        "direct_within": "30s",
        **settings,
    }
    endpoint = Endpoint(load_settings(**values), clock=world.clock, observers=[log], memory=world.account)
    await endpoint.__aenter__()
    return endpoint, log


async def test_of_three_processes_one_leads_and_after_a_clean_stop_another_takes_over_in_a_beat():
    async with open_world() as world:
        members = [await join(world) for _ in range(3)]
        tasks = [asyncio.create_task(endpoint.run()) for endpoint, _ in members]
        await world.clock.advance(10)
        leaders = [n for n, (_, log) in enumerate(members) if log.of(TermBegan)]
        assert len(leaders) == 1
        first = leaders[0]
        await stop(tasks.pop(first))
        assert members[first][1].of(LeaseReleased)
        await world.clock.advance(3)  # one probe
        rest = [log for n, (_, log) in enumerate(members) if n != first]
        assert sum(len(log.of(TermBegan)) for log in rest) == 1
        await stop(*tasks)


async def test_a_crash_is_taken_over_within_a_lease_and_a_beat():
    async with open_world() as world:
        (one, _), (two, log) = await join(world), await join(world)
        crashing = asyncio.create_task(one.run())
        await world.clock.advance(1)
        following = asyncio.create_task(two.run())
        await world.clock.advance(10)

        async def dead(*_):
            raise ServiceBusy("this process is dead")

        # It dies without giving the lease back.
        one.parts.backend.lease.release = one.parts.backend.lease.renew = dead
        crashing.cancel()
        began = world.clock.monotonic()
        while not log.of(TermBegan):
            await world.clock.advance(0.5)
        assert world.clock.monotonic() - began <= 15 + 5
        await stop(following, crashing)


async def test_renewals_keep_one_term_for_as_long_as_they_succeed():
    async with open_world() as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(timedelta(hours=2))
        assert len(world.log.of(TermBegan)) == 1
        assert world.log.of(TermLost) == []
        await stop(running)
        assert world.log.of(TermEnded)


async def test_a_lease_taken_away_ends_the_term_and_nothing_is_sent_in_it():
    async with open_world(lookahead=0) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        other, _ = await join(world)
        await other.parts.backend.lease.break_lease()
        assert await other.parts.backend.lease.acquire("other", 15, 0) == 2
        await world.clock.advance(6)
        assert [e.reason for e in world.log.of(TermLost)] == ["lost"]
        await world.endpoint.schedule("orders", "x", delay=1)
        await world.clock.advance(5)
        assert world.in_queue("orders") == []
        await stop(running)


async def test_a_process_frozen_past_its_window_sends_nothing_more_in_its_old_term():
    async with open_world(lookahead=0) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        for n in range(50):
            await world.endpoint.schedule("orders", n, delay=30)
        # Frozen: time passes, none of its tasks gets a turn.
        world.clock._set(world.clock.monotonic() + 40)
        elector = world.endpoint.parts.elector
        assert elector.term is None
        assert elector.may_act(1) is False
        await world.clock.advance(0)
        await world.clock.advance(5)
        assert [e.reason for e in world.log.of(TermLost)] == ["expired"]
        assert {e.term for e in world.log.of(HandedOver)} == {2}
        await stop(running)


async def test_a_renewal_that_took_longer_than_the_window_is_not_believed():
    async with open_world() as world:
        lease, renew = world.backend.lease, world.backend.lease.renew

        async def slow(duration_s):
            answer = await renew(duration_s)
            world.clock._set(world.clock.monotonic() + 13)
            return answer

        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        lease.renew = slow
        await world.clock.advance(5)
        assert [e.reason for e in world.log.of(TermLost)] == ["expired"]
        await stop(running)


async def test_failed_renewals_keep_the_term_until_its_window_is_over_and_not_longer():
    async with open_world() as world:

        async def refuse(duration_s):
            raise ServiceBusy("503")

        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        world.backend.lease.renew = refuse
        elector = world.endpoint.parts.elector
        await world.clock.advance(9)
        assert elector.may_act(1)
        assert world.log.of(LeaseFailed)
        await world.clock.advance(3)
        assert not elector.may_act(1)
        assert world.log.of(TermLost)
        await stop(running)


async def test_an_unsure_acquire_means_follower():
    async with open_world() as world:

        async def refuse(*_):
            raise ServiceBusy("503")

        world.backend.lease.acquire = refuse
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(10)
        assert world.endpoint.parts.elector.term is None
        assert [event.in_a_row for event in world.log.of(LeaseFailed)] == [1, 2, 4, 8]
        assert world.log.of(TermBegan) == []
        await stop(running)


async def test_deliver_due_does_nothing_where_another_leads_and_gives_the_lease_back_where_it_led():
    async with open_world() as world:
        other, _ = await join(world)
        running = asyncio.create_task(other.run())
        await world.clock.advance(1)
        assert (await world.endpoint.deliver_due()).led is False
        await stop(running)
        assert (await world.endpoint.deliver_due()).led is True
        assert (await world.endpoint.deliver_due()).led is True
        assert (await other.deliver_due()).led is True


async def test_deliver_due_of_a_running_leader_is_a_pass_of_that_leader():
    async with open_world(lookahead=0, idle_interval=3600) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        assert (await world.endpoint.deliver_due()).led is True
        assert len(world.log.of(TermBegan)) == 1
        await stop(running)


async def test_running_twice_is_refused():
    async with open_world() as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        with pytest.raises(RuntimeError, match="running already"):
            await world.endpoint.run()
        await stop(running)


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_stopping_at_any_moment_is_clean(turns):
    """Cancel after any number of turns of the loop: no row and no lease is left behind, nothing doubled."""
    async with open_world(lookahead=0) as world:
        for n in range(20):
            await world.endpoint.schedule("orders", n, delay=1)
        await world.clock.advance(1)
        running = asyncio.create_task(world.endpoint.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        record = await world.backend.lease.holder()
        assert record is None or record.leased is False
        assert len(world.rows) + len(world.in_queue("orders")) == 20
        await world.endpoint.deliver_due()
        assert sorted(int(m.body) for m in world.opened("orders")) == list(range(20))


async def test_a_term_number_goes_up_with_every_leader():
    async with open_world() as world:
        for _ in range(3):
            await world.endpoint.deliver_due()
        assert [e.term for e in world.log.of(TermBegan)] == [1, 2, 3]
