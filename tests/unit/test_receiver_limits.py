"""At the limits: messages that take no header more, and messages that are acknowledged before they are handled."""

from datetime import timedelta

import pytest
from receiver_cases import QUEUE, always_failing, open_scene, serving

from postdate import Recoverability
from postdate.core.recoverability import DelayedRetry, Discard, ImmediateRetry
from postdate.events import (
    BreakerTriggered,
    ErrorQueueRefused,
    MessageDiscarded,
    MessageFailed,
    MessageLost,
    PolicyFailed,
)
from postdate.model import headers as h
from postdate.model.envelope import wrapper_json
from postdate.model.limits import ENVELOPE_BYTES
from postdate.model.message import Message

AT_MOST_ONCE = {"guarantee": "at_most_once", "immediate_retries": 0, "delayed_retries": 0}


@pytest.mark.parametrize("action", [ImmediateRetry(), DelayedRetry(timedelta(seconds=5))], ids=str)
async def test_at_most_once_a_policy_that_asks_for_a_retry_loses_nothing(action):
    async with open_scene() as scene:
        policy = Recoverability(policy=lambda config, context: action)
        endpoint = scene.endpoint(recoverability=policy, **AT_MOST_ONCE)
        calls = []
        always_failing(endpoint, RuntimeError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=40)
        assert len(calls) == 1
        assert "at_most_once" in scene.log.of(PolicyFailed)[0].error
        assert [m.message_id for m in scene.messages()] == ["m1"]


async def test_at_most_once_an_error_queue_that_is_gone_loses_nothing():
    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(scene.endpoint(**AT_MOST_ONCE), RuntimeError("no"), calls)
        async with scene.endpoint() as other:
            await other.parts.backend.sender.delete("error")
        await scene.put()
        async with serving(endpoint):
            await scene.clock.advance(30)
            assert len(scene.in_queue()) == 1
            async with scene.endpoint() as other:
                await other.setup()
            await scene.clock.advance(61)
        assert len(calls) == 1
        (copy,) = scene.messages()
        assert copy.headers[h.EXCEPTION_MESSAGE] == "no"
        assert scene.in_queue() == []


async def test_at_most_once_a_message_without_room_for_the_verdict_is_kept_for_the_error_queue():
    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(scene.endpoint(**AT_MOST_ONCE), RuntimeError("no"), calls)
        async with scene.endpoint() as other:
            await other.parts.backend.sender.delete("error")
        body = b"x" * 300  # in a blob, it makes room for the verdict
        big = "y" * (ENVELOPE_BYTES - len(wrapper_json(Message("m1", {"big": ""}, body))) - 10)
        await scene.put(body=body, big=big)
        async with serving(endpoint):
            await scene.clock.advance(30)
            assert len(scene.in_queue()) == 1
            assert scene.log.of(MessageLost) == []
            async with scene.endpoint() as other:
                await other.setup()
            await scene.clock.advance(61)
        assert len(calls) == 1
        (copy,) = scene.messages()
        assert copy.headers["big"] == big
        assert scene.in_queue() == []


async def test_at_most_once_a_message_that_nothing_takes_is_told_as_lost():
    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(scene.endpoint(**AT_MOST_ONCE), RuntimeError("no"), calls)
        async with scene.endpoint() as other:
            await other.parts.backend.sender.delete("error")
        await scene.put(body=b"", big="y" * 48_930)
        async with serving(endpoint):
            await scene.clock.advance(30)
        assert len(calls) == 1
        (lost,) = scene.log.of(MessageLost)
        assert (lost.message_id, lost.queue) == ("m1", QUEUE)
        assert "no room" in lost.error
        (refused,) = scene.log.of(ErrorQueueRefused)
        assert refused.next_attempt_at is None
        assert scene.in_queue() == []


async def test_at_most_once_what_the_policy_discards_is_told():
    async with open_scene() as scene:
        policy = Recoverability(policy=lambda config, context: Discard("of no use"))
        endpoint = scene.endpoint(recoverability=policy, **AT_MOST_ONCE)
        always_failing(endpoint, RuntimeError("no"), [])
        await scene.put()
        await scene.run_for(endpoint, seconds=5)
        (discarded,) = scene.log.of(MessageDiscarded)
        assert discarded.reason == "of no use"
        assert scene.in_queue() == scene.in_queue("error") == []


async def test_headers_that_leave_no_room_get_the_two_fault_headers_that_matter():
    async with open_scene() as scene:
        endpoint = always_failing(scene.endpoint(), RuntimeError("no"), [])
        await scene.put(body=b"x", big="y" * 48_600)
        await scene.run_for(endpoint, seconds=70)
        (copy,) = scene.messages()
        assert copy.headers["big"] == "y" * 48_600
        assert copy.headers[h.FAILED_QUEUE] == QUEUE
        assert copy.headers[h.EXCEPTION_TYPE] == "builtins.RuntimeError"
        assert h.STACK_TRACE not in copy.headers
        assert len(scene.log.of(MessageFailed)) == 1
        assert scene.in_queue() == []


async def test_headers_that_leave_no_room_at_all_go_as_they_came():
    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(scene.endpoint(), RuntimeError("no"), calls)
        await scene.put(body=b"", big="y" * 48_930)
        (came,) = scene.in_queue()
        await scene.run_for(endpoint, seconds=70)
        (stored,) = scene.in_queue("error")
        assert stored.text == came.text
        assert len(calls) == 6  # it takes no counter, so it can't be put off
        assert scene.in_queue() == []


async def test_failures_of_recovery_itself_are_critical_in_the_end():
    async with open_scene() as scene:
        told = []
        endpoint = scene.endpoint(
            immediate_retries=0, delayed_retries=0, receive_concurrency=40, on_critical_error=told.append
        )
        always_failing(endpoint, RuntimeError("no"), [])
        async with scene.endpoint() as other:
            await other.parts.backend.sender.delete("error")
        for n in range(40):
            await scene.put(f"m{n}")
        await scene.run_for(endpoint, seconds=20)
        assert [record.breaker for record in told] == ["recovery"]
        assert scene.log.of(BreakerTriggered)[0].breaker == "recovery"
        assert len(scene.in_queue()) == 40
