"""Receiving and handling, in memory and virtual time: the good paths, and attempts counted exactly."""

import asyncio
import itertools
from dataclasses import dataclass
from datetime import timedelta

import pydantic
import pytest
from receiver_cases import QUEUE, always_failing, open_scene, serving, stopped

from postdate import MessageContext, TryLater
from postdate.errors import ConfigurationError, DelayedDeliveryDisabled, DestinationNotFound, UsageError
from postdate.events import (
    DelayedRetryAsked,
    Handled,
    ImmediateRetryAsked,
    MessageFailed,
    MessageReturned,
    ReceiveFailed,
)
from postdate.model import headers as h


@dataclass
class PlaceOrder:
    number: int


class ShipOrder(pydantic.BaseModel):
    number: int


async def test_a_message_is_handled_and_gone():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.handler
        async def place(order: PlaceOrder, context: MessageContext) -> None:
            seen.append((order, context.message_id, context.attempt))

        await scene.put(body=b'{"number": 7}')
        await scene.run_for(endpoint, seconds=2)
        assert seen == [(PlaceOrder(7), "m1", 1)]
        assert scene.in_queue() == []
        assert scene.log.of(Handled)[0].attempts == 1


async def test_each_type_finds_its_handler():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []
        endpoint.handler(PlaceOrder)(lambda order: seen.append(order))
        endpoint.handler(lambda_handler := _ship(seen))
        assert lambda_handler
        name = f"{PlaceOrder.__module__}.PlaceOrder"
        await scene.put("a", b'{"number": 1}', **{h.ENCLOSED_TYPES: name})
        await scene.put(
            "b",
            b'{"number": 2}',
            **{h.ENCLOSED_TYPES: "Contoso.ShipOrder, Contoso, Version=1.0.0.0;Contoso.ICommand"},
        )
        async with serving(endpoint):
            await scene.log.wait(Handled, count=2)
        assert sorted(seen, key=lambda order: order.number) == [PlaceOrder(1), ShipOrder(number=2)]


def _ship(seen):
    async def ship(order: ShipOrder) -> None:
        seen.append(order)

    return ship


async def test_delayed_retries_come_when_asked_and_never_early():
    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(scene.endpoint(immediate_retries=0), RuntimeError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=75)
        gaps = [(b[2] - a[2]).total_seconds() for a, b in itertools.pairwise(calls)]
        assert [event.delay_s for event in scene.log.of(DelayedRetryAsked)] == [10, 20, 30]
        # The queue is looked at each second when it is idle.
        assert all(asked <= gap <= asked + 1 for asked, gap in zip((10, 20, 30), gaps, strict=True))


async def test_a_delayed_retry_for_a_fraction_of_a_second_is_as_exact():
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(
            immediate_retries=0, delayed_retries=1, delayed_retry_increase=timedelta(seconds=1.3)
        )
        always_failing(endpoint, RuntimeError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=5)
        (first, second) = (at for _, _, at in calls)
        assert timedelta(seconds=1.3) <= second - first <= timedelta(seconds=2.3)


async def test_handlers_see_how_often_the_message_was_put_off():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(immediate_retries=0), []

        @endpoint.handler
        async def fail(body: bytes, context: MessageContext) -> None:
            del body
            seen.append((context.delayed_retries, context.headers.get(h.RETRIES), context.attempt))
            raise RuntimeError("no")

        await scene.put()
        await scene.run_for(endpoint, seconds=70)
        assert seen == [(0, None, 1), (1, "1", 2), (2, "2", 3), (3, "3", 4)]


