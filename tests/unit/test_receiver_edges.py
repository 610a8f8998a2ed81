"""Where two things meet: prolonging and ending, odd handlers, callbacks that fail, counters and long waits."""

import functools
from datetime import timedelta

import pytest
from receiver_cases import QUEUE, always_failing, open_scene, serving, serving_open
from test_classify import raised

from postdate import MessageContext, Recoverability
from postdate.core.classify import Classifier, Kind
from postdate.core.recoverability import Discard, ImmediateRetry, MoveToError
from postdate.errors import ConfigurationError, HandlerNeverEnded, ServiceBusy, TryLater
from postdate.events import Handled, HandlerAbandoned, MessageFailed, PolicyFailed
from postdate.model import headers as h


class Callable:
    def __init__(self, seen):
        self.seen = seen

    async def __call__(self, body: bytes):
        self.seen.append(body)


def around(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@pytest.mark.parametrize("odd", ["lambda", "decorator", "object"])
async def test_what_is_async_in_disguise_is_run_to_its_end(odd):
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        async def handle(body: bytes) -> None:
            await scene.clock.sleep(0.1)
            seen.append(body)

        endpoint.handler(bytes)(
            {"lambda": lambda body: handle(body), "decorator": around(handle), "object": Callable(seen)}[odd]
        )
        await scene.put(body=b"x")
        async with serving(endpoint):
            await scene.clock.advance(1)
            for _ in range(100):
                await scene.clock.advance(0.1)
                if scene.log.of(Handled):
                    break
            await scene.log.wait(Handled)
        assert seen == [b"x"]


async def test_a_generator_is_refused_as_a_handler():
    async with open_scene() as scene:

        def lazy(body: bytes):
            yield body

        with pytest.raises(ConfigurationError, match="yield"):
            scene.endpoint().handler(lazy)


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt])
async def test_what_a_thread_can_not_raise_through_the_loop_is_a_failure_all_the_same(error):
    async with open_scene() as scene:
        endpoint = scene.endpoint(immediate_retries=1, delayed_retries=0)

        @endpoint.handler
        def odd(body: bytes) -> None:
            raise error

        await scene.put()
        async with serving(endpoint):
            await scene.clock.advance(1)
            for _ in range(100):
                await scene.clock.advance(0.1)
                if scene.log.of(MessageFailed):
                    break
            failed = await scene.log.wait(MessageFailed)
        assert failed.attempts == 2
        assert error.__name__ in failed.error


@pytest.mark.parametrize(
    "recoverability",
    [
        Recoverability(unrecoverable=[ValueError]),
        Recoverability(fault_headers=lambda headers, error: headers.update(n=3)),
        Recoverability(policy=lambda config, context: MoveToError("Not A Queue")),
        Recoverability(policy=lambda config, context: MoveToError("queue@nobody")),
    ],
    ids=["a list of types", "a header that is no text", "no queue name", "no account"],
)
async def test_what_is_wrong_in_the_users_recoverability_keeps_no_message_from_the_error_queue(
    recoverability,
):
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(recoverability=recoverability, immediate_retries=0, delayed_retries=0)
        always_failing(endpoint, ValueError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=3)
        assert len(calls) == 1
        assert [m.message_id for m in scene.messages()] == ["m1"]
        assert scene.in_queue() == []


async def test_a_classifier_that_raises_is_told_and_nothing_is_told_apart():
    async with open_scene() as scene:
        classifier, calls = Classifier(), []
        classifier.rule(lambda error: Kind.BUSY if error.code == 5 else None)
        endpoint = scene.endpoint(
            recoverability=Recoverability(classifier=classifier), immediate_retries=2, delayed_retries=0
        )
        always_failing(endpoint, RuntimeError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=3)
        assert len(calls) == 3
        assert "code" in scene.log.of(PolicyFailed)[0].error
        assert len(scene.messages()) == 1


async def test_a_policy_may_allow_more_immediate_retries_than_the_setting():
    def policy(config, context):
        assert not isinstance(context.error, HandlerNeverEnded) or context.immediate_failures <= 20
        return ImmediateRetry() if context.immediate_failures < 20 else Discard("enough")

    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(recoverability=Recoverability(policy=policy), immediate_retries=5)
        always_failing(endpoint, RuntimeError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=10)
        assert [attempt for _, attempt, _ in calls] == list(range(1, 21))


async def test_a_message_is_kept_hidden_while_what_it_sends_goes_out():
    async with open_scene("slow") as scene:
        one, two = scene.endpoint(), scene.endpoint()
        seen = []
        for endpoint in (one, two):

            @endpoint.handler
            async def many(body: bytes, context: MessageContext) -> None:
                seen.append(context.attempt)
                for _ in range(20):
                    context.send("slow", body)

        await scene.put()
        async with one, two:
            for endpoint in (one, two):
                _slow_down(endpoint, scene.clock)
            async with serving_open(one, two):
                await scene.clock.advance(120)
        assert seen == [1]
        assert len(scene.messages("slow")) == 20


def _slow_down(endpoint, clock):
    sender, send = endpoint.parts.backend.sender, endpoint.parts.backend.sender.send

    async def slow(destination, text, **options):
        if destination == "slow":
            await clock.sleep(4)
        return await send(destination, text, **options)

    sender.send = slow


