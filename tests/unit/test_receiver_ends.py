"""Handlers that hang, and how a receiver ends: what is critical, and what a stop waits for."""

import asyncio
import base64
import threading
from datetime import timedelta

import pytest
from receiver_cases import QUEUE, open_scene, serving, serving_open

from postdate.errors import CriticalFailure, ServiceBusy
from postdate.events import (
    BackToSpeed,
    BreakerTriggered,
    Handled,
    HandlerAbandoned,
    MessageReturned,
    NoPlaceLeft,
    SlowedDown,
)

ONCE = {"immediate_retries": 0, "delayed_retries": 0, "handler_timeout": timedelta(seconds=10)}


def hanging(endpoint, release, handled):
    """A plain handler that hangs with some messages, and a thread can't be cancelled."""

    @endpoint.handler
    def work(body: bytes) -> None:
        if body == b"stuck":
            release.wait()
        elif body == b"fails":
            raise RuntimeError("no")
        else:
            handled.append(body)

    return endpoint


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


async def test_handlers_that_hang_in_all_places_are_critical_and_the_run_ends_without_them(release):
    async with open_scene() as scene:
        endpoint = hanging(scene.endpoint(receive_concurrency=2, **ONCE), release, [])
        await scene.put("m1", b"stuck")
        async with endpoint:
            running = asyncio.create_task(endpoint.run())
            await scene.clock.advance(12)
            assert len(scene.log.of(HandlerAbandoned)) == 1
            assert scene.log.of(NoPlaceLeft) == []
            assert not running.done()
            await scene.put("m2", b"stuck")
            await scene.clock.advance(12)
            assert running.done()
            with pytest.raises(CriticalFailure, match=r"each place is taken .* 2 times .*work"):
                await running
        (event,) = scene.log.of(NoPlaceLeft)
        assert (event.queue, event.places) == (QUEUE, 2)
        assert "work" in event.handlers
        assert [one.breaker for one in scene.log.of(BreakerTriggered)] == ["handlers"]
        assert [m.message_id for m in scene.messages()] == ["m1", "m2"]
        assert scene.in_queue() == []


async def test_an_endpoint_that_goes_on_all_the_same_handles_again_when_a_handler_ends(release):
    async with open_scene() as scene:
        told, handled = [], []
        endpoint = scene.endpoint(receive_concurrency=1, on_critical_error=told.append, **ONCE)
        hanging(endpoint, release, handled)
        await scene.put("m1", b"stuck")
        async with serving(endpoint):
            await scene.clock.advance(12)
            await scene.put("m2", b"fine")
            await scene.clock.advance(60)
            assert [one.breaker for one in told] == ["handlers"]
            assert handled == []
            release.set()
            await scene.log.wait(Handled)
            release.clear()
            await scene.put("m3", b"stuck")
            await scene.clock.advance(12)
            assert [one.breaker for one in told] == ["handlers", "handlers"]
            release.set()
        assert handled == [b"fine"]


async def test_going_slowly_a_handler_that_hangs_does_not_keep_the_others_waiting(release):
    async with open_scene() as scene:
        handled = []
        endpoint = scene.endpoint(
            receive_concurrency=3, rate_limit_after=2, rate_limit_pause=timedelta(seconds=1), **ONCE
        )
        hanging(endpoint, release, handled)
        await scene.put("m1", b"fails")
        await scene.put("m2", b"fails")
        async with serving(endpoint):
            await scene.clock.advance(1)
            await scene.log.wait(SlowedDown)
            await scene.put("m3", b"stuck")  # has the only place that there is now
            await scene.clock.advance(15)
            await scene.log.wait(HandlerAbandoned)
            await scene.put("m4", b"fine")
            await scene.clock.advance(5)
            await scene.log.wait(BackToSpeed)
            release.set()
        assert handled == [b"fine"]


async def test_a_stop_waits_no_longer_than_its_grace_for_a_receive_that_hangs():
    async with open_scene() as scene:
        endpoint = scene.endpoint(stop_grace=timedelta(seconds=5))

        @endpoint.handler
        async def work(body: bytes) -> None:
            raise AssertionError("nothing comes")

        async with endpoint:
            asked = []

            async def hang(queue, **options):
                asked.append(queue)
                await scene.clock.sleep(3600)

            endpoint.parts.backend.receiver.receive = hang
            stop = asyncio.Event()
            running = asyncio.create_task(endpoint.run(stop))
            await scene.clock.advance(1)
            assert asked == [QUEUE]
            stop.set()
            await scene.clock.advance(4)
            assert not running.done()
            await scene.clock.advance(2)
            assert running.done()
            await running


async def test_what_a_receive_under_way_brings_at_a_stop_is_handled():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.handler
        async def work(body: bytes, context) -> None:
            seen.append(context.attempt)

        async with endpoint:
            receiver, receive = endpoint.parts.backend.receiver, endpoint.parts.backend.receiver.receive

            async def slow(queue, **options):
                page = await receive(queue, **options)
                await scene.clock.sleep(1)
                return page

            receiver.receive = slow
            await scene.put()
            stop = asyncio.Event()
            running = asyncio.create_task(endpoint.run(stop))
            await scene.clock.advance(0.5)
            stop.set()
            await scene.clock.advance(1)
            assert running.done()
            await running
        assert seen == [1]
        assert scene.in_queue() == []


