"""What arms the breakers of an endpoint, what triggers them, and what says nothing about the service."""

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
from engine_cases import Outage, breakers_on, open_world

from postdate import Outgoing
from postdate.errors import (
    AccessDenied,
    DestinationNotFound,
    MessageTooLarge,
    OutcomeUnknown,
    PostdateError,
    ServiceBusy,
    StorageUnreachable,
)
from postdate.events import (
    BreakerArmed,
    BreakerDisarmed,
    BreakerTriggered,
    DispatchFailed,
    ErrorQueueRefused,
    Expired,
    HandedOver,
    LeaseFailed,
    MovedToErrorQueue,
    PassFinished,
    RemoveFailed,
)
from postdate.testing.clock import VirtualClock
from postdate.testing.signals import EventLog


@asynccontextmanager
async def serving(**settings):
    """A world whose endpoint serves, and goes on whatever happens; `critical` is what it was told."""
    critical = []
    async with open_world(on_critical_error=critical.append, **{"lookahead": 0, **settings}) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        world.critical = critical
        yield world
        assert not running.done()
        running.cancel()
        await world.clock.advance(60)
        await asyncio.gather(running, return_exceptions=True)


def names(records):
    return [record.breaker for record in records]


async def armed(world, breaker):
    """Let time pass until a breaker is armed."""
    for _ in range(2000):
        if breaker in names(world.log.of(BreakerArmed)):
            return
        await world.clock.advance(0.05)
    raise AssertionError(f"{breaker} was never armed")


# --- fetch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "told"), [(29, 0), (31, 1)])
async def test_reading_that_fails_for_29_seconds_is_nothing_and_for_31_seconds_is_critical(seconds, told):
    async with serving() as world:
        outage = Outage(ServiceBusy).of(world.backend.store, "due", "next_due")
        await armed(world, "fetch")
        await world.clock.advance(seconds)
        assert len(world.critical) == told
        outage.lasts = False
        await world.clock.advance(300)
        assert len(world.critical) == told
        assert [e.triggered for e in world.log.of(BreakerDisarmed)] == [bool(told)]


async def test_it_is_told_once_and_again_only_after_it_was_well():
    async with serving() as world:
        outage = Outage(StorageUnreachable, "nobody listens").of(world.backend.store, "due", "next_due")
        await armed(world, "fetch")
        began = world.clock.now()
        await world.clock.advance(600)
        (record,) = world.critical
        assert (record.breaker, record.text) == (
            "fetch",
            "Failed to fetch due delayed messages from the storage",
        )
        assert isinstance(record.error, StorageUnreachable)
        assert began - timedelta(seconds=0.1) <= record.since <= began
        (event,) = world.log.of(BreakerTriggered)
        assert (event.breaker, event.text, event.since) == ("fetch", record.text, record.since)
        assert event.error == "StorageUnreachable: nobody listens"
        outage.lasts = False
        await world.clock.advance(30)
        outage.lasts = True
        await world.clock.advance(600)
        assert names(world.critical) == ["fetch", "fetch"]


@pytest.mark.parametrize("what", ["the first page", "the second page", "the look of an idle leader"])
async def test_each_way_to_read_the_table_is_watched(what):
    async with serving(number_of_retries=1000) as world:
        backend, due = world.backend, world.backend.store.due

        async def half(until):
            async for page in due(until):
                yield page
            raise OutcomeUnknown("the answer broke off")

        if what == "the look of an idle leader":
            Outage(ServiceBusy).of(backend.store, "next_due")
        else:
            # A row that stays: there is always something due.
            await backend.sender.create("gone")
            await world.endpoint.schedule("gone", "x", delay=5)
            await backend.sender.delete("gone")
            if what == "the first page":
                Outage(ServiceBusy).of(backend.store, "due")
            else:
                backend.store.due = half
        await armed(world, "fetch")
        await world.clock.advance(31)
        assert names(world.critical) == ["fetch"]


async def test_a_pass_that_read_to_its_end_is_a_success_before_anybody_looks_again():
    async with serving() as world:
        outage = Outage(ServiceBusy).of(world.backend.store, "due")
        await world.endpoint.schedule("orders", "x", delay=2)
        await armed(world, "fetch")
        outage.lasts = False
        await world.clock.advance(1)
        (disarmed,) = world.log.of(BreakerDisarmed)
        (handed_over,) = [e for e in world.log.of(PassFinished) if e.handed_over]
        assert world.log.events.index(disarmed) < world.log.events.index(handed_over)


# --- store ----------------------------------------------------------------------------------------


async def store(world, seconds, each=5):
    """Try to schedule a row every few seconds."""
    for _ in range(round(seconds / each)):
        with suppress(PostdateError):
            await world.endpoint.schedule("orders", "x", delay=3600)
        await world.clock.advance(each)