async def test_a_retry_longer_than_a_queue_hides_is_not_early():
    async with open_scene() as scene:
        calls, days = [], timedelta(days=10)
        endpoint = always_failing(
            scene.endpoint(immediate_retries=0, delayed_retries=1, delayed_retry_increase=days),
            RuntimeError("no"),
            calls,
        )
        await scene.put()
        await scene.run_for(endpoint, seconds=5)
        stored = scene.in_queue()[0]
        assert stored.visible_at <= scene.clock.now() + timedelta(days=7)
        await scene.clock.advance(timedelta(days=7))
        again = always_failing(
            scene.endpoint(immediate_retries=0, delayed_retries=1), RuntimeError("no"), calls
        )
        await scene.run_for(again, seconds=5)
        assert len(calls) == 1
        await scene.clock.advance(timedelta(days=3))
        again = always_failing(
            scene.endpoint(immediate_retries=0, delayed_retries=1), RuntimeError("no"), calls
        )
        await scene.run_for(again, seconds=5)
        assert [attempt for _, attempt, _ in calls] == [1, 2]


async def test_what_a_handler_sends_goes_out_when_it_succeeded_and_not_before():
    async with open_scene("invoices") as scene:
        endpoint, ids = scene.endpoint(), []

        @endpoint.handler
        async def place(body: bytes, context: MessageContext) -> None:
            del body
            ids.append(context.send("invoices", {"n": 1}))
            ids.append(context.schedule("invoices", {"n": 2}, delay=5))
            assert scene.in_queue("invoices") == []
            if context.attempt == 1:
                raise RuntimeError("not yet")

        await scene.put(**{h.CORRELATION_ID: "c", h.CONVERSATION_ID: "v"})
        await scene.run_for(endpoint, seconds=3)
        sent = scene.messages("invoices")
        assert [m.message_id for m in sent] == ids[:2] == ids[2:]
        for message in sent:
            assert message.headers[h.CORRELATION_ID] == "c"
            assert message.headers[h.CONVERSATION_ID] == "v"
            assert message.headers[h.RELATED_TO] == "m1"


@pytest.mark.parametrize(("classify", "attempts"), [(True, 1), (False, 24)])
async def test_what_can_not_be_sent_makes_the_handler_fail(classify, attempts):
    async with open_scene() as scene:
        endpoint = scene.endpoint(classify_errors=classify)

        @endpoint.handler
        async def place(body: bytes, context: MessageContext) -> None:
            context.send("nowhere", body)

        await scene.put()
        await scene.run_for(endpoint, seconds=80)
        (failed,) = scene.log.of(MessageFailed)
        assert "nowhere" in failed.error
        assert failed.attempts == attempts


async def test_a_handler_that_sends_nonsense_hears_it_at_once():
    async with open_scene() as scene:
        endpoint, heard = scene.endpoint(), []

        @endpoint.handler
        async def place(body: bytes, context: MessageContext) -> None:
            with pytest.raises(UsageError) as caught:
                context.send("Not A Queue", body)
            heard.append(str(caught.value))

        await scene.put()
        await scene.run_for(endpoint, seconds=2)
        assert "Not A Queue" in heard[0]


async def test_defer_lets_the_same_message_come_again():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.handler
        async def place(body: bytes, context: MessageContext) -> None:
            seen.append((context.message_id, body, context.headers["x"], scene.clock.now()))
            if len(seen) == 1:
                context.defer(delay=30)

        await scene.put(body=b"abc", x="y")
        await scene.run_for(endpoint, seconds=40)
        assert [entry[:3] for entry in seen] == [("m1", b"abc", "y")] * 2
        assert timedelta(seconds=30) <= seen[1][3] - seen[0][3] <= timedelta(seconds=32)
        assert scene.in_queue() == []


async def test_a_reply_goes_to_whoever_asked_with_its_saga():
    async with open_scene("asker") as scene:
        endpoint = scene.endpoint()

        @endpoint.handler
        async def answer(body: bytes, context: MessageContext) -> None:
            context.reply({"answer": body.decode()})

        await scene.put(
            body=b"42",
            **{h.REPLY_TO: "asker", h.ORIGINATING_SAGA_ID: "s-1", h.ORIGINATING_SAGA_TYPE: "Contoso.Saga"},
        )
        await scene.run_for(endpoint, seconds=2)
        (reply,) = scene.messages("asker")
        assert reply.body == b'{"answer":"42"}'
        assert reply.headers[h.MESSAGE_INTENT] == "Reply"
        assert reply.headers[h.SAGA_ID] == "s-1"
        assert reply.headers[h.SAGA_TYPE] == "Contoso.Saga"
        assert reply.headers[h.CORRELATION_ID] == "m1"


