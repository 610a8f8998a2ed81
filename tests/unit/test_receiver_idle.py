"""What an idle receiver asks of the queue: one look after the other, each later, by the rule and no more."""

from datetime import timedelta

import pytest
from receiver_cases import open_scene, serving, serving_open

from postdate.events import Handled

HOUR = timedelta(hours=1)
#: Seconds between two looks grow from the first by so much each time, up to the setting.
FIRST, GROWTH = 0.05, 1.5


def looks_within(seconds, longest):
    """How many looks the rule allows in so many seconds, the one at the beginning included."""
    at, wait, looks = 0.0, FIRST, 0
    while at <= seconds:
        looks, at, wait = looks + 1, at + wait, min(longest, wait * GROWTH)
    return looks


def count_requests(endpoint):
    """The name of each call to the queues from now on."""
    asked = []

    def counting(part, name):
        inner = getattr(part, name)

        async def call(*arguments, **options):
            asked.append(name)
            return await inner(*arguments, **options)

        setattr(part, name, call)

    backend = endpoint.parts.backend
    for name in ("receive", "ack", "nack", "extend"):
        counting(backend.receiver, name)
    for name in ("send", "exists", "approximate_count"):
        counting(backend.sender, name)
    return asked


def idle_endpoint(scene, **options):
    endpoint = scene.endpoint(disable_timeout_manager=True, **options)

    @endpoint.handler
    async def work(body: bytes) -> None:
        del body

    return endpoint


@pytest.mark.parametrize("places", [1, 16, 100])
@pytest.mark.parametrize("longest", [1, 10, 60])
async def test_an_idle_hour_costs_what_the_rule_says_however_many_places_are_free(longest, places):
    async with open_scene() as scene:
        endpoint = idle_endpoint(
            scene, receive_idle_interval=timedelta(seconds=longest), receive_concurrency=places
        )
        async with endpoint:
            asked = count_requests(endpoint)
            async with serving_open(endpoint):
                await scene.clock.advance(0)
                assert "receive" in asked
                asked[:] = ["receive"]  # at the beginning also: is the queue there, is it full
                await scene.clock.advance(HOUR - timedelta(seconds=0.01))
                assert set(asked) == {"receive"}
                # By the rounding of sums the last one may fall on either side.
                assert abs(len(asked) - looks_within(3600 - 0.01, longest)) <= 1


async def test_after_a_message_looks_are_frequent_again_and_then_ever_rarer():
    async with open_scene() as scene:
        endpoint = idle_endpoint(scene, receive_idle_interval=timedelta(minutes=1))
        async with endpoint:
            queues, asked_at = endpoint.parts.backend.receiver, []
            receive = queues.receive

            async def noted(*arguments, **options):
                asked_at.append(scene.clock.monotonic())
                return await receive(*arguments, **options)

            queues.receive = noted
            async with serving_open(endpoint):
                await scene.clock.advance(HOUR)
                await scene.put()
                before = len(asked_at)
                await scene.clock.advance(61 + 30)
        assert len(scene.log.of(Handled)) == 1
        found_at = asked_at[before]  # it lay there for up to a minute
        soon = sum(found_at <= at <= found_at + 10 for at in asked_at[before:])
        assert abs(soon - 1 - looks_within(10, 60)) <= 1


async def test_a_full_queue_is_taken_with_all_places_at_once_after_an_idle_time():
    async with open_scene() as scene:
        endpoint = scene.endpoint(receive_concurrency=100)
        most, inside = [], []

        @endpoint.handler
        async def work(body: bytes) -> None:
            inside.append(body)
            most.append(len(inside))
            await scene.clock.sleep(5)
            inside.remove(body)

        async with serving(endpoint):
            await scene.clock.advance(60)
            for n in range(300):
                await scene.put(f"m{n}")
            await scene.clock.advance(1.1)
            assert max(most) == 100
            await scene.clock.advance(20)
        assert len(scene.log.of(Handled)) == 300
