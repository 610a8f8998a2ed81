"""What the timeout manager costs when there is nothing to do; and what it says, once."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import open_world
from legacy_cases import (
    MINUTE,
    NOTICES,
    OWNER,
    REQUESTS,
    START,
    asking,
    left,
    open_old_world,
    put,
    serving,
    store,
    timeout,
)
from receiver_cases import stopped

from postdate.errors import (
    AccessDenied,
    ConfigurationError,
    CriticalFailure,
    DelayedDeliveryDisabled,
    NotProvisioned,
    ServiceBusy,
)
from postdate.events import (
    TimeoutLookFailed,
    TimeoutManagerDrained,
    TimeoutManagerFailing,
    TimeoutStoreMissing,
)

HOUR = timedelta(hours=1)
CALLS = {
    "timeouts": ("due", "get", "count", "exists", "remove", "add", "create"),
    "sender": ("exists", "approximate_count", "create", "send"),
    "receiver": ("receive",),
}


def count_requests(world):
    """Each of these calls is one request to Azure Storage where nothing is there."""
    asked = []

    def counting(name, call):
        def counted(*args, **kwargs):
            asked.append((name, args))
            return call(*args, **kwargs)

        return counted

    for port, names in CALLS.items():
        part = getattr(world.backend, port)
        for name in names:
            setattr(part, name, counting(f"{port}.{name}", getattr(part, name)))
    return asked


@pytest.mark.parametrize("waiting", [0, 3])
async def test_an_idle_hour_costs_two_requests_a_minute_at_most(waiting):
    async with open_old_world() as world:
        await store(world, *(timeout(n, START + timedelta(days=9)) for n in range(waiting)))
        async with serving(world.endpoint):
            await world.clock.advance(MINUTE / 2)
            asked = count_requests(world)
            await world.clock.advance(HOUR)
            assert len(asked) <= 2 * 60
            assert len(asked) >= 60  # it does look


async def test_where_nothing_of_it_exists_it_rests():
    async with open_old_world(legacy=False) as world:
        asked = count_requests(world)
        async with serving(world.endpoint):
            await world.clock.advance(HOUR - timedelta(seconds=1))
        assert len(asked) == 6
        assert {name for name, _ in asked} == {"timeouts.due", "sender.exists"}


async def test_with_a_store_of_others_alone_it_rests_too():
    async with open_old_world(legacy=False) as world:
        await world.backend.timeouts.create()
        await store(world, timeout(owner="Contoso.Billing"))
        async with serving(world.endpoint):
            await world.clock.advance(MINUTE)
            asked = count_requests(world)
            await world.clock.advance(HOUR)
        assert len(asked) <= 4 * 6
        assert world.log.of(TimeoutManagerDrained) == []


async def test_what_turns_up_while_it_rests_is_found():
    async with open_old_world(legacy=False) as world, serving(world.endpoint):
        await world.clock.advance(HOUR)
        await world.endpoint.setup(timeout_manager=True)
        await put(world, REQUESTS, asking(world.clock.now()))
        await world.clock.advance(11 * MINUTE)
        assert len(world.in_queue("orders")) == 1


async def test_after_a_message_it_looks_often_for_a_while():
    async with open_old_world() as world, serving(world.endpoint):
        await world.clock.advance(10 * MINUTE)
        await put(world, REQUESTS, asking(START))
        await world.clock.advance(2 * MINUTE)
        assert len(world.in_queue("orders")) == 1
        asked = count_requests(world)
        await put(world, REQUESTS, asking(START, 2))
        await world.clock.advance(2 * MINUTE)
        # Two minutes of two requests each, and those soon after the message.
        assert 8 < len(asked) < 30
        asked.clear()
        await world.clock.advance(10 * MINUTE)
        assert len(asked) <= 20


@pytest.mark.parametrize(
    "settings", [{"disable_timeout_manager": True}, {"delays_table": "delays", "endpoint": ""}]
)
async def test_switched_off_it_asks_nothing_and_creates_nothing(settings):
    async with open_world(**{"endpoint": OWNER, **settings}) as world:
        assert world.endpoint.parts.timeouts is None
        asked = count_requests(world)
        async with serving(world.endpoint):
            await world.clock.advance(HOUR)
        assert asked == []
        assert set(world.account.queues) & {REQUESTS, NOTICES} == set()
        assert world.account.timeouts == {}


async def test_with_delayed_delivery_switched_off_nothing_is_polled():
    async with open_world(endpoint=OWNER, disable_delayed_delivery=True) as world:
        asked = count_requests(world)
        with pytest.raises(DelayedDeliveryDisabled):
            await world.endpoint.run(stopped())
        await world.clock.advance(HOUR)
        assert asked == []


async def test_serving_creates_nothing():
    async with open_old_world(legacy=False) as world:
        before = set(world.account.queues)
        async with serving(world.endpoint):
            await world.clock.advance(HOUR)
        assert set(world.account.queues) == before
        assert world.account.timeouts == {}


async def test_set_up_makes_its_places_only_when_asked():
    async with open_world(endpoint=OWNER) as world:
        assert await world.endpoint.setup() == []
        made = await world.endpoint.setup(timeout_manager=True)
        assert made == ["table TimeoutDataTableName", f"queue {REQUESTS}", f"queue {NOTICES}"]
        assert await world.endpoint.setup(timeout_manager=True) == []


async def test_switched_off_set_up_refuses_to_make_its_places():
    async with open_world(endpoint=OWNER, disable_timeout_manager=True) as world:
        with pytest.raises(ConfigurationError, match="unset POSTDATE_DISABLE_TIMEOUT_MANAGER"):
            await world.endpoint.setup(timeout_manager=True)
        assert set(world.account.queues) & {REQUESTS, NOTICES} == set()
        assert world.account.timeouts == {}


# --- what it says ---------------------------------------------------------------------------------


async def test_when_all_is_empty_it_says_so_once_in_each_term():
    async with open_old_world() as world:
        await store(world, timeout())
        await put(world, REQUESTS, asking(START + 20 * MINUTE, 2))
        async with serving(world.endpoint):
            await world.clock.advance(15 * MINUTE)
            assert world.log.of(TimeoutManagerDrained) == []
            await world.clock.advance(3 * HOUR)
            (told,) = world.log.of(TimeoutManagerDrained)
            assert told.queues == (REQUESTS, NOTICES)
            assert "POSTDATE_DISABLE_TIMEOUT_MANAGER" in told.way_out
        assert left(world) == 0
        async with serving(world.endpoint):
            await world.clock.advance(2 * MINUTE)
        assert len(world.log.of(TimeoutManagerDrained)) == 2


async def test_short_terms_cost_one_look_each():
    async with open_old_world() as world:
        await store(world, timeout(due_at=START + timedelta(days=9)))
        async with serving(world.endpoint):
            await world.clock.advance(5)
        asked = count_requests(world)
        for _ in range(10):
            async with serving(world.endpoint):
                await world.clock.advance(1)
        assert [name for name, _ in asked] == ["timeouts.due"] * 10


async def test_a_message_that_an_older_instance_works_on_is_not_nothing():
    async with open_old_world() as world:
        await put(world, REQUESTS, asking(START))
        await world.backend.receiver.receive(REQUESTS, count=1, visibility_s=5 * 3600)
        async with serving(world.endpoint):
            await world.clock.advance(3 * HOUR)
        assert world.log.of(TimeoutManagerDrained) == []


async def test_a_queue_without_a_store_is_left_alone_and_told_once():
    async with open_old_world(legacy=False) as world:
        await world.backend.sender.create(REQUESTS)
        await put(world, REQUESTS, asking(START))
        async with serving(world.endpoint):
            await world.clock.advance(HOUR)
            (told,) = world.log.of(TimeoutStoreMissing)
            assert told.queue == REQUESTS
            assert "--timeout-manager" in told.way_out
            (stored,) = world.in_queue(REQUESTS)
            assert stored.dequeue_count == 0
            await world.endpoint.setup(timeout_manager=True)
            await world.clock.advance(11 * MINUTE)
        assert len(world.in_queue("orders")) == 1


# --- outages --------------------------------------------------------------------------------------


def break_looks(world, error):
    due = world.backend.timeouts.due

    async def broken(until, *, everywhere=False):
        if failing[0]:
            raise error
        async for page in due(until, everywhere=everywhere):
            yield page

    failing = [True]
    world.backend.timeouts.due = broken
    return failing


async def test_an_outage_is_critical_when_it_has_lasted_for_its_limit():
    critical = []

    def note(record):
        critical.append((world.clock.now(), record.breaker, record.error))
        assert world.clock.now() - record.since == timedelta(minutes=2)

    async with open_old_world(on_critical_error=note) as world:
        async with serving(world.endpoint):
            await world.clock.advance(MINUTE)
            began = world.clock.now()
            failing = break_looks(world, ServiceBusy("503"))
            await world.clock.advance(30 * MINUTE)
            # Nobody knew before the next look, at most a minute later.
            ((at, name, error),) = critical
            assert timedelta(minutes=2) <= at - began <= timedelta(minutes=3)
            assert (name, str(error)) == ("legacy timeout manager", "503")
            (told,) = world.log.of(TimeoutManagerFailing)
            assert told.failing_s == pytest.approx(120)
            assert 30 < len(world.log.of(TimeoutLookFailed)) < 80
            failing[0] = False
            await store(world, timeout(due_at=START))
            await world.clock.advance(MINUTE)
            assert len(world.in_queue("orders")) == 1
            failing[0] = True
            await world.clock.advance(4 * MINUTE)
        assert len(critical) == 2


async def test_by_default_an_outage_ends_the_process_cleanly():
    async with open_old_world() as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(MINUTE)
        break_looks(world, ServiceBusy("503"))
        await world.clock.advance(4 * MINUTE)
        with pytest.raises(CriticalFailure, match="timeouts of older instances"):
            await running
        assert (await world.backend.lease.holder()).leased is False


async def test_while_the_queues_fail_the_store_is_served_in_time():
    async with open_old_world(on_critical_error=lambda record: None) as world:

        async def busy(queue, **options):
            raise ServiceBusy("503")

        world.backend.receiver.receive = busy
        one = timeout(due_at=START + 10 * MINUTE)
        await store(world, one)
        async with serving(world.endpoint):
            await world.clock.advance(11 * MINUTE)
        (message,) = world.in_queue("orders")
        assert timedelta(0) <= message.visible_at - one.due_at < timedelta(seconds=1)


async def test_a_short_outage_is_not_critical():
    async with open_old_world(timeout_outage_limit="5m") as world:
        async with serving(world.endpoint):
            await world.clock.advance(MINUTE)
            failing = break_looks(world, ServiceBusy("503"))
            await world.clock.advance(4 * MINUTE)
            failing[0] = False
            await world.clock.advance(10 * MINUTE)
        assert world.log.of(TimeoutLookFailed)
        assert world.log.of(TimeoutManagerFailing) == []


@pytest.mark.parametrize("error", [ServiceBusy("503"), AccessDenied("403"), NotProvisioned("404")])
async def test_who_never_had_a_legacy_does_not_suffer_from_it(error):
    async with open_old_world(legacy=False) as world:
        break_looks(world, error)

        async def refuse(queue):
            raise AccessDenied("403")

        world.backend.sender.exists = refuse
        async with serving(world.endpoint):
            await world.clock.advance(HOUR)
        assert world.log.of(TimeoutManagerFailing) == []
        assert len(world.log.of(TimeoutLookFailed)) <= 61
        if isinstance(error, AccessDenied):
            assert len(world.log.of(TimeoutLookFailed)) == 1


async def test_a_queue_that_may_not_be_read_is_told_once_and_the_store_is_served():
    async with open_old_world() as world:

        async def refuse(queue, **options):
            raise AccessDenied("403")

        world.backend.receiver.receive = refuse
        await store(world, timeout())
        async with serving(world.endpoint):
            await world.clock.advance(HOUR)
        assert len(world.in_queue("orders")) == 1
        assert len(world.log.of(TimeoutLookFailed)) == 1
        assert world.log.of(TimeoutManagerFailing) == []