async def test_storing_that_fails_for_longer_than_the_window_is_critical_also_where_nobody_serves():
    critical = []
    async with open_world(on_critical_error=critical.append) as world:
        outage = Outage(AccessDenied, "a role is missing").of(world.backend.store, "add")
        await store(world, 30)
        assert critical == []
        await store(world, 5)
        (record,) = critical
        assert (record.breaker, record.text) == ("store", "Failed to store delayed message")
        outage.lasts = False
        await store(world, 5)
        assert [e.triggered for e in world.log.of(BreakerDisarmed)] == [True]


async def test_many_at_once_are_watched_too():
    critical = []
    async with open_world(on_critical_error=critical.append) as world:
        Outage(ServiceBusy).of(world.backend.store, "add")
        for _ in range(8):
            with suppress(PostdateError):
                await world.endpoint.schedule_many([Outgoing("orders", "x", delay=3600)])
            await world.clock.advance(5)
        assert names(critical) == ["store"]


async def test_a_row_that_the_store_refuses_for_what_it_holds_arms_nothing():
    async with open_world() as world:
        Outage(MessageTooLarge).of(world.backend.store, "add")
        await store(world, 60)
        assert world.log.of(BreakerArmed) == []


async def test_one_failure_and_then_silence_is_nothing_and_neither_are_failures_far_apart():
    critical = []
    async with open_world(on_critical_error=critical.append) as world:
        Outage(ServiceBusy).of(world.backend.store, "add")
        for _ in range(5):
            await store(world, 5)
            await world.clock.advance(3600)
        assert critical == []


# --- dispatch -------------------------------------------------------------------------------------


async def flow(world, seconds, destination="orders", each=5, **options):
    """A message every few seconds, due two seconds later."""
    for _ in range(round(seconds / each)):
        await world.endpoint.schedule(destination, "x", delay=2, **options)
        await world.clock.advance(each)


@pytest.mark.parametrize("error", [ServiceBusy, StorageUnreachable, OutcomeUnknown])
@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
async def test_a_queue_service_that_takes_nothing_is_critical_until_it_takes_something(error, guarantee):
    async with serving(guarantee=guarantee) as world:
        outage = Outage(error).of(world.backend.sender, "send")
        await flow(world, 45)
        (record,) = world.critical
        assert (record.breaker, record.text) == (
            "dispatch",
            "Failed to dispatch delayed messages to destination",
        )
        outage.lasts = False
        await flow(world, 30)
        assert [e.triggered for e in world.log.of(BreakerDisarmed)] == [True]


async def test_messages_that_are_sent_are_no_success_while_their_rows_cannot_be_removed():
    async with serving() as world:
        outage = Outage(ServiceBusy).of(world.backend.store, "remove")
        await flow(world, 50)
        assert len(world.log.of(HandedOver)) >= 5
        assert world.log.of(RemoveFailed)
        assert names(world.critical) == ["dispatch"]
        outage.lasts = False
        await flow(world, 30)
        assert [e.triggered for e in world.log.of(BreakerDisarmed)] == [True]


async def test_with_at_most_once_rows_that_cannot_be_removed_are_critical_and_stay():
    async with serving(guarantee="at_most_once") as world:
        Outage(ServiceBusy).of(world.backend.store, "remove")
        await flow(world, 50)
        assert names(world.critical) == ["dispatch"]
        assert world.in_queue("orders") == []
        assert len(world.rows) == 10


async def test_a_message_that_fails_for_its_own_reasons_arms_nothing():
    async with serving(number_of_retries=1000) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=1)
        await world.backend.sender.delete("gone")
        world.backend.store.insert_raw(unreadable(world.clock.now()))
        await world.clock.advance(300)
        assert len(world.log.of(DispatchFailed)) >= 5
        assert world.log.of(BreakerArmed) == []


async def test_another_account_that_does_not_answer_is_no_reason_to_end_what_works():
    async with serving(aliases={"far": "farstorage"}) as world:
        await world.backend.sender.create("orders@far")
        far = Outage(StorageUnreachable, when=lambda to, *_, **__: to.endswith("@far"))
        far.of(world.backend.sender, "send")
        await flow(world, 120, "orders@far")
        assert world.log.of(DispatchFailed)
        assert world.log.of(BreakerArmed) == []


async def test_as_long_as_some_dispatches_succeed_nothing_is_critical():
    async with serving(aliases={"far": "farstorage"}) as world:
        await world.backend.sender.create("orders@far")
        Outage(StorageUnreachable, when=lambda to, *_, **__: to == "orders").of(world.backend.sender, "send")
        for _ in range(10):
            await flow(world, 5, "orders@far")
            await flow(world, 5)
        assert world.log.of(BreakerArmed)
        assert world.critical == []


async def test_messages_that_are_dropped_because_they_expired_are_no_success():
    async with serving() as world:
        Outage(StorageUnreachable).of(world.backend.sender, "send")
        await flow(world, 50, expires_after=1)
        assert len(world.log.of(Expired)) >= 3
        assert names(world.critical) == ["dispatch"]


# --- recovery -------------------------------------------------------------------------------------