async def test_a_reply_to_nobody_is_a_clear_error():
    async with open_scene() as scene:
        endpoint = scene.endpoint()

        @endpoint.handler
        async def answer(body: bytes, context: MessageContext) -> None:
            context.reply(body)

        await scene.put()
        await scene.run_for(endpoint, seconds=2)
        (failed,) = scene.log.of(MessageFailed)
        assert h.REPLY_TO in failed.error
        assert failed.attempts == 1  # no retry helps


async def test_try_later_counts_nothing():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(immediate_retries=1, delayed_retries=0), []

        @endpoint.handler
        async def place(body: bytes, context: MessageContext) -> None:
            del body
            seen.append(context.attempt)
            if len(seen) < 8:
                raise TryLater("the door is shut", delay=3)

        await scene.put()
        await scene.run_for(endpoint, seconds=60)
        assert seen == [1] * 8
        assert scene.log.of(MessageReturned)[0].reason == "the door is shut"
        assert scene.log.of(ImmediateRetryAsked) == []
        assert scene.in_queue() == scene.in_queue("error") == []


async def test_a_plain_function_works_in_a_thread():
    async with open_scene() as scene:
        endpoint, here = scene.endpoint(), asyncio.get_running_loop()
        loops = []

        @endpoint.handler
        def place(body: bytes, context: MessageContext) -> None:
            try:
                loops.append(asyncio.get_running_loop())
            except RuntimeError:
                loops.append(None)
            context.send(QUEUE + "-out", body)

        async with scene.endpoint() as other:
            await other.setup(QUEUE + "-out")
        await scene.put()
        async with serving(endpoint):
            await scene.log.wait(Handled)
        assert loops == [None]
        assert here is not None
        assert len(scene.messages(QUEUE + "-out")) == 1


async def test_messages_are_handled_side_by_side_up_to_the_limit():
    async with open_scene() as scene:
        endpoint, inside, most = scene.endpoint(receive_concurrency=40), set(), []
        release = asyncio.Event()

        @endpoint.handler
        async def place(body: bytes, context: MessageContext) -> None:
            del body
            inside.add(context.message_id)
            most.append(len(inside))
            await release.wait()
            inside.discard(context.message_id)

        for n in range(100):
            await scene.put(f"m{n}")
        async with serving(endpoint):
            await scene.clock.advance(1)
            assert max(most) == 40
            # Those that wait are free for other processes.
            assert sum(stored.dequeue_count for stored in scene.in_queue()) == 40
            release.set()
            await scene.log.wait(Handled, count=100)
        assert max(most) == 40


async def test_visibility_is_prolonged_while_a_handler_works():
    async with open_scene() as scene:
        one, two, seen = scene.endpoint(), scene.endpoint(), []
        release = asyncio.Event()
        for endpoint in (one, two):

            @endpoint.handler
            async def slow(body: bytes, context: MessageContext) -> None:
                del body
                seen.append(context.attempt)
                await release.wait()

        await scene.put()
        async with serving(one, two):
            await scene.clock.advance(300)  # ten visibility timeouts
            assert seen == [1]
            release.set()
            await scene.log.wait(Handled)
        assert scene.in_queue() == []


async def test_a_stop_lets_handlers_end():
    async with open_scene() as scene:
        endpoint, ended = scene.endpoint(), []

        @endpoint.handler
        async def slow(body: bytes) -> None:
            del body
            await scene.clock.sleep(10)
            ended.append(True)

        await scene.put()
        stop = asyncio.Event()
        async with endpoint:
            running = asyncio.create_task(endpoint.run(stop))
            await scene.clock.advance(5)
            stop.set()
            await scene.clock.advance(4)
            assert not running.done()
            await scene.clock.advance(2)
            await running
        assert ended == [True]
        assert scene.in_queue() == []


