"""What goes wrong around a handler: each with a clear line, the message safe, and others served."""

import asyncio
import itertools
import logging
import threading
from datetime import timedelta

from receiver_cases import QUEUE, always_failing, open_scene, serving

from postdate import MessageContext
from postdate.engine.watchdog import Watchdog
from postdate.errors import OutcomeUnknown, ServiceBusy
from postdate.events import (
    AlreadyHandled,
    BackToSpeed,
    ErrorQueueRefused,
    Events,
    Handled,
    HandlerAbandoned,
    HandlerSlow,
    LoopBlocked,
    MessageFailed,
    PoisonMoved,
    SlowedDown,
    VisibilityLost,
)
from postdate.model import headers as h
from postdate.model.envelope import wrap
from postdate.model.message import Message


async def test_every_fault_header_is_there():
    async with open_scene() as scene:
        endpoint = scene.endpoint(immediate_retries=0, delayed_retries=0)

        @endpoint.handler
        async def fail(body: bytes) -> None:
            try:
                raise KeyError("inner")
            except KeyError as inner:
                outer = RuntimeError("x" * 100_000)
                outer.add_note("order 7")
                raise outer from inner

        await scene.put()
        await scene.run_for(endpoint, seconds=3)
        (copy,) = scene.messages()
        assert copy.headers[h.FAILED_QUEUE] == QUEUE
        assert copy.headers[h.EXCEPTION_TYPE] == "builtins.RuntimeError"
        assert copy.headers[h.INNER_EXCEPTION_TYPE] == "builtins.KeyError"
        assert copy.headers[h.EXCEPTION_MESSAGE] == "x" * 16_384
        trace = copy.headers[h.STACK_TRACE]
        assert trace.index("KeyError: 'inner'") < trace.index("RuntimeError: xxx")
        assert copy.headers[h.EXCEPTION_SOURCE] == "builtins"
        assert copy.headers[f"{h.EXCEPTION_DATA}Notes"] == "order 7"
        assert h.parse_instant(copy.headers[h.TIME_OF_FAILURE]) <= scene.clock.now()
        assert copy.headers[h.PROCESSING_ENDPOINT] == "Orders"
        assert copy.headers[h.PROCESSING_MACHINE]
        assert len(copy.headers[h.HOST_ID]) == 32
        assert copy.headers[h.HOST_NAME]


async def test_a_message_too_large_with_its_fault_headers_arrives_with_its_body_in_a_blob():
    async with open_scene() as scene:
        endpoint = scene.endpoint(immediate_retries=0, delayed_retries=0)
        always_failing(endpoint, RuntimeError("x" * 20_000), [])
        body = bytes(36_500)
        await scene.put(body=body)
        await scene.run_for(endpoint, seconds=3)
        (copy,) = scene.messages()
        assert copy.body == b""
        async with scene.endpoint() as reader:
            assert await reader.parts.backend.payloads.get(copy.headers[h.PAYLOAD]) == body


async def test_a_body_of_the_wrong_type_has_one_attempt_and_its_reason():
    async with open_scene() as scene:
        endpoint = scene.endpoint()

        @endpoint.handler
        async def place(numbers: list[int]) -> None:
            raise AssertionError(numbers)

        await scene.put(body=b'{"a": 1}')
        await scene.put("empty", b"")
        await scene.run_for(endpoint, seconds=3)
        failed = {event.message_id: event for event in scene.log.of(MessageFailed)}
        assert failed["m1"].attempts == failed["empty"].attempts == 1
        assert "UnreadableBody" in failed["m1"].error


async def test_a_message_of_a_type_that_nobody_handles_has_one_attempt():
    async with open_scene() as scene:
        endpoint = scene.endpoint()

        @endpoint.handler(int, names=["Contoso.Known"])
        async def place(number: int) -> None:
            raise AssertionError(number)

        await scene.put(**{h.ENCLOSED_TYPES: "Contoso.Unknown"})
        await scene.run_for(endpoint, seconds=3)
        (failed,) = scene.log.of(MessageFailed)
        assert "Contoso.Unknown" in failed.error
        assert "Contoso.Known" in failed.error


async def test_what_is_no_message_goes_to_the_error_queue_as_it_is():
    poison = wrap(Message("m", {}, b"")).replace("e", "e")  # an envelope ...
    broken = _without_headers(poison)
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []
        endpoint.handler(bytes)(seen.append)
        await scene.put_text(broken)
        await scene.put("fine", b"x")
        async with serving(endpoint):
            await scene.log.wait(Handled)
            await scene.log.wait(PoisonMoved)
        assert seen == [b"x"]
        (stored,) = scene.in_queue("error")
        assert stored.text == broken
        assert stored.expires_at is None


def _without_headers(text):
    import base64
    import json

    members = json.loads(base64.b64decode(text))
    del members["Headers"]
    return base64.b64encode(json.dumps(members).encode()).decode()


