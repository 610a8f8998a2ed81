"""Policies of the users: asked safely, with what was received, and carried out as they say."""

from datetime import timedelta

import pytest
from receiver_cases import QUEUE, always_failing, open_scene

from postdate import MessageContext, Recoverability
from postdate.core.recoverability import DelayedRetry, Discard, ImmediateRetry, MoveToError, default_policy
from postdate.events import (
    MessageDiscarded,
    PolicyFailed,
)


def policy_of(work):
    return Recoverability(policy=work)


def raising(config, context):
    raise ZeroDivisionError("a bug in the policy")


async def test_a_policy_that_raises_is_told_and_the_default_does_its_work():
    async with open_scene() as scene:
        calls = []
        endpoint = scene.endpoint(recoverability=policy_of(raising), immediate_retries=1, delayed_retries=0)
        always_failing(endpoint, RuntimeError("no"), calls)
        await scene.put()
        await scene.run_for(endpoint, seconds=3)
        assert len(calls) == 2
        assert "a bug in the policy" in scene.log.of(PolicyFailed)[0].error
        assert [m.message_id for m in scene.messages()] == ["m1"]


async def test_a_policy_that_answers_nonsense_counts_as_one_that_raises():
    async with open_scene() as scene:
        endpoint = scene.endpoint(
            recoverability=policy_of(lambda config, context: "retry"), immediate_retries=0, delayed_retries=0
        )
        always_failing(endpoint, RuntimeError("no"), [])
        await scene.put()
        await scene.run_for(endpoint, seconds=3)
        assert "'retry'" in scene.log.of(PolicyFailed)[0].error
        assert len(scene.messages()) == 1


async def test_a_policy_can_wrap_the_default_for_single_cases():
    def policy(config, context):
        if "stale" in str(context.error):
            return Discard("it is of no use any more")
        if "other" in str(context.error):
            return MoveToError("special")
        return default_policy(config, context)

    async with open_scene("special") as scene:
        endpoint = scene.endpoint(recoverability=policy_of(policy), immediate_retries=0, delayed_retries=0)

        @endpoint.handler
        async def fail(body: bytes) -> None:
            raise RuntimeError(body.decode())

        for name in ("stale", "other", "plain"):
            await scene.put(name, name.encode())
        await scene.run_for(endpoint, seconds=3)
        (discarded,) = scene.log.of(MessageDiscarded)
        assert (discarded.message_id, discarded.reason) == ("stale", "it is of no use any more")
        assert [m.message_id for m in scene.messages("special")] == ["other"]
        assert [m.message_id for m in scene.messages()] == ["plain"]
        assert scene.in_queue() == []


async def test_an_error_queue_of_the_policys_that_is_missing_falls_back_to_the_endpoints():
    async with open_scene() as scene:
        endpoint = scene.endpoint(recoverability=policy_of(lambda config, context: MoveToError("nowhere")))
        always_failing(endpoint, RuntimeError("no"), [])
        await scene.put()
        await scene.run_for(endpoint, seconds=3)
        assert "nowhere" in scene.log.of(PolicyFailed)[0].error
        assert [m.message_id for m in scene.messages()] == ["m1"]


async def test_a_delayed_retry_where_delays_are_off_goes_to_the_error_queue_with_a_warning():
    async with open_scene() as scene:
        endpoint = scene.endpoint(
            recoverability=policy_of(lambda config, context: DelayedRetry(timedelta(seconds=5))),
            disable_delayed_delivery=True,
            delayed_retries=0,
        )
        always_failing(endpoint, RuntimeError("no"), [])
        await scene.put()
        await scene.run_for(endpoint, seconds=3)
        assert len(scene.log.of(PolicyFailed)) == 1
        assert len(scene.messages()) == 1


async def test_policies_see_headers_and_body_as_received():
    seen = []

    def policy(config, context):
        seen.append((dict(context.headers), context.body, context.receive_address))
        return default_policy(config, context)

    async with open_scene() as scene:
        endpoint = scene.endpoint(recoverability=policy_of(policy), immediate_retries=0, delayed_retries=1)

        @endpoint.handler
        async def spoil(body: dict, context: MessageContext) -> None:
            body["spoilt"] = True
            with pytest.raises(TypeError):
                context.headers["x"] = "spoilt"  # type: ignore[index]
            context.delivery.headers["x"] = context.delivery.message.headers["x"] = "spoilt"
            raise RuntimeError("no")

        await scene.put(body=b'{"a":1}', x="y")
        await scene.run_for(endpoint, seconds=15)
        assert seen[0][0]["x"] == "y"
        assert seen[0][1:] == (b'{"a":1}', QUEUE)
        assert seen[1][0]["x"] == "y"
        assert seen[1][1] == b'{"a":1}'
        assert scene.messages()[0].headers["x"] == "y"


async def test_fault_headers_can_be_changed_and_a_failure_of_that_changes_nothing():
    def customize(headers, error):
        headers["Contoso.Class"] = type(error).__name__
        if "worse" in str(error):
            raise ZeroDivisionError

    async with open_scene() as scene:
        endpoint = scene.endpoint(
            recoverability=Recoverability(fault_headers=customize), immediate_retries=0, delayed_retries=0
        )

        @endpoint.handler
        async def fail(body: bytes) -> None:
            raise RuntimeError(body.decode())

        await scene.put("a", b"bad")
        await scene.put("b", b"worse")
        await scene.run_for(endpoint, seconds=3)
        copies = {m.message_id: m.headers for m in scene.messages()}
        assert copies["a"]["Contoso.Class"] == "RuntimeError"
        assert "Contoso.Class" not in copies["b"]
        assert len(scene.log.of(PolicyFailed)) == 1


async def test_immediate_retries_of_a_policy_have_no_end_but_the_policys():
    def policy(config, context):
        return ImmediateRetry() if context.immediate_failures < 3 else Discard("enough")

    async with open_scene() as scene:
        calls = []
        endpoint = always_failing(
            scene.endpoint(recoverability=policy_of(policy), immediate_retries=5), RuntimeError("no"), calls
        )
        await scene.put()
        await scene.run_for(endpoint, seconds=5)
        assert len(calls) == 3
