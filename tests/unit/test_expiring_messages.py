"""Messages that expire: once received, no retry, prolongation or stop loses them, and attempts are counted on."""

from datetime import timedelta

import pytest
from receiver_cases import QUEUE, always_failing, open_scene, serving, serving_open

from postdate.errors import ServiceBusy
from postdate.events import (
    DelayedRetryAsked,
    Handled,
    MessageFailed,
    MessageReturned,
    RecoveryFailed,
    VisibilityLost,
)
from postdate.model import headers as h
from postdate.model.envelope import wrap
from postdate.model.limits import ENVELOPE_BYTES
from postdate.model.message import Message

#: Of a body in base64 that leaves no room for one more header.
FULL = (ENVELOPE_BYTES - len(wrap(Message("m1", {}, b"")))) // 4 * 3


async def put(scene, time_to_live, message_id="m1", body=b"{}") -> None:
    async with scene.endpoint() as sender:
        text = wrap(Message(message_id, {}, body))
        await sender.parts.backend.sender.send(QUEUE, text, time_to_live=time_to_live)


@pytest.mark.parametrize("time_to_live", [1, 20, 35, 45, 70, 600])
async def test_a_message_that_expires_before_its_retry_has_all_its_attempts(time_to_live):
    async with open_scene() as scene:
        calls = []
        options = {
            "immediate_retries": 1,
            "delayed_retries": 2,
            "delayed_retry_increase": timedelta(minutes=1),
        }
        endpoint = always_failing(scene.endpoint(**options), RuntimeError("no"), calls)
        await put(scene, time_to_live)
        await scene.run_for(endpoint, seconds=200)
        assert [attempt for _, attempt, _ in calls] == [1, 2, 3, 4, 5, 6]
        instants = [at for _, _, at in calls]
        assert instants[2] - instants[1] >= timedelta(minutes=1)
        assert instants[4] - instants[3] >= timedelta(minutes=2)
        (failed,) = scene.log.of(MessageFailed)
        assert failed.attempts == 6
        assert [m.message_id for m in scene.messages()] == ["m1"]
        assert scene.in_queue() == []


async def test_a_message_without_room_for_a_counter_has_all_its_attempts_and_its_first_instant():
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(immediate_retries=2, delayed_retries=0)

        @endpoint.handler
        async def fail(body: bytes, context) -> None:
            calls.append((context.attempt, body, context.headers.get(h.FIRST_INSTANT)))
            raise RuntimeError("no")

        put_at = h.format_instant(scene.clock.now())
        await put(scene, 20, body=b"x" * FULL)
        await scene.run_for(endpoint, seconds=100)
        assert [attempt for attempt, _, _ in calls] == [1, 2, 3]
        assert {body for _, body, _ in calls} == {b"x" * FULL}
        assert [at for _, _, at in calls] == [None, put_at, put_at]
        assert [m.message_id for m in scene.messages()] == ["m1"]
        assert scene.in_queue() == []


async def test_attempts_are_counted_on_when_a_prolonged_message_was_replaced():
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(immediate_retries=2, delayed_retries=1)

        @endpoint.handler
        async def fail(body: bytes, context) -> None:
            calls.append((context.attempt, context.delayed_retries))
            await scene.clock.sleep(20)  # prolonged at 15 s
            raise RuntimeError("no")

        await put(scene, 40)
        await scene.run_for(endpoint, seconds=200)
        assert calls == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1)]
        assert [m.message_id for m in scene.messages()] == ["m1"]
        assert scene.in_queue() == []


async def test_a_handler_that_works_past_the_expiry_keeps_its_message_to_itself():
    async with open_scene() as scene:
        one, two = scene.endpoint(), scene.endpoint()
        seen = []
        for endpoint in (one, two):

            @endpoint.handler
            async def work(body: bytes, context) -> None:
                seen.append(context.attempt)
                await scene.clock.sleep(100)

        await put(scene, 40)
        async with serving(one, two):
            await scene.clock.advance(90)
            (kept,) = scene.in_queue()
            assert kept.expires_at is None
            await scene.clock.advance(60)
        assert seen == [1]
        assert len(scene.log.of(Handled)) == 1
        assert scene.log.of(VisibilityLost) == []
        assert scene.in_queue() == []


async def test_a_message_that_expired_in_hand_is_tried_again():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.handler
        async def work(body: bytes, context) -> None:
            seen.append(context.attempt)
            await scene.clock.sleep(5)  # no prolongation is due yet
            if len(seen) == 1:
                raise RuntimeError("no")

        await put(scene, 3)
        await scene.run_for(endpoint, seconds=30)
        assert seen == [1, 2]
        assert scene.in_queue() == scene.in_queue("error") == []


