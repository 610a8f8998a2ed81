"""What the forecast says is what a real engine asks, hour after hour in virtual time."""

import asyncio
import math
from datetime import timedelta

import pytest
from engine_cases import open_world
from test_leading import join, stop

from postdate import Outgoing
from postdate.cli.cost import pace_of
from postdate.core import forecast
from postdate.core.forecast import (
    ACQUIRE,
    BATCH,
    GET_MESSAGES,
    INSERT,
    LIST_BLOBS,
    LOOK_AT_QUEUE,
    PUT_MESSAGE,
    QUERY,
    RENEW,
)
from postdate.model.limits import BATCH_OPERATIONS, PAGE_ROWS
from postdate.testing.clock import VirtualClock

HOUR = timedelta(hours=1)
HOURS = 5
#: Seconds that a send and a removal take.
SEND, REMOVAL = 0.01, 0.02

#: What each call of a port asks of the service, where it asks one thing.
SINGLE = {
    "store": {"next_due": QUERY, "get": None},
    "lease": {"acquire": ACQUIRE, "renew": RENEW},
    "payloads": {"sweep": LIST_BLOBS},
    "sender": {"send": PUT_MESSAGE, "exists": LOOK_AT_QUEUE},
    "receiver": {"receive": GET_MESSAGES},
    "timeouts": {"due": QUERY},
}


def transactions(keys):
    """How many transactions rows with these keys take."""
    partitions = [key.partition for key in keys]
    return sum(math.ceil(partitions.count(one) / BATCH_OPERATIONS) for one in set(partitions))


class WholeSeconds(VirtualClock):
    """Asks of the service are worth most at its whole seconds, as on the clock that is learned from answers."""

    def good_probe(self, after):
        return math.ceil(after)


def slow_down(world):
    """Calls of the leader take time, as they do on a network: then many are under way at once."""

    def slow(part, name, seconds):
        call = getattr(part, name)

        async def slowed(*arguments, **options):
            await world.clock.sleep(seconds)
            return await call(*arguments, **options)

        setattr(part, name, slowed)

    slow(world.backend.sender, "send", SEND)
    slow(world.backend.store, "remove", REMOVAL)


class Asked:
    """Counts the requests that the Azure backend makes for the calls that this endpoint makes."""

    def __init__(self, endpoint):
        self.requests = {}
        backend = endpoint.parts.backend
        for port, calls in SINGLE.items():
            for name, kind in calls.items():
                if kind is not None:
                    self._wrap(getattr(backend, port), name, lambda *_, kind=kind, **__: self.count(kind))
        self._wrap(backend.store, "add", self._added)
        self._wrap(
            backend.store, "remove", lambda rows, *_: self.count(BATCH, transactions(r.key for r in rows))
        )
        self._due = backend.store.due
        backend.store.due = self.due

    def count(self, kind, times=1):
        self.requests[kind] = self.requests.get(kind, 0) + times

    def _wrap(self, part, name, note):
        call = getattr(part, name)

        def noted(*arguments, **options):
            note(*arguments, **options)
            return call(*arguments, **options)

        setattr(part, name, noted)

    def _added(self, messages):
        if len(messages) == 1:
            self.count(INSERT)
        else:
            self.count(BATCH, transactions([message.key for message in messages]))

    async def due(self, until):
        self.count(QUERY)
        pages = 0
        async for page in self._due(until):
            pages += 1
            if pages > 1:
                self.count(QUERY)
            yield page


def assert_near(asked, expected, tolerance, floor=2.0):
    """Each operation alone; a few requests more or less than expected don't count."""
    for kind in {*asked, *expected}:
        said, was = expected.get(kind, 0.0), asked.get(kind, 0.0)
        assert was == pytest.approx(said, rel=tolerance, abs=floor), f"{kind}: said {said}, was {was}"


IDLE = [
    {},
    {"direct_within": "60s"},
    {"direct_within": "30s", "idle_interval": "10s"},
    {"direct_within": "3m", "lookahead": "2m", "idle_interval": "20s"},
    {"lookahead": 0},
    {"lease_duration": "40s", "direct_within": "30s"},
    {"probe_interval": "30s"},
]