def unreadable(due_at, number=0):
    text = f"{due_at:%Y%m%d%H%M%S}"
    return {
        "PartitionKey": text[:10],
        "RowKey": f"{text}_{number:032x}",
        "Destination": "orders",
        "MessageId": f"m{number}",
        "Headers": "not json",
    }


async def test_attempts_that_can_neither_be_counted_nor_removed_are_critical_and_nothing_is_lost():
    async with serving(number_of_retries=2) as world:
        await world.backend.sender.create("gone")
        for n in range(5):
            await world.endpoint.schedule("gone", n, delay=1)
        await world.backend.sender.delete("gone")
        outage = Outage(ServiceBusy).of(world.backend.store, "update", "remove")
        await world.clock.advance(40)
        assert names(world.critical) == ["recovery"]
        assert len(world.rows) == 5
        assert world.in_queue("error") == []
        outage.lasts = False
        await world.clock.advance(60)
        assert sorted(m.body for m in world.opened("error")) == [b"0", b"1", b"2", b"3", b"4"]
        assert world.rows == {}
        assert {e.attempts for e in world.log.of(MovedToErrorQueue)} == {3}


@pytest.mark.parametrize(("rows", "told"), [(1, []), (29, ["recovery"])])
async def test_an_error_queue_that_refuses_is_critical_by_its_rate(rows, told):
    async with serving() as world:
        await world.backend.sender.delete("error")
        for n in range(rows):
            world.backend.store.insert_raw(unreadable(world.clock.now(), n))
        await world.clock.advance(60)
        assert len(world.log.of(ErrorQueueRefused)) >= 4
        assert names(world.critical) == told
        assert len(world.rows) == rows


async def test_a_copy_that_is_too_large_for_the_error_queue_arms_nothing():
    async with serving(maximum_recovery_failures_per_second=0.01) as world:
        Outage(MessageTooLarge).of(world.backend.sender, "send")
        world.backend.store.insert_raw(unreadable(world.clock.now()))
        await world.clock.advance(60)
        assert world.log.of(ErrorQueueRefused)
        assert world.log.of(BreakerArmed) == []


async def test_a_missing_error_queue_says_something_about_the_endpoint():
    log = EventLog()
    breakers = breakers_on(VirtualClock(), log)
    breakers.recovery.failed(DestinationNotFound("error"))
    assert names(log.of(BreakerArmed)) == ["recovery"]


# --- lease ----------------------------------------------------------------------------------------


async def test_a_lease_that_gives_no_answer_is_critical():
    critical = []
    async with open_world(on_critical_error=critical.append) as world:
        outage = Outage(StorageUnreachable).of(world.backend.lease, "acquire")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(32)
        (record,) = critical
        assert (record.breaker, record.text) == (
            "lease",
            "Failed to ask for the lease that elects the leader",
        )
        outage.lasts = False
        await world.clock.advance(11)
        assert [e.triggered for e in world.log.of(BreakerDisarmed)] == [True]
        assert world.endpoint.parts.elector.term is not None
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_follower_that_hears_who_leads_is_well_however_long():
    async with open_world() as leader, serving_beside(leader) as follower:
        await leader.clock.advance(600)
        assert follower.log.of(LeaseFailed) == []
        assert follower.log.of(BreakerArmed) == []


@asynccontextmanager
async def serving_beside(world):
    """A second process, which serves after the first one does."""
    leading = asyncio.create_task(world.endpoint.run())
    await world.clock.advance(1)
    async with open_world(account=world.account, clock=world.clock) as other:
        following = asyncio.create_task(other.endpoint.run())
        await world.clock.advance(1)
        yield other
        for task in (following, leading):
            task.cancel()
        await asyncio.gather(following, leading, return_exceptions=True)


async def test_an_outage_of_everything_is_noticed_although_nobody_leads_any_more():
    async with serving() as world:
        Outage(StorageUnreachable).of(world.backend.lease, "acquire", "renew", "release")
        Outage(StorageUnreachable).of(world.backend.store, "due", "next_due", "add", "remove", "update")
        await world.clock.advance(70)
        assert "lease" in names(world.critical)


# --- receive --------------------------------------------------------------------------------------


async def test_an_endpoint_that_cannot_receive_from_its_queue_is_critical_until_it_can():
    critical, handled = [], []
    settings = {"queue": "orders", "disable_delayed_delivery": True, "delayed_retries": 0}
    async with open_world(on_critical_error=critical.append, **settings) as world:

        @world.endpoint.handler
        async def handle(body: bytes, context) -> None:
            handled.append(body)

        outage = Outage(StorageUnreachable).of(world.backend.receiver, "receive")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(45)
        (record,) = critical
        assert (record.breaker, record.text) == (
            "receive",
            "Failed to receive messages from the endpoint's queue",
        )
        outage.lasts = False
        await world.endpoint.send("orders", "x")
        await world.clock.advance(15)
        assert handled == [b"x"]
        assert [e.triggered for e in world.log.of(BreakerDisarmed)] == [True]
        running.cancel()
        await world.clock.advance(60)
        await asyncio.gather(running, return_exceptions=True)