async def test_a_stop_gives_back_what_would_expire_and_counts_nothing():
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(stop_grace=timedelta(seconds=1))

        @endpoint.handler
        async def work(body: bytes, context) -> None:
            calls.append(context.attempt)
            await scene.clock.sleep(3600 if len(calls) == 1 else 0)

        await put(scene, 20)
        await scene.run_for(endpoint, seconds=10)
        assert len(scene.log.of(MessageReturned)) == 1
        await scene.clock.advance(3600)
        again = scene.endpoint()
        again.handler(work)
        await scene.run_for(again, seconds=5)
        assert calls == [1, 1]
        assert scene.in_queue() == []


async def test_what_nobody_received_in_time_is_gone():
    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(scene.endpoint(), RuntimeError("no"), calls)
        await put(scene, 5)
        await scene.clock.advance(6)
        await scene.run_for(endpoint, seconds=5)
        assert calls == []


async def test_a_queue_that_takes_no_copy_leaves_the_message_for_later():
    async with open_scene() as scene:
        endpoint, calls = scene.endpoint(immediate_retries=0, delayed_retries=1), []
        always_failing(endpoint, RuntimeError("no"), calls)
        await put(scene, 38)  # too short for the retry, long enough for a second try
        async with endpoint:
            sender, send = endpoint.parts.backend.sender, endpoint.parts.backend.sender.send

            async def busy(*_, **__):
                raise ServiceBusy("503")

            sender.send = busy
            async with serving_open(endpoint):
                await scene.clock.advance(5)
                assert len(calls) == 1
                sender.send = send
                await scene.clock.advance(120)
        assert len(calls) == 2
        assert len(scene.log.of(RecoveryFailed)) > 0
        assert len(scene.log.of(DelayedRetryAsked)) == 1
        assert [m.message_id for m in scene.messages()] == ["m1"]
        assert scene.in_queue() == []


async def test_at_most_once_a_message_is_never_brought_back():
    async with open_scene() as scene:
        options = {"guarantee": "at_most_once", "immediate_retries": 0, "delayed_retries": 0}
        endpoint, seen = scene.endpoint(stop_grace=timedelta(seconds=1), **options), []

        @endpoint.handler
        async def work(body: bytes) -> None:
            seen.append(body)
            await scene.clock.sleep(3600)

        await put(scene, 20)
        await scene.run_for(endpoint, seconds=100)
        assert len(seen) == 1
        assert scene.in_queue() == []
        assert scene.log.of(VisibilityLost) == []  # there is nothing left to be seen


async def test_a_plain_receiver_can_put_a_message_off_beyond_its_expiry():
    async with open_scene() as scene:
        await put(scene, 20)
        async with scene.endpoint() as endpoint:
            async for delivery in endpoint.receive(idle=timedelta(0)):
                assert await delivery.nack(timedelta(minutes=5)) is True
                break
            await scene.clock.advance(299)
            assert [d async for d in endpoint.receive(idle=timedelta(0))] == []
            await scene.clock.advance(2)
            async for delivery in endpoint.receive(idle=timedelta(0)):
                assert delivery.message_id == "m1"
                assert await delivery.ack() is True
                break
        assert scene.in_queue() == []


async def test_a_plain_text_that_is_put_off_beyond_its_expiry_keeps_its_id_and_its_first_instant():
    async with open_scene() as scene:
        async with scene.endpoint() as endpoint:
            put_at = h.format_instant(scene.clock.now())
            await endpoint.parts.backend.sender.send(QUEUE, "only text", time_to_live=20)
            async for delivery in endpoint.receive(idle=timedelta(0)):
                first = delivery.message_id
                assert await delivery.nack(timedelta(minutes=5)) is True
            await scene.clock.advance(301)
            async for delivery in endpoint.receive(idle=timedelta(0)):
                assert delivery.message_id == first
                assert delivery.headers[h.FIRST_INSTANT] == put_at
                assert delivery.body == b"only text"
                assert await delivery.ack() is True
        assert scene.in_queue() == []


async def test_what_was_only_looked_at_keeps_its_expiry():
    async with open_scene() as scene:
        await put(scene, 20)
        async with scene.endpoint() as endpoint:
            (before,) = scene.in_queue()
            expires_at = before.expires_at
            async for delivery in endpoint.receive(idle=timedelta(0)):
                await endpoint.parts.reception.leave(delivery)
                break
        (after,) = scene.in_queue()
        assert after.native_id == before.native_id
        assert after.expires_at == expires_at is not None
