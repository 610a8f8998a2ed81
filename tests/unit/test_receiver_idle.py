"""What an idle receiver asks of the queue: one look after the other, each later, by the rule and no more."""

import asyncio
import itertools
from datetime import timedelta

import pytest
from receiver_cases import QUEUE, always_failing, open_scene, serving_open

from postdate import TryLater
from postdate.events import Handled

HOUR = timedelta(hours=1)
#: Seconds between two looks grow from the first by so much each time, up to the setting.
FIRST, GROWTH = 0.05, 1.5
#: Instants to look at are told apart by so much.
GRAIN = 0.05


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


@pytest.mark.parametrize("answer", [0, 0.03, 0.06, 0.3, 0.9])
@pytest.mark.parametrize("increase", [10, 10.4])
async def test_a_delayed_retry_is_seen_in_time_however_long_the_request_took_that_put_it_off(
    answer, increase
):
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(
            disable_timeout_manager=True,
            immediate_retries=0,
            delayed_retry_increase=timedelta(seconds=increase),
            receive_idle_interval=timedelta(minutes=1),
        )
        async with always_failing(endpoint, RuntimeError("no"), calls):
            queues = endpoint.parts.backend.receiver
            nack = queues.nack

            async def slow(*arguments, **options):
                await scene.clock.sleep(answer)  # its way to the service
                return await nack(*arguments, **options)

            queues.nack = slow
            async with serving_open(endpoint):
                await scene.put()
                await scene.clock.advance(200)
        late = [
            (second - first).total_seconds() - k * increase
            for k, ((_, _, first), (_, _, second)) in enumerate(itertools.pairwise(calls), start=1)
        ]
        assert len(late) == 3
        assert min(late) >= 0
        assert max(late) <= answer + GRAIN + 0.001


@pytest.mark.parametrize(
    ("error", "wait"), [(RuntimeError("no"), 0), (TryLater("closed", delay=10), 10)], ids=["retry", "later"]
)
async def test_what_a_slow_handler_gives_back_is_seen_in_time_however_rarely_the_queue_is_looked_at(
    error, wait
):
    async with open_scene() as scene:
        began = []
        endpoint = scene.endpoint(
            disable_timeout_manager=True,
            immediate_retries=1,
            delayed_retries=0,
            receive_idle_interval=timedelta(minutes=1),
        )

        @endpoint.handler
        async def work(body: bytes) -> None:
            del body
            began.append(scene.clock.monotonic())
            if len(began) == 1:  # meanwhile looks have become rare
                await scene.clock.sleep(500)
                raise error

        await scene.put()
        await scene.run_for(endpoint, seconds=600)
        assert len(began) == 2
        assert wait <= began[1] - began[0] - 500 <= wait + GRAIN + 0.001


@pytest.mark.parametrize("answer", [0, 0.3])
@pytest.mark.parametrize("delay", [10.4, 300], ids=["hidden at once", "by a row"])
async def test_a_delayed_message_is_seen_in_time_however_rarely_the_queue_is_looked_at(delay, answer):
    async with open_scene() as scene:
        endpoint, began = (
            scene.endpoint(disable_timeout_manager=True, receive_idle_interval=timedelta(minutes=1)),
            [],
        )

        @endpoint.handler
        async def work(body: bytes) -> None:
            del body
            began.append(scene.clock.now())

        async with endpoint:
            sender = endpoint.parts.backend.sender
            send = sender.send

            async def slow(*arguments, **options):
                await scene.clock.sleep(answer)
                return await send(*arguments, **options)

            sender.send = slow
            async with serving_open(endpoint):
                await scene.clock.advance(1000)
                due_at = scene.clock.now() + timedelta(seconds=delay)
                scheduling = asyncio.create_task(endpoint.schedule(QUEUE, b"", at=due_at))
                await scene.clock.advance(delay + 70)
                await scheduling
        (seen_at,) = began
        # Hidden for whole seconds, from a request on that took its time.
        assert timedelta(0) <= seen_at - due_at <= timedelta(seconds=1 + answer + GRAIN + 0.001)


#: Seconds that the service takes for each receive.
ROUND = 0.5


async def test_a_full_queue_is_taken_with_all_places_at_once_after_an_idle_time():
    """The look that finds it is one request; what is free then is asked for side by side."""
    async with open_scene() as scene:
        endpoint = scene.endpoint(receive_concurrency=100, disable_timeout_manager=True)
        inside, handled, under_way, most = 0, [], [], []

        @endpoint.handler
        async def work(body: bytes) -> None:
            nonlocal inside
            inside += 1
            most.append(inside)
            handled.append(body)
            await scene.clock.sleep(5)
            inside -= 1

        async with endpoint:
            queues = endpoint.parts.backend.receiver
            receive = queues.receive

            async def slow(*arguments, **options):
                under_way.append(options["count"])
                await scene.clock.sleep(ROUND)
                return await receive(*arguments, **options)

            queues.receive = slow
            async with serving_open(endpoint):
                await scene.clock.advance(60)
                for n in range(300):
                    await scene.put(f"m{n}")
                under_way.clear()
                # One look that is waited for, one that finds 32 messages, and a last one for all the rest.
                await scene.clock.advance(1 + 2 * ROUND + 0.1)
                assert len(handled) == 100
                assert under_way[-3:] == [32, 32, 4]
                await scene.clock.advance(30)
        assert max(most) == 100
        assert len(scene.log.of(Handled)) == 300