async def test_a_message_is_kept_hidden_while_its_large_body_is_fetched():
    async with open_scene() as scene:
        one, two = scene.endpoint(), scene.endpoint()
        seen, asked = [], []
        for endpoint in (one, two):

            @endpoint.handler
            async def work(body: bytes, context) -> None:
                seen.append((len(body), context.attempt))

        async with one, two:
            await one.send(QUEUE, bytes(100_000))
            for endpoint in (one, two):
                payloads, get = endpoint.parts.backend.payloads, endpoint.parts.backend.payloads.get

                async def slow(name, get=get):
                    asked.append(name)
                    await scene.clock.sleep(70)  # more than twice the visibility timeout
                    return await get(name)

                payloads.get = slow
            async with serving_open(one, two):
                await scene.clock.advance(100)
        assert len(asked) == 1
        assert seen == [(100_000, 1)]
        assert scene.in_queue() == []


async def _with_large_body(scene, **options):
    """An endpoint, and a message in its queue whose body lies in a blob."""
    endpoint, attempts = scene.endpoint(stop_grace=timedelta(seconds=1), **options), []

    @endpoint.handler
    async def work(body: bytes, context) -> None:
        attempts.append((context.attempt, len(body)))

    async with scene.endpoint() as sender:
        await sender.send(QUEUE, b"x" * 100_000)
    return endpoint, attempts


async def test_a_stop_while_a_large_body_is_fetched_is_no_attempt():
    async with open_scene() as scene:
        endpoint, attempts = await _with_large_body(scene)
        async with endpoint:
            payloads, asked = endpoint.parts.backend.payloads, []
            get, keep = payloads.get, payloads.keep

            async def hang(name):
                asked.append(name)
                await scene.clock.sleep(3600)

            async def refuse(*_, **__):
                raise ServiceBusy("503")

            payloads.get, payloads.keep = hang, refuse
            async with serving_open(endpoint):
                await scene.clock.advance(3)
            assert len(asked) == 1
            (returned,) = scene.log.of(MessageReturned)
            assert returned.reason == "the process stops"
            payloads.get, payloads.keep = get, keep
            async with serving_open(endpoint):
                await scene.clock.advance(3)
        assert attempts == [(1, 100_000)]
        assert scene.in_queue() == []


async def test_at_most_once_a_stop_while_it_is_acknowledged_sends_it_again():
    async with open_scene() as scene:
        options = {"guarantee": "at_most_once", "immediate_retries": 0, "delayed_retries": 0}
        endpoint, seen = scene.endpoint(stop_grace=timedelta(seconds=1), **options), []

        @endpoint.handler
        async def work(body: bytes) -> None:
            seen.append(body)

        await scene.put()
        async with endpoint:
            receiver, ack = endpoint.parts.backend.receiver, endpoint.parts.backend.receiver.ack

            async def slow(received):
                await scene.clock.sleep(10)
                return await ack(received)

            receiver.ack = slow
            async with serving_open(endpoint):
                await scene.clock.advance(1)
            assert seen == []
            assert len(scene.in_queue()) == 1
            receiver.ack = ack
            async with serving_open(endpoint):
                await scene.clock.advance(3)
        assert seen == [b"{}"]
        assert scene.in_queue() == []


async def served_by_two(scene, put, late):
    """Who began with the only message, of two endpoints, 0 and 1; `late` slows the first one down."""
    endpoints, seen = [scene.endpoint(), scene.endpoint()], []

    def register(number, endpoint):
        @endpoint.handler
        async def work(body: bytes) -> None:
            del body
            seen.append(number)

    for number, endpoint in enumerate(endpoints):
        register(number, endpoint)
    async with endpoints[0], endpoints[1]:
        await put(endpoints[0])
        late(endpoints[0].parts.backend)
        async with serving_open(endpoints[0]):
            await scene.clock.advance(1)
            assert scene.in_queue()[0].dequeue_count == 1
            async with serving_open(endpoints[1]):
                await scene.clock.advance(100)
    assert scene.in_queue() == []
    return seen


async def large(endpoint):
    await endpoint.send(QUEUE, bytes(100_000))


async def broken(endpoint):
    await endpoint.parts.backend.sender.send(QUEUE, base64.b64encode(b'{"Id": "x", "Body": ""}').decode())


@pytest.mark.parametrize(("put", "begun", "moved"), [(large, [1], 0), (broken, [], 1)])
async def test_what_is_received_too_late_is_not_begun_with(put, begun, moved):
    """Its visibility timeout is over when it comes: others may have it, and one of them does."""
    async with open_scene() as scene:

        def late(backend):
            receive = backend.receiver.receive

            async def slow(*arguments, **options):
                page = await receive(*arguments, **options)
                await scene.clock.sleep(40 if page else 0)
                return page

            backend.receiver.receive = slow

        assert await served_by_two(scene, put, late) == begun
        assert len(scene.in_queue("error")) == moved


async def test_a_message_that_was_lost_while_its_large_body_was_fetched_is_not_begun_with():
    async with open_scene() as scene:

        def late(backend):
            get, receive = backend.payloads.get, backend.receiver.receive

            async def slow(name):
                body = await get(name)
                await scene.clock.sleep(40)
                return body

            async def fails(*arguments):
                raise ServiceBusy("503")

            async def once(*arguments, **options):
                page = await receive(*arguments, **options)
                if page:  # whoever takes it again has lost it again
                    backend.receiver.receive = nothing
                return page

            async def nothing(*arguments, **options):
                return []

            backend.payloads.get, backend.receiver.extend, backend.receiver.receive = slow, fails, once

        assert await served_by_two(scene, large, late) == [1]
