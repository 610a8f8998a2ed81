"""What is told and written of each retry: attempts in all, and when the message comes again."""

from datetime import timedelta

from receiver_cases import QUEUE, always_failing, open_scene, serving

from postdate import MessageContext, Recoverability, TryLater
from postdate.core.recoverability import Discard, default_policy
from postdate.events import (
    DelayedRetryAsked,
    Handled,
    ImmediateRetryAsked,
    MessageDiscarded,
    MessageFailed,
)
from postdate.model import headers as h

OF_ONE_MESSAGE = (ImmediateRetryAsked, DelayedRetryAsked, Handled, MessageFailed, MessageDiscarded)
LONG_AGO = "2020-01-01 00:00:00:000000 Z"


def numbers(scene, message_id="m1"):
    """Of each event about the message in order: what it is, and which attempt it names."""
    about = [e for e in scene.log.events if isinstance(e, OF_ONE_MESSAGE) and e.message_id == message_id]
    return [(type(e).__name__, e.attempts) for e in about]


ALL_OF_TWO_BY_THREE = [
    ("ImmediateRetryAsked", 1),
    ("DelayedRetryAsked", 2),
    ("ImmediateRetryAsked", 3),
    ("DelayedRetryAsked", 4),
    ("ImmediateRetryAsked", 5),
    ("MessageFailed", 6),
]


async def test_every_event_names_the_attempts_in_all_from_one_on():
    """REC-9: not from zero in one event and from one in the other, and never from the beginning again."""
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(immediate_retries=1, delayed_retries=2)
        always_failing(endpoint, RuntimeError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=40)
        assert numbers(scene) == ALL_OF_TWO_BY_THREE
        assert [attempt for _, attempt, _ in calls] == [1, 2, 3, 4, 5, 6]
        assert [event.retry for event in scene.log.of(DelayedRetryAsked)] == [1, 2]
        assert scene.messages()[0].headers[h.ATTEMPTS] == "6"


async def test_neither_a_restart_nor_a_message_given_back_changes_the_numbers():
    async with open_scene() as scene:
        given_back = []
        await scene.put()
        for _ in range(8):
            endpoint = scene.endpoint(immediate_retries=1, delayed_retries=2)

            @endpoint.handler
            async def work(body: bytes, context: MessageContext) -> None:
                if context.attempt not in given_back:
                    given_back.append(context.attempt)
                    raise TryLater("not now", delay=1)
                raise RuntimeError("no")

            await scene.run_for(endpoint, seconds=8)
        assert numbers(scene) == ALL_OF_TWO_BY_THREE
        assert given_back == [1, 2, 3, 4, 5, 6]


async def test_a_success_and_a_discard_name_them_too():
    def policy(config, context):
        return Discard("stale") if context.attempts == 3 else default_policy(config, context)

    async with open_scene() as scene:
        endpoint = scene.endpoint(immediate_retries=5, recoverability=Recoverability(policy=policy))

        @endpoint.handler
        async def work(body: bytes, context: MessageContext) -> None:
            if body == b"bad" or context.attempt < 3:
                raise RuntimeError("no")

        for name in ("good", "bad"):
            await scene.put(name, name.encode())
        await scene.run_for(endpoint, seconds=3)
        asked = [("ImmediateRetryAsked", 1), ("ImmediateRetryAsked", 2)]
        assert numbers(scene, "good") == [*asked, ("Handled", 3)]
        assert numbers(scene, "bad") == [*asked, ("MessageDiscarded", 3)]


async def test_each_delayed_retry_writes_when_it_comes_and_goes_by_nothing_that_was_written_before():
    """REC-6: `DeliverAt` of the sender, years ago, is no due time of a retry; nor is `TimeSent`."""
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(immediate_retries=1, delayed_retries=3)
        always_failing(endpoint, RuntimeError("no"), calls)
        await scene.put(**{h.DELIVER_AT: LONG_AGO, h.TIME_SENT: LONG_AGO})
        written = []
        async with serving(endpoint):
            for retry in (1, 2, 3):
                await scene.clock.advance(1)
                (stored,), (message,) = scene.in_queue(), scene.messages(QUEUE)
                (asked,) = [e for e in scene.log.of(DelayedRetryAsked) if e.retry == retry]
                assert message.headers[h.DELIVER_AT] == h.format_instant(asked.due_at)
                assert message.headers[h.RETRIES] == str(retry)
                failed_at = calls[-1][2]
                assert message.headers[h.RETRIES_TIMESTAMP] == h.format_instant(failed_at)
                assert asked.due_at - failed_at == timedelta(seconds=10 * retry)
                assert timedelta(0) <= stored.visible_at - asked.due_at < timedelta(seconds=1)
                assert message.headers[h.TIME_SENT] == LONG_AGO
                written.append(message.headers[h.DELIVER_AT])
                await scene.clock.advance(10 * retry)
            await scene.clock.advance(2)
        assert len(set(written)) == 3
        assert len(calls) == 8
        (copy,) = scene.messages()
        assert copy.headers[h.TIME_SENT] == LONG_AGO


async def test_an_immediate_retry_leaves_the_message_as_it_came():
    async with open_scene() as scene:
        endpoint = scene.endpoint(immediate_retries=3, delayed_retries=0)
        texts = []

        @endpoint.handler
        async def work(body: bytes) -> None:
            texts.append(scene.in_queue()[0].text)
            raise RuntimeError("no")

        await scene.put(**{h.DELIVER_AT: LONG_AGO})
        came = scene.in_queue()[0].text
        await scene.run_for(endpoint, seconds=3)
        assert texts == [came] * 4