async def test_a_prolongation_under_way_when_the_handler_ends_is_waited_for():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.handler
        async def work(body: bytes) -> None:
            seen.append(body)
            await scene.clock.sleep(15.2)  # the prolongation leaves at 15 s, and takes half a second

        await scene.put(body=b"x")
        async with endpoint:
            receiver = endpoint.parts.backend.receiver
            extend = receiver.extend

            async def slow(received, visibility_s):
                again = await extend(received, visibility_s)
                await scene.clock.sleep(0.5)
                return again

            receiver.extend = slow
            async with serving_open(endpoint):
                await scene.clock.advance(60)
        assert seen == [b"x"]
        assert scene.in_queue() == []
        assert len(scene.log.of(Handled)) == 1


async def test_a_retry_of_three_weeks_is_never_early():
    async with open_scene() as scene:
        calls, weeks = [], timedelta(days=20)
        options = {"immediate_retries": 0, "delayed_retries": 1, "delayed_retry_increase": weeks}
        await scene.put()
        await scene.run_for(always_failing(scene.endpoint(**options), RuntimeError("no"), calls), seconds=5)
        for _ in range(2):
            await scene.clock.advance(timedelta(days=7, seconds=5))
            again = always_failing(scene.endpoint(**options), RuntimeError("no"), calls)
            await scene.run_for(again, seconds=5)
            assert len(calls) == 1
        await scene.clock.advance(timedelta(days=6))
        again = always_failing(scene.endpoint(**options), RuntimeError("no"), calls)
        await scene.run_for(again, seconds=5)
        assert [attempt for _, attempt, _ in calls] == [1, 2]
        assert calls[1][2] - calls[0][2] >= weeks


async def test_a_body_that_can_not_be_had_counts_nothing():
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(immediate_retries=1, delayed_retries=0), []

        @endpoint.handler
        async def work(body: bytes, context: MessageContext) -> None:
            seen.append((len(body), context.attempt))

        async with endpoint:
            await endpoint.send(QUEUE, bytes(100_000))
            payloads = endpoint.parts.backend.payloads
            get = payloads.get

            async def busy(name):
                raise ServiceBusy("503")

            payloads.get = busy
            async with serving_open(endpoint):
                await scene.clock.advance(300)
                assert seen == []
                payloads.get = get
                await scene.clock.advance(61)
        assert seen == [(100_000, 1)]
        assert scene.in_queue() == scene.in_queue("error") == []


async def test_headers_that_are_sent_on_do_not_bring_the_journey_with_them():
    async with open_scene("next") as scene:
        endpoint = scene.endpoint()

        @endpoint.handler
        async def work(body: bytes, context: MessageContext) -> None:
            context.send("next", b"small", headers=context.headers)

        async with endpoint:
            await endpoint.send(QUEUE, bytes(100_000), headers={"x": "y"})
            async with serving_open(endpoint):
                await scene.clock.advance(2)
        (sent,) = scene.messages("next")
        assert sent.body == b"small"
        assert sent.headers["x"] == "y"
        assert not set(h.OF_ONE_JOURNEY) & set(sent.headers)


async def test_a_handler_that_goes_on_takes_no_second_place():
    async with open_scene() as scene:
        import threading

        release = threading.Event()
        endpoint = scene.endpoint(handler_timeout=timedelta(seconds=5), receive_concurrency=2)

        @endpoint.handler
        def stuck(body: bytes) -> None:
            release.wait()

        await scene.put()
        try:
            async with serving(endpoint):
                await scene.clock.advance(60)
                assert len(scene.log.of(HandlerAbandoned)) == 1
                assert [m.message_id for m in scene.messages()] == ["m1"]
                release.set()
        finally:
            release.set()


def test_an_error_that_was_handled_before_the_real_one_is_not_permanent():
    def upsert():
        try:
            raise LookupError
        except LookupError:
            raise ConnectionResetError  # noqa: B904 - that is the point

    assert Classifier()(raised(upsert)) is Kind.TRANSIENT


@pytest.mark.parametrize(
    ("delay", "times"), [(0, 10), (-5, 10), (0.2, 10), (timedelta(seconds=3), 4), ("3s", 4)]
)
async def test_try_later_waits_as_long_as_it_says_and_a_second_at_least(delay, times):
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(), []

        @endpoint.handler
        async def place(body: bytes) -> None:
            seen.append(body)
            raise TryLater("the door is shut", delay=delay)

        await scene.put()
        await scene.run_for(endpoint, seconds=10)
        assert times / 2 < len(seen) <= times + 1


@pytest.mark.parametrize("delay", ["soon", float("nan"), None, 1e12])
async def test_a_try_later_without_a_duration_is_a_failure_that_names_it(delay):
    async with open_scene() as scene:
        endpoint = scene.endpoint()

        @endpoint.handler
        async def place(body: bytes) -> None:
            raise TryLater("the door is shut", delay=delay)

        await scene.put()
        await scene.run_for(endpoint, seconds=5)
        (failed,) = scene.log.of(MessageFailed)
        assert "TryLater" in failed.error
        assert str(delay)[:4] in failed.error
        assert len(scene.in_queue("error")) == 1