async def test_an_error_queue_that_is_gone_keeps_the_message_and_spares_the_handler():
    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(
            scene.endpoint(immediate_retries=1, delayed_retries=0), RuntimeError("no"), calls
        )
        async with scene.endpoint() as other:
            await other.parts.backend.sender.delete("error")
        await scene.put()
        async with serving(endpoint):
            await scene.clock.advance(30)
            assert len(calls) == 2  # decided once; not handled again for that
            refusals = scene.log.of(ErrorQueueRefused)
            assert 3 <= len(refusals) <= 30
            assert "postdate setup" in refusals[0].error
            assert len(scene.in_queue()) == 1
            async with scene.endpoint() as other:
                await other.setup()
            await scene.clock.advance(61)
        (copy,) = scene.messages()
        assert copy.headers[h.ATTEMPTS] == "2"
        assert copy.headers[h.EXCEPTION_MESSAGE] == "no"
        assert [e.error for e in scene.log.of(MessageFailed)] == ["RuntimeError: no"]
        assert not set(h.RETRY_HEADERS) & set(copy.headers)
        assert scene.in_queue() == []
        assert len(calls) == 2


async def test_a_handler_that_never_returns_is_told_cut_and_counted_while_others_are_served():
    async with open_scene() as scene:
        endpoint = scene.endpoint(
            handler_timeout=timedelta(minutes=3),
            immediate_retries=0,
            delayed_retries=0,
            receive_concurrency=2,
        )

        @endpoint.handler
        async def work(body: bytes) -> None:
            if body == b"stuck":
                await asyncio.Event().wait()

        await scene.put("stuck", b"stuck")
        async with serving(endpoint):
            for n in range(10):
                await scene.put(f"m{n}", b"ok")
            await scene.clock.advance(10)
            assert len(scene.log.of(Handled)) == 10
            await scene.clock.advance(60)
            (slow,) = scene.log.of(HandlerSlow)
            assert (slow.message_id, slow.seconds) == ("stuck", 60)
            assert "work" in slow.where
            await scene.clock.advance(180)
        (failed,) = scene.log.of(MessageFailed)
        assert "POSTDATE_HANDLER_TIMEOUT" in failed.error
        assert scene.log.of(HandlerAbandoned) == []  # it was cancelled, and let itself be
        assert [m.message_id for m in scene.messages()] == ["stuck"]


async def test_a_handler_that_does_not_let_itself_be_cancelled_holds_its_place_and_nothing_else():
    async with open_scene() as scene:
        endpoint = scene.endpoint(
            handler_timeout=timedelta(seconds=10),
            immediate_retries=0,
            delayed_retries=0,
            receive_concurrency=2,
            stop_grace=timedelta(0),
        )
        release = asyncio.Event()

        @endpoint.handler
        async def work(body: bytes) -> None:
            while body == b"stuck" and not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        await scene.put("stuck", b"stuck")
        async with serving(endpoint):
            await scene.clock.advance(20)
            in_error_queue = [m.message_id for m in scene.messages()]
            for n in range(5):
                await scene.put(f"m{n}", b"ok")
            await scene.clock.advance(5)
            served = len(scene.log.of(Handled))
            release.set()  # before anything is judged: nothing else ends it
        (abandoned,) = scene.log.of(HandlerAbandoned)
        assert abandoned.message_id == "stuck"
        assert in_error_queue == ["stuck"]
        assert served == 5


async def test_a_thread_that_never_returns_is_abandoned_and_its_message_kept():
    async with open_scene() as scene:
        release = threading.Event()
        endpoint = scene.endpoint(
            handler_timeout=timedelta(seconds=10), immediate_retries=0, delayed_retries=0
        )

        @endpoint.handler
        def work(body: bytes) -> None:
            if body == b"stuck":
                release.wait()

        await scene.put("stuck", b"stuck")
        try:
            async with serving(endpoint):
                await scene.clock.advance(15)
                await scene.put("fine", b"ok")
                await scene.clock.advance(2)
                await scene.log.wait(Handled)
                assert [m.message_id for m in scene.messages()] == ["stuck"]
                release.set()
        finally:
            release.set()
        assert scene.log.of(HandlerAbandoned)[0].message_id == "stuck"


async def test_a_handler_that_blocks_the_loop_is_named():
    log, lines, told = [], [], threading.Event()

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())
            told.set()

    handler = Lines(logging.ERROR)
    logging.getLogger("postdate.receiver").addHandler(handler)
    try:
        with Watchdog(Events([log.append]), limit_s=0.05, pause_s=0.01):
            assert told.wait(30)  # this very test blocks its loop, until somebody says so
            heard = asyncio.Event()
            while not log:
                await asyncio.wait({asyncio.create_task(heard.wait())}, timeout=0.05)
    finally:
        logging.getLogger("postdate.receiver").removeHandler(handler)
    blocked = log[0]  # a busy machine may block it again
    assert isinstance(blocked, LoopBlocked)
    assert blocked.seconds >= 0.05
    assert "test_a_handler_that_blocks" in blocked.where
    assert "the event loop is blocked" in lines[0]


