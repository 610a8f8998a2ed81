"""An error queue that takes nothing: what a handler failed on stays, backed off and told, and goes over once."""

import itertools
from datetime import timedelta

import pytest
from engine_cases import Outage
from receiver_cases import QUEUE, always_failing, open_scene, serving_open

from postdate import Recoverability
from postdate.core.recoverability import MoveToError
from postdate.errors import AccessDenied, DestinationNotFound, ServiceBusy, StorageError
from postdate.events import ErrorQueueRefused, MessageFailed, PoisonMoved, RecoveryFailed
from postdate.model import headers as h

#: The back-off: twice as long each time, at most a minute, and by jitter at least half of that.
FIRST, LONGEST = 2, 60
#: A queue hides for whole seconds, and an idle receiver looks each second.
BEAT = 2
REFUSALS = {
    "500": (ServiceBusy, "queue 'error' answered 500 (InternalError)"),
    "503": (ServiceBusy, "queue 'error' answered 503 (ServerBusy)"),
    "403": (AccessDenied, "queue 'error' answered 403 (AuthorizationPermissionMismatch)"),
    "full": (StorageError, "queue 'error' answered 507 (InsufficientStorage)"),
    "not there": (DestinationNotFound, "error"),
}
refusals = pytest.mark.parametrize(("error", "argument"), REFUSALS.values(), ids=REFUSALS)


def full(endpoint, error, argument):
    """The error queue of an open endpoint takes nothing while this lasts."""
    to_error = Outage(error, argument, when=lambda destination, *_, **__: destination == "error")
    return to_error.of(endpoint.parts.backend.sender, "send")


def failing(scene, calls, **options):
    options = {"immediate_retries": 0, "delayed_retries": 0, "on_critical_error": lambda _: None} | options
    return always_failing(scene.endpoint(**options), RuntimeError("no"), calls)


def check_back_off(refused, tries, began):
    """Each try is told, and comes when the one before said: later each time, and never in a hot loop."""
    assert len(refused) == tries
    announced = [(event.next_attempt_at - began).total_seconds() for event in refused]
    gaps = [b - a for a, b in itertools.pairwise([0.0, *announced])]
    for tried, gap in enumerate(gaps):
        whole = min(LONGEST, FIRST * 2**tried)
        assert whole / 2 <= gap <= whole + BEAT


@refusals
async def test_a_failed_message_stays_and_goes_over_once_when_the_error_queue_takes_it(error, argument):
    async with open_scene() as scene:
        calls = []
        endpoint = failing(scene, calls)
        await scene.put(body=b"mine", x="y")
        async with endpoint:
            outage = full(endpoint, error, argument)
            began = scene.clock.now()
            async with serving_open(endpoint):
                await scene.clock.advance(300)
                assert len(scene.in_queue()) == 1
                assert scene.in_queue("error") == []
                assert scene.log.of(MessageFailed) == []
                refused = scene.log.of(ErrorQueueRefused)
                check_back_off(refused, len(outage.tried), began)
                assert len(refused) >= 300 // (LONGEST + BEAT)  # it does try
                assert {(e.message_id, e.error_queue) for e in refused} == {("m1", "error")}
                assert all(argument in event.error for event in refused)
                assert scene.log.of(RecoveryFailed) == []
                outage.lasts = False
                await scene.clock.advance(LONGEST + BEAT)
        assert len(calls) == 1  # decided once; not handled again for that
        (copy,) = scene.messages()
        assert (copy.message_id, copy.body, copy.headers["x"]) == ("m1", b"mine", "y")
        assert copy.headers[h.ATTEMPTS] == "1"
        assert copy.headers[h.EXCEPTION_MESSAGE] == "no"
        assert not set(h.RETRY_HEADERS) & set(copy.headers)
        assert scene.in_queue("error")[0].expires_at is None
        (told,) = scene.log.of(MessageFailed)
        assert (told.attempts, told.error_queue) == (1, "error")
        assert scene.in_queue() == []