@pytest.mark.parametrize("settings", IDLE)
async def test_an_idle_leader(settings):
    async with open_world(clock=WholeSeconds(), **settings) as world:
        asked = Asked(world.endpoint)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(HOUR)  # the first one also elects, and learns
        asked.requests.clear()
        await world.clock.advance(HOURS * HOUR)
        await stop(running)
        expected = forecast.times(HOURS, forecast.idle_leader(pace_of(world.endpoint.settings)))
        assert_near(asked.requests, expected, 0.05)


@pytest.mark.parametrize("settings", [{}, {"probe_interval": "10s"}])
async def test_a_follower(settings):
    async with open_world(**settings) as world:
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(10)
        other, _ = await join(world, **settings)
        asked = Asked(other)
        following = asyncio.create_task(other.run())
        await world.clock.advance(HOURS * HOUR)
        await stop(following, running)
        expected = forecast.times(HOURS, forecast.follower(pace_of(other.settings)))
        assert_near(asked.requests, expected, 0.03)


@pytest.mark.parametrize("settings", [{}, {"lookahead": "1m"}, {"lookahead": 0}])
async def test_a_leader_with_a_message_in_each_second(settings):
    async with open_world(clock=WholeSeconds(), **settings) as world:
        asked = Asked(world.endpoint)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        start = world.clock.now() + timedelta(minutes=3)
        outgoing = [Outgoing("orders", n, at=start + timedelta(seconds=n)) for n in range(600)]
        await world.endpoint.schedule_many(outgoing)
        await world.clock.advance(timedelta(minutes=5))
        asked.requests.clear()
        await world.clock.advance(timedelta(minutes=6))
        await stop(running)
        pace, share = pace_of(world.endpoint.settings), 6 / 60
        messages = asked.requests.pop(PUT_MESSAGE)
        assert messages == pytest.approx(6 * 60, rel=0.05)
        # In such a trickle a removal comes with each look, or with each message.
        looks = asked.requests[QUERY]
        assert asked.requests.pop(BATCH) <= max(looks, messages) + 2
        assert_near(asked.requests, forecast.times(share, forecast.busy_leader(pace)), 0.1)


@pytest.mark.parametrize("together", [False, True])
async def test_messages_through_rows(together):
    count = 3 * PAGE_ROWS
    async with open_world(check_destinations=False) as world:
        asked, pace = Asked(world.endpoint), pace_of(world.endpoint.settings)
        # In the middle of an hour, so that they share a partition.
        due = world.clock.now() + timedelta(minutes=90)
        outgoing = [Outgoing("orders", n, at=due + timedelta(milliseconds=n)) for n in range(count)]
        if together:
            await world.endpoint.schedule_many(outgoing)
        else:
            for one in outgoing:
                await world.endpoint.schedule(one.destination, one.body, at=one.at)
        assert_near(asked.requests, forecast.times(count, forecast.scheduled_as_row(together=together)), 0.05)
        asked.requests.clear()
        slow_down(world)
        await world.clock.advance(timedelta(minutes=95))
        handing = asyncio.create_task(world.endpoint.deliver_due())
        await world.clock.advance(60)
        assert (await handing).handed_over == count
        asked.requests.pop(ACQUIRE)
        asked.requests.pop(LIST_BLOBS)
        asked.requests.pop(RENEW, None)
        assert_near(asked.requests, forecast.times(count, forecast.handed_over(pace)), 0.05)


async def test_messages_straight_into_queues():
    async with open_world(check_destinations=False) as world:
        asked = Asked(world.endpoint)
        for n in range(50):
            await world.endpoint.schedule("orders", n, delay=20)
        assert_near(asked.requests, forecast.times(50, forecast.scheduled_directly()), 0.0, floor=0.0)


async def test_asking_whether_a_destination_is_there():
    async with open_world() as world:
        asked = Asked(world.endpoint)
        for _ in range(600):
            await world.endpoint.schedule("orders", "x", delay=20)
            await world.clock.advance(6)
        asked.requests.pop(PUT_MESSAGE)
        assert_near(asked.requests, forecast.checked_destination(), 0.1)


async def test_a_consumer_of_an_empty_queue():
    async with open_world() as world:
        asked = Asked(world.endpoint)

        async def consume():
            async for _ in world.endpoint.receive("orders"):
                pass

        consuming = asyncio.create_task(consume())
        await world.clock.advance(HOUR)
        await stop(consuming)
        assert_near(asked.requests, forecast.idle_consumer(pace_of(world.endpoint.settings)), 0.01)
