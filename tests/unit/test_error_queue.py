"""Looking at an error queue and holding its messages: nothing is lost, nothing stays hidden."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import open_world
from error_cases import failed, fault_headers, original

from postdate.core.error_selection import Selection
from postdate.engine.error_queue import HOLD_SECONDS, ErrorQueue
from postdate.errors import DestinationNotFound, ServiceBusy, StorageUnreachable
from postdate.model import headers as h
from postdate.model.envelope import wrap
from postdate.model.message import Message


@pytest.fixture
async def world():
    async with open_world() as opened:
        yield opened


async def fill(world, count=100):
    for number in range(count):
        await world.backend.sender.send("error", failed(number, "orders" if number % 4 else "invoices"))


def errors(world, queue="error"):
    return ErrorQueue(world.backend, world.clock, queue)


def visible(world):
    now = world.clock.now()
    return [m for m in world.in_queue("error") if m.visible_at <= now]


async def test_more_than_a_page_is_seen_and_all_of_it_is_visible_afterwards(world):
    await fill(world)
    look = await errors(world).look(Selection())
    assert [m.message_id for m in look.messages] == [f"m{n:05d}" for n in range(100)]
    assert (look.complete, look.hidden) == (True, 0)
    assert len(visible(world)) == 100
    assert {m.dequeue_count for m in world.in_queue("error")} == {1}


async def test_an_empty_queue_is_seen_to_be_empty(world):
    look = await errors(world).look(Selection())
    assert (look.messages, look.complete) == ([], True)


async def test_only_what_is_selected_is_returned_with_its_text(world):
    await fill(world, 8)
    texts = []
    look = await errors(world).look(
        Selection(failed_queue="invoices"), on_seen=lambda message, text: texts.append(text)
    )
    assert [m.message_id for m in look.messages] == ["m00000", "m00004"]
    assert texts == [failed(0, "invoices"), failed(4, "invoices")]
    assert len(visible(world)) == 8


async def test_a_look_goes_no_further_than_its_limit(world):
    await fill(world)
    look = await errors(world).look(Selection(), limit=3)
    assert len(look.messages) == 3
    assert look.complete is False
    assert sum(m.dequeue_count for m in world.in_queue("error")) == 32
    assert len(visible(world)) == 100


async def test_what_others_hide_is_counted(world):
    await fill(world, 40)
    await world.backend.receiver.receive("error", count=10, visibility_s=600)
    look = await errors(world).look(Selection())
    assert (len(look.messages), look.hidden) == (30, 10)


async def test_a_walk_that_takes_longer_than_the_hiding_sees_each_message_once(world, monkeypatch):
    await fill(world)
    receive = world.backend.receiver.receive

    async def slowly(*arguments, **options):
        page = await receive(*arguments, **options)
        await world.clock.advance(timedelta(seconds=HOLD_SECONDS / 2))
        return page

    monkeypatch.setattr(world.backend.receiver, "receive", slowly)
    look = await errors(world).look(Selection())
    assert len({m.native_id for m in look.messages}) == len(look.messages) == 100
    assert len(visible(world)) == 100
    async with errors(world).hold(Selection()) as hold:
        # Those that came round are held by their last receipt.
        for one in hold.held:
            assert await errors(world).keep(one)


@pytest.mark.parametrize("error", [ServiceBusy("x"), asyncio.CancelledError()])
async def test_a_look_that_is_cut_short_makes_visible_what_it_hid(world, monkeypatch, error):
    await fill(world)
    receive = world.backend.receiver.receive
    pages = 0

    async def failing(*arguments, **options):
        nonlocal pages
        pages += 1
        if pages == 3:
            raise error
        return await receive(*arguments, **options)

    monkeypatch.setattr(world.backend.receiver, "receive", failing)
    with pytest.raises(type(error)):
        await errors(world).look(Selection())
    assert len(visible(world)) == 100
    for selection in (Selection(), Selection(failed_queue="invoices")):
        pages = 0
        with pytest.raises(type(error)):
            async with errors(world).hold(selection):
                raise AssertionError
        assert len(visible(world)) == 100


async def test_making_visible_again_is_not_cut_by_a_cancellation(world, monkeypatch):
    await fill(world)
    nack = world.backend.receiver.nack
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def waiting(received, delay_s=0):
        begun.set()
        await go_on.wait()
        return await nack(received, delay_s)

    monkeypatch.setattr(world.backend.receiver, "nack", waiting)
    looking = asyncio.ensure_future(errors(world).look(Selection()))
    await begun.wait()
    looking.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await looking
    assert len(visible(world)) == 100


async def test_what_can_not_be_made_visible_shows_up_by_itself(world, monkeypatch):
    await fill(world, 40)
    calls = 0

    async def unreachable(received, delay_s=0):
        nonlocal calls
        calls += 1
        raise StorageUnreachable("gone")

    monkeypatch.setattr(world.backend.receiver, "nack", unreachable)
    look = await errors(world).look(Selection())
    assert len(look.messages) == 40
    assert calls < 40  # who does not answer is not asked for each message
    assert visible(world) == []
    await world.clock.advance(timedelta(seconds=HOLD_SECONDS))
    assert len(visible(world)) == 40


async def test_a_missing_error_queue_is_told_with_near_names(world):
    with pytest.raises(DestinationNotFound, match="Did you mean 'error'"):
        await errors(world, "errors").look(Selection())


async def test_messages_are_held_with_their_texts_and_the_others_are_visible_meanwhile(world):
    await fill(world, 40)
    async with errors(world).hold(Selection(failed_queue="invoices")) as hold:
        assert len(hold.held) == 10
        assert len(visible(world)) == 30
        assert [hold.text_of(one) for one in hold.held] == [failed(n, "invoices") for n in range(0, 40, 4)]
    assert len(visible(world)) == 40


async def test_what_is_done_with_is_not_made_visible(world):
    await fill(world, 3)
    async with errors(world).hold(Selection()) as hold:
        hold.done.add(hold.held[0].message.native_id)
    assert len(visible(world)) == 2


async def test_ids_are_looked_for_until_each_is_found(world):
    await world.backend.sender.send("error", failed(1))
    await fill(world)
    ids = frozenset({"m00001", "m00002"})
    async with errors(world).hold(Selection(ids=ids), until_found=True) as hold:
        assert {one.message.message_id for one in hold.held} == ids
        assert sum(m.dequeue_count for m in world.in_queue("error")) == 32
    async with errors(world).hold(Selection(ids=ids)) as hold:
        assert len(hold.held) == 3


async def test_texts_beyond_what_memory_holds_are_kept_on_disk(world, monkeypatch):
    monkeypatch.setattr("postdate.engine.error_queue._MEMORY_BYTES", 1000)
    await fill(world, 40)
    async with errors(world).hold(Selection()) as hold:
        assert hold._texts._rolled
        assert next(hold.text_of(one) for one in reversed(hold.held)) == failed(39)
        hold.add(hold.held[0].message, hold.held[0].received)
        assert hold.text_of(hold.held[-1]) == ""


async def test_a_held_message_is_hidden_for_longer_when_it_needs_to_be(world):
    await fill(world, 2)
    queue = errors(world)
    async with queue.hold(Selection()) as hold:
        first, second = hold.held
        receipt = first.received.pop_receipt
        assert await queue.keep(first)
        assert first.received.pop_receipt == receipt
        await world.clock.advance(timedelta(seconds=HOLD_SECONDS - 10))
        assert await queue.keep(first)
        assert first.received.pop_receipt != receipt
        await world.clock.advance(timedelta(seconds=20))
        # The second is visible by now, and nobody has received it: it can still be held.
        assert await queue.keep(second)
        await world.clock.advance(timedelta(seconds=2 * HOLD_SECONDS))
        await world.backend.receiver.receive("error", count=32, visibility_s=600)
        assert not await queue.keep(first)


async def test_a_held_message_that_expires_is_hidden_for_as_long_as_it_lives(world):
    await world.backend.sender.send("error", failed(1, "orders"), time_to_live=HOLD_SECONDS + 35)
    queue = errors(world)
    async with queue.hold(Selection()) as hold:
        (one,) = hold.held
        await world.clock.advance(timedelta(seconds=HOLD_SECONDS - 10))
        assert await queue.keep(one)
        await world.clock.advance(timedelta(seconds=30))
        assert visible(world) == []
        assert await queue.keep(one)
        await world.clock.advance(timedelta(seconds=16))
        assert not await queue.keep(one)


async def test_of_two_at_once_each_holds_what_the_other_does_not(world):
    await fill(world)
    async with errors(world).hold(Selection()) as one, errors(world).hold(Selection()) as other:
        assert len(one.held) + len(other.held) == 100
        assert one.hidden + other.hidden == len(one.held)
    assert len(visible(world)) == 100


async def test_large_bodies_that_others_need_are_remembered(world):
    for number in (1, 2):
        message = original(number)
        headers = message.headers | fault_headers() | {h.PAYLOAD: "big"}
        await world.backend.sender.send("error", wrap(Message(message.message_id, headers, b"")))
    async with errors(world).hold(Selection(ids=frozenset({"m00001"}))) as hold:
        assert hold.payloads_of_others == {"big": 1}
    async with errors(world).hold(Selection()) as hold:
        assert not hold.payloads_of_others