async def test_a_handler_cut_off_by_the_stop_counts_nothing():
    async with open_scene() as scene:
        seen = []

        def made():
            endpoint = scene.endpoint(stop_grace=timedelta(seconds=3), immediate_retries=0, delayed_retries=0)

            @endpoint.handler
            async def stuck(body: bytes, context: MessageContext) -> None:
                del body
                seen.append(context.attempt)
                await asyncio.Event().wait()

            return endpoint

        await scene.put()
        for _ in range(4):
            stop, endpoint = asyncio.Event(), made()
            async with endpoint:
                running = asyncio.create_task(endpoint.run(stop))
                await scene.clock.advance(2)
                stop.set()
                await scene.clock.advance(10)
                await running
        assert seen == [1, 1, 1, 1]
        (stored,) = scene.in_queue()
        assert stored.visible_at <= scene.clock.now()
        assert scene.in_queue("error") == []


async def test_a_queue_that_is_missing_is_said_at_the_start():
    async with open_scene() as scene:
        endpoint = scene.endpoint(queue="nowhere")
        endpoint.handler(lambda body: None)
        async with endpoint:
            with pytest.raises(DestinationNotFound, match="nowhere"):
                await endpoint.run(stopped())


async def test_a_queue_that_vanishes_is_told_and_tried_again():
    async with open_scene() as scene:
        endpoint = scene.endpoint()
        endpoint.handler(bytes)(lambda body: None)
        async with serving(endpoint):
            await scene.clock.advance(2)
            async with scene.endpoint() as other:
                await other.parts.backend.sender.delete(QUEUE)
                await scene.clock.advance(60)
                assert 5 <= len(scene.log.of(ReceiveFailed)) <= 12  # no hot loop
                await other.setup()
            await scene.put()
            await scene.clock.advance(12)
            await scene.log.wait(Handled)


async def test_with_delayed_delivery_off_delayed_retries_are_refused_at_the_start():
    async with open_scene() as scene:
        endpoint = scene.endpoint(disable_delayed_delivery=True)
        endpoint.handler(bytes)(lambda body: None)
        async with endpoint:
            with pytest.raises(ConfigurationError, match="POSTDATE_DELAYED_RETRIES=0"):
                await endpoint.run(stopped())


async def test_with_delayed_delivery_off_the_receiver_works():
    async with open_scene() as scene:
        endpoint, heard = scene.endpoint(disable_delayed_delivery=True, delayed_retries=0), []

        @endpoint.handler
        async def place(body: bytes, context: MessageContext) -> None:
            try:
                context.schedule(QUEUE, body, delay=5)
            except DelayedDeliveryDisabled as error:
                heard.append(str(error))

        await scene.put()
        await scene.run_for(endpoint, seconds=2)
        assert "POSTDATE_DISABLE_DELAYED_DELIVERY" in heard[0]


async def test_at_most_once_refuses_retries_at_the_start():
    async with open_scene() as scene:
        endpoint = scene.endpoint(guarantee="at_most_once")
        endpoint.handler(bytes)(lambda body: None)
        async with endpoint:
            with pytest.raises(ConfigurationError, match="POSTDATE_IMMEDIATE_RETRIES=0"):
                await endpoint.run(stopped())


async def test_at_most_once_acknowledges_first():
    async with open_scene() as scene:
        endpoint = scene.endpoint(guarantee="at_most_once", immediate_retries=0, delayed_retries=0)
        left = []

        @endpoint.handler
        async def place(body: bytes) -> None:
            del body
            left.append(len(scene.in_queue()))
            raise RuntimeError("no")

        await scene.put()
        await scene.run_for(endpoint, seconds=40)
        assert left == [0]
        assert [m.message_id for m in scene.messages()] == ["m1"]
