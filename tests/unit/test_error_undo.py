"""Discard and undo: what was taken out of the error queue can be put back, and nothing is doubled by it."""

import asyncio
import stat

import pytest
from desk_cases import BIG, RETENTION, failing, open_desk, put_payload, with_large_body
from error_cases import failed

from postdate.core.error_selection import Selection
from postdate.engine.error_moves import Outcome
from postdate.engine.error_queue import HOLD_SECONDS
from postdate.engine.error_undo import ErrorUndo, UndoOutcome
from postdate.engine.undo_file import UndoFile
from postdate.errors import OutcomeUnknown


@pytest.fixture
async def desk(tmp_path):
    async with open_desk(tmp_path) as opened:
        yield opened


async def test_discarded_messages_are_gone_and_undo_brings_them_back(desk):
    await desk.put(*(failed(n) for n in range(5)), "just text")
    await desk.move("discard", Selection(failed_queue="orders"))
    assert desk.texts("error") == ["just text"]
    assert desk.outcomes == {Outcome.DISCARDED: 5}
    assert await desk.undo() == [UndoOutcome.RESTORED] * 5
    assert sorted(desk.visible("error")) == sorted([*(failed(n) for n in range(5)), "just text"])
    assert await desk.undo() == [UndoOutcome.BEFORE] * 5
    assert len(desk.texts("error")) == 6


async def test_a_discarded_large_body_is_dropped_and_comes_back_under_a_new_name(desk):
    await put_payload(desk)
    await desk.put(with_large_body(1))
    await desk.move("discard")
    assert await desk.world.backend.payloads.get(BIG) is None
    assert await desk.undo() == [UndoOutcome.RESTORED]
    await desk.world.clock.advance(1)
    async with desk.queue.hold(Selection()) as hold:
        name = hold.held[0].message.payload
        assert name != BIG
        assert await desk.world.backend.payloads.get(name) == b"big"


async def test_a_large_body_that_another_message_needs_stays(desk):
    await put_payload(desk)
    await desk.put(with_large_body(1), with_large_body(2))
    await desk.move("discard", Selection(ids=frozenset({"m00001"})))
    assert await desk.world.backend.payloads.get(BIG) == b"big"


async def test_a_large_body_of_another_endpoint_is_left_alone(desk):
    await desk.put(with_large_body(1))
    await desk.move("discard")
    assert desk.outcomes == {Outcome.DISCARDED: 1}
    assert await desk.undo() == [UndoOutcome.RESTORED]
    assert desk.visible("error") == [with_large_body(1)]


async def test_a_retried_message_is_withdrawn_unless_it_was_received(desk):
    await desk.put(failed(1), failed(2))
    await desk.move("retry")
    (received,) = await desk.world.backend.receiver.receive("orders", count=1, visibility_s=1)
    await desk.world.clock.advance(2)  # visible again, and still somebody has seen it
    outcomes = await desk.undo()
    assert sorted(outcomes) == [UndoOutcome.TOO_LATE, UndoOutcome.WITHDRAWN]
    assert desk.texts("orders") == [received.text]
    assert len(desk.texts("error")) == len(desk.visible("error")) == 1
    assert sorted(await desk.undo()) == [UndoOutcome.TOO_LATE, UndoOutcome.BEFORE]


async def test_a_retried_message_whose_queue_is_gone_can_not_be_withdrawn(desk):
    await desk.put(failed(1))
    await desk.move("retry")
    await desk.world.backend.sender.delete("orders")
    assert await desk.undo() == [UndoOutcome.TOO_LATE]
    assert desk.texts("error") == []


@pytest.mark.parametrize("did", ["retry", "discard"])
@pytest.mark.parametrize("lines", range(1, 5))
async def test_a_file_that_ends_early_is_undone_as_far_as_it_is_known(desk, did, lines):
    """As a kill leaves it: what the lines that are there made safe may have happened, or not."""
    await desk.put(failed(1))
    await desk.move(did)
    whole = desk.path.read_bytes().splitlines(keepends=True)
    desk.path.write_bytes(b"".join(whole[:lines]) + b'{"cut')
    moved = desk.texts("orders")
    outcomes = await desk.undo()
    if lines == 1:
        assert outcomes == []
    elif did == "discard":
        assert outcomes == [UndoOutcome.RESTORED]
        assert desk.visible("error") == [failed(1)]
    elif lines == 2:
        assert outcomes == [UndoOutcome.UNSURE]
        assert desk.texts("orders") == moved
    else:
        assert outcomes == [UndoOutcome.WITHDRAWN]
        assert (desk.texts("orders"), desk.visible("error")) == ([], [failed(1)])
    for line in desk.path.read_bytes().splitlines():
        assert b"cut" not in line


@pytest.mark.parametrize("did", ["retry", "discard"])
async def test_a_message_that_never_left_is_not_doubled_by_undo(desk, monkeypatch, did):
    await desk.put(failed(1))
    receiver, sender = desk.world.backend.receiver, desk.world.backend.sender
    monkeypatch.setattr(receiver, "ack", failing(OutcomeUnknown("?"), receiver.ack, before=True))
    monkeypatch.setattr(sender, "send", failing(OutcomeUnknown("?"), sender.send, before=True))
    await desk.move(did)
    assert desk.outcomes == {Outcome.UNKNOWN: 1}
    assert await desk.undo() == [UndoOutcome.STILL_THERE]
    assert desk.texts("error") == [failed(1)]


async def test_the_undo_file_is_for_its_owner_only(desk):
    await desk.put(failed(1))
    await desk.move("retry")
    assert stat.S_IMODE(desk.path.stat().st_mode) == 0o600


async def test_undo_waits_for_what_a_killed_process_still_hides(desk, monkeypatch):
    await desk.put(failed(1), failed(2))
    receiver = desk.world.backend.receiver
    monkeypatch.setattr(receiver, "ack", failing(OutcomeUnknown("?"), receiver.ack, before=True))
    await desk.move("discard")
    await receiver.receive("error", count=32, visibility_s=HOLD_SECONDS)
    waits, undone = [], []
    file = UndoFile.read(desk.path)
    undo = ErrorUndo(desk.world.backend, desk.world.clock, file, "error", RETENTION)
    undoing = asyncio.ensure_future(undo.run(undone.append, lambda: waits.append(1)))
    while not waits:
        await asyncio.sleep(0)
    await desk.world.clock.advance(HOLD_SECONDS + 1)
    await undoing
    assert sorted(one.outcome for one in undone) == [UndoOutcome.RESTORED, UndoOutcome.STILL_THERE]
    assert sorted(desk.visible("error")) == sorted([failed(1), failed(2)])