@refusals
async def test_what_is_no_message_stays_as_it_is_and_goes_over_once(error, argument, golden):
    broken = golden["envelope_rejected"][0]["message_text"]
    async with open_scene() as scene:
        calls = []
        endpoint = failing(scene, calls)
        await scene.put_text(broken)
        async with endpoint:
            outage = full(endpoint, error, argument)
            began = scene.clock.now()
            async with serving_open(endpoint):
                await scene.clock.advance(300)
                (stored,) = scene.in_queue()
                assert stored.text == broken
                assert scene.in_queue("error") == []
                refused = scene.log.of(ErrorQueueRefused)
                check_back_off(refused, len(outage.tried), began)
                assert len(refused) >= 300 // (LONGEST + BEAT)
                assert {(e.message_id, e.error_queue) for e in refused} == {(stored.native_id, "error")}
                assert scene.log.of(PoisonMoved) == []
                outage.lasts = False
                await scene.clock.advance(LONGEST + BEAT)
        assert calls == []
        (moved,) = scene.in_queue("error")
        assert (moved.text, moved.expires_at) == (broken, None)
        assert len(scene.log.of(PoisonMoved)) == 1
        assert scene.in_queue() == []


async def test_another_process_goes_on_with_the_verdict_and_does_not_handle_again():
    async with open_scene() as scene:
        first, second = [], []
        await scene.put()
        one = failing(scene, first)
        async with one:
            full(one, ServiceBusy, "503")
            async with serving_open(one):
                await scene.clock.advance(10)
        (stored,) = scene.messages(QUEUE)
        assert stored.headers[h.CONDEMNED] == "error"
        other = failing(scene, second)
        await scene.run_for(other, seconds=LONGEST + BEAT)
        assert (len(first), second) == (1, [])
        assert [copy.headers[h.EXCEPTION_MESSAGE] for copy in scene.messages()] == ["no"]
        assert scene.in_queue() == []


async def test_a_verdict_keeps_the_queue_that_the_policy_chose():
    async with open_scene("special") as scene:
        policy = Recoverability(policy=lambda config, context: MoveToError("special"))
        endpoint = failing(scene, [], recoverability=policy)
        await scene.put()
        async with endpoint:
            special = Outage(ServiceBusy, "503", when=lambda queue, *_, **__: queue == "special")
            special.of(endpoint.parts.backend.sender, "send")
            async with serving_open(endpoint):
                await scene.clock.advance(60)
                assert {e.error_queue for e in scene.log.of(ErrorQueueRefused)} == {"special"}
                special.lasts = False
                await scene.clock.advance(LONGEST + BEAT)
        assert [m.message_id for m in scene.messages("special")] == ["m1"]
        assert scene.in_queue() == scene.in_queue("error") == []


@pytest.mark.parametrize("size", [100, 36_500])
async def test_a_verdict_is_kept_although_the_blob_that_it_needs_can_not_be_written(size):
    """With its fault headers the large one fits no queue; what is left to say of it must still be the truth."""
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(immediate_retries=0, delayed_retries=0, on_critical_error=lambda _: None)
        always_failing(endpoint, RuntimeError("x" * 20_000), calls)
        await scene.put(body=bytes(size))
        async with endpoint:
            outage = Outage(ServiceBusy, "503").of(endpoint.parts.backend.payloads, "put")
            to_error = full(endpoint, ServiceBusy, "503")
            async with serving_open(endpoint):
                await scene.clock.advance(100)
                to_error.lasts = False
                await scene.clock.advance(100)
                outage.lasts = False
                await scene.clock.advance(LONGEST + BEAT)
                (copy,) = scene.messages()
                assert (len(calls), scene.in_queue()) == (1, [])
                assert copy.headers[h.EXCEPTION_TYPE] == "builtins.RuntimeError"
                assert (h.EXCEPTION_MESSAGE in copy.headers) == (size == 100)  # no room for more
                assert copy.headers[h.FAILED_QUEUE] == QUEUE
                assert copy.headers[h.ATTEMPTS] == "1"
                body = copy.body or await endpoint.parts.backend.payloads.get(copy.headers[h.PAYLOAD])
                assert body == bytes(size)


async def test_a_full_error_queue_delays_nobody_who_succeeds():
    async with open_scene() as scene:
        endpoint = scene.endpoint(
            immediate_retries=0,
            delayed_retries=0,
            receive_concurrency=4,
            on_critical_error=lambda _: None,
        )
        handled = []

        @endpoint.handler
        async def work(body: bytes) -> None:
            if body == b"bad":
                raise RuntimeError("no")
            handled.append(scene.clock.now())

        for n in range(20):
            await scene.put(f"bad{n}", b"bad")
        async with endpoint:
            full(endpoint, ServiceBusy, "503")
            async with serving_open(endpoint):
                await scene.clock.advance(5)
                for n in range(50):
                    asked = scene.clock.now()
                    await scene.put(f"good{n}", b"good")
                    await scene.clock.advance(1)
                    assert len(handled) == n + 1
                    assert handled[-1] - asked <= timedelta(seconds=1)
        assert len(scene.in_queue()) == 20
