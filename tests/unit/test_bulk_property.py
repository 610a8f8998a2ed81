"""Many at once leave what the same messages leave one by one, whatever they are."""

import asyncio
from datetime import UTC, datetime

from engine_cases import open_world
from hypothesis import given
from hypothesis import strategies as st
from pytest import MonkeyPatch  # noqa: PT013 - a context of its own for each example
from unit_cases import examples

from postdate import Outgoing
from postdate.engine import read_ahead
from postdate.errors import PostdateError


def mostly(*usual, seldom):
    """The usual values in nine of ten draws: else nearly every message would have something wrong."""
    return st.integers(0, 9).flatmap(lambda n: st.sampled_from(usual if n else seldom))


HOUR_LATER = datetime(2026, 3, 1, 13, 0, 20, tzinfo=UTC)
outgoings = st.builds(
    Outgoing,
    destination=mostly("orders", "orders", "error", seldom=["order", "Orders", "orders@nobody"]),
    body=mostly(b"x", "text", {"n": 1}, b"x" * 60_000, seldom=[object()]),
    # Both sides of the limit of 30 s, and several hours.
    delay=mostly(-5, 0, 29, 30, 31, 3600, 7300, "1d", seldom=[None, "soon", float("nan")]),
    at=mostly(None, seldom=[HOUR_LATER, HOUR_LATER.replace(tzinfo=None)]),
    headers=mostly(None, {"Colour": "blue"}, seldom=[{"Wrong": 1}]),
    # Few, so that the same message turns up twice.
    message_id=mostly("a", "b", seldom=[""]),
    expires_after=mostly(None, "1h", seldom=[0]),
) | st.builds(Outgoing, st.just("orders"), st.just("x"), at=st.just(HOUR_LATER), message_id=st.just("a"))


def left(world):
    """What waits: rows by key, and messages of queues by id and instant."""
    queues = {
        name: sorted(
            (message.message_id, stored.visible_at, stored.expires_at)
            for message, stored in zip(world.opened(name), world.in_queue(name), strict=True)
        )
        for name in ("orders", "error")
    }
    return set(world.rows), queues, sorted(len(blobs) for blobs in world.account.payloads.values())


async def one_by_one(messages):
    async with open_world() as world:
        told = []
        for m in messages:
            try:
                told.append(
                    await world.endpoint.schedule(
                        m.destination,
                        m.body,
                        delay=m.delay,
                        at=m.at,
                        headers=m.headers,
                        message_id=m.message_id,
                        expires_after=m.expires_after,
                    )
                )
            except PostdateError as error:
                told.append(error)
        return told, left(world)


def give_turns(port, name):
    """Let others run before the call is answered, as a service would."""
    inner = getattr(port, name)

    async def call(*args, **kwargs):
        await asyncio.sleep(0)
        return await inner(*args, **kwargs)

    setattr(port, name, call)


async def at_once(messages):
    async with open_world() as world:
        for port, names in (
            (world.backend.store, ("add", "get")),
            (world.backend.sender, ("send", "exists")),
        ):
            for name in names:
                give_turns(port, name)
        outcomes = [outcome async for outcome in world.endpoint.schedule_each(iter(messages))]
        assert [outcome.index for outcome in outcomes] == list(range(len(messages)))
        assert all((outcome.handle is None) != (outcome.error is None) for outcome in outcomes)
        return [outcome.error or outcome.handle for outcome in outcomes], left(world)


def kind(answer):
    return type(answer) if isinstance(answer, PostdateError) else "handle"


@given(st.lists(outgoings, max_size=25), st.integers(1, 30))
@examples(150)
def test_the_same_outcomes_rows_and_queue_messages_as_one_by_one(messages, chunk):
    with MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "CHUNK_MESSAGES", chunk)
        told, found = asyncio.run(at_once(messages))
    expected_told, expected = asyncio.run(one_by_one(messages))
    assert [kind(answer) for answer in told] == [kind(answer) for answer in expected_told]
    assert found == expected
    # The same message twice has one handle, both ways.
    for n, answer in enumerate(expected_told):
        if kind(answer) == "handle":
            assert told.index(told[n]) == expected_told.index(answer)