async def test_a_message_lost_while_it_was_handled_is_told_and_acknowledged_by_its_next_owner():
    async with open_scene() as scene:
        endpoint = scene.endpoint()
        seen = []

        @endpoint.handler
        async def work(body: bytes, context: MessageContext) -> None:
            del body
            seen.append(context.attempt)
            if len(seen) == 1:
                scene.in_queue()[0].pop_receipt = "somebody else's"
                await scene.clock.sleep(20)

        await scene.put()
        async with serving(endpoint):
            await scene.clock.advance(60)
        assert len(scene.log.of(VisibilityLost)) == 1
        assert seen == [1]  # it was handled: the next appearance goes unseen
        assert len(scene.log.of(AlreadyHandled)) == 1
        assert scene.in_queue() == []


async def test_an_acknowledgement_that_fails_is_made_up_for_at_the_next_appearance():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []
        endpoint.handler(bytes)(seen.append)
        await scene.put(body=b"x")
        async with endpoint:
            queues = endpoint.parts.backend.receiver
            ack, failures = queues.ack, [ServiceBusy("no"), OutcomeUnknown("?")]

            async def failing(received):
                if failures:
                    raise failures.pop()
                return await ack(received)

            queues.ack = failing
            stop = asyncio.Event()
            running = asyncio.create_task(endpoint.run(stop))
            await scene.clock.advance(70)
            stop.set()
            await running
        assert seen == [b"x"]
        assert failures == []
        assert scene.in_queue() == []


async def test_a_process_that_dies_with_the_message_each_time_does_not_take_it_for_ever():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(immediate_retries=2, delayed_retries=0), []
        endpoint.handler(bytes)(seen.append)
        await scene.put()
        scene.in_queue()[0].dequeue_count = 3  # taken three times, and never a word
        await scene.run_for(endpoint, seconds=2)
        assert seen == []
        (failed,) = scene.log.of(MessageFailed)
        assert "HandlerNeverEnded" in failed.error


async def test_a_handler_that_cancels_itself_has_failed():
    async with open_scene() as scene:
        endpoint = scene.endpoint(immediate_retries=1, delayed_retries=0)

        @endpoint.handler
        async def work(body: bytes) -> None:
            raise asyncio.CancelledError

        await scene.put()
        await scene.run_for(endpoint, seconds=3)
        assert scene.log.of(MessageFailed)[0].attempts == 2


async def test_failures_in_a_row_slow_down_to_one_and_a_success_ends_it():
    async with open_scene() as scene:
        endpoint = scene.endpoint(
            rate_limit_after=10,
            rate_limit_pause=timedelta(seconds=1),
            receive_concurrency=8,
            immediate_retries=1000,
            delayed_retries=0,
        )
        healthy, begun = [], []

        @endpoint.handler
        async def work(body: bytes) -> None:
            begun.append(scene.clock.monotonic())
            if not healthy:
                raise RuntimeError("down")

        for n in range(8):
            await scene.put(f"m{n}")
        async with serving(endpoint):
            await scene.clock.advance(20)
            (slowed,) = scene.log.of(SlowedDown)
            assert slowed.failures == 10
            late = [at for at in begun if at > begun[0] + 5]
            assert all(b - a >= 1 for a, b in itertools.pairwise(late))
            healthy.append(True)
            await scene.clock.advance(3)
            await scene.log.wait(Handled, count=8)
        assert len(scene.log.of(BackToSpeed)) == 1


async def test_an_observer_that_raises_changes_nothing():
    def observer(event):
        raise ZeroDivisionError

    async with open_scene() as scene:
        endpoint = scene.endpoint(immediate_retries=1, delayed_retries=0)
        calls = []
        always_failing(endpoint, RuntimeError("no"), calls)
        await scene.put()
        async with endpoint:
            endpoint.parts.events.observe(observer)
            stop = asyncio.Event()
            running = asyncio.create_task(endpoint.run(stop))
            await scene.clock.advance(3)
            stop.set()
            await running
        assert len(calls) == 2
        assert len(scene.messages()) == 1


async def test_a_message_returned_by_hand_after_two_days_has_its_whole_budget_again():
    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(scene.endpoint(immediate_retries=0), RuntimeError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=70)
        assert len(calls) == 4
        await scene.clock.advance(timedelta(days=2))
        (stored,) = scene.in_queue("error")
        await scene.put_text(stored.text)
        again = always_failing(scene.endpoint(immediate_retries=0), RuntimeError("no"), calls)
        await scene.run_for(again, seconds=70)
        assert len(calls) == 8
