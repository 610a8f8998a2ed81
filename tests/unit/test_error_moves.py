"""Retry: every message ends in exactly one place, whatever fails on the way, and whoever else is there."""

import asyncio
import base64
from collections import Counter
from datetime import timedelta

import pytest
from desk_cases import BIG, failing, open_desk, put_payload, with_large_body
from error_cases import failed, original

from postdate.core.error_selection import Selection
from postdate.engine.error_moves import AT_ONCE, Outcome, missing_destinations
from postdate.engine.error_queue import HOLD_SECONDS, ErrorQueue
from postdate.engine.error_undo import UndoOutcome
from postdate.engine.undo_file import UndoFile, UndoWriter
from postdate.errors import DestinationNotFound, OutcomeUnknown, ServiceBusy, StorageUnreachable
from postdate.model.envelope import EnvelopeForm, unwrap, wrap


@pytest.fixture
async def desk(tmp_path):
    async with open_desk(tmp_path) as opened:
        yield opened


# Retry


async def test_messages_go_back_to_where_they_failed_as_they_were(desk):
    await desk.put(failed(1), failed(2, "invoices"))
    assert await desk.move("retry") == 2
    assert desk.texts("orders") == [wrap(original(1))]
    assert desk.texts("invoices") == [wrap(original(2))]
    assert desk.texts("error") == []
    assert [(m.outcome, m.destination) for m in desk.told] == [
        (Outcome.RETRIED, "orders"),
        (Outcome.RETRIED, "invoices"),
    ]
    (stored,) = desk.world.in_queue("orders")
    assert (stored.dequeue_count, stored.expires_at) == (0, None)


async def test_what_was_moved_is_not_asked_about_again(desk, monkeypatch):
    await desk.put(failed(1), failed(2, None))
    receiver, shown = desk.world.backend.receiver, []
    nack = receiver.nack

    async def counted(received, delay_s=0):
        shown.append(received.native_id)
        return await nack(received, delay_s)

    monkeypatch.setattr(receiver, "nack", counted)
    await desk.move("retry")
    assert len(shown) == 1


async def test_only_the_selected_ones_go(desk):
    await desk.put(*(failed(n) for n in range(50)))
    await desk.move("retry", Selection(ids=frozenset({"m00003", "m00042"})))
    assert desk.texts("orders") == [wrap(original(n)) for n in (3, 42)]
    assert len(desk.visible("error")) == 48


async def test_a_destination_of_net_gets_the_name_that_its_fleet_made_of_it(desk):
    await desk.world.endpoint.setup("contoso-shipping")
    await desk.put(failed(1, "Contoso.Shipping"))
    await desk.move("retry")
    assert desk.texts("contoso-shipping") == [wrap(original(1))]
    found = await missing_destinations(
        desk.world.backend, desk.world.clock, ["Contoso.Shipping", "gone", "a=b"]
    )
    assert set(found) == {"gone", "a=b"}
    assert isinstance(found["gone"], DestinationNotFound)


async def test_they_can_be_sent_elsewhere(desk):
    await desk.put(failed(1), failed(2, None))
    await desk.move("retry", to="invoices")
    assert desk.texts("invoices") == [wrap(original(1)), wrap(original(2))]


async def test_what_names_no_queue_or_the_error_queue_stays(desk):
    await desk.put(failed(1, None), failed(2, "Error"), "just text")
    await desk.move("retry")
    assert desk.outcomes == {Outcome.NO_QUEUE: 3}
    assert len(desk.visible("error")) == 3
    assert "--to" in desk.told[0].reason


async def test_what_can_not_be_read_and_plain_messages_go_as_they_are(desk):
    broken = base64.b64encode(b'{"Id":"x","Body":""}').decode()
    await desk.put(broken, "just text")
    await desk.move("retry", to="orders")
    assert desk.texts("orders") == [broken, "just text"]


async def test_a_destination_that_wants_another_form_gets_it(desk):
    await desk.put(failed(1, body=b"\x00raw"), failed(2, body=b"\xff"))
    await desk.move("retry", envelope_form=lambda _: EnvelopeForm.RAW)
    assert [base64.b64decode(text) for text in desk.texts("orders")] == [b"\x00raw", b"\xff"]


async def test_a_body_that_the_form_can_not_carry_stays_with_the_reason(desk):
    await desk.put(failed(1, body=b"\xff"))
    await desk.move("retry", envelope_form=lambda _: EnvelopeForm.RAW_TEXT)
    (moved,) = desk.told
    assert (moved.outcome, "not UTF-8" in moved.reason) == (Outcome.FAILED, True)
    assert len(desk.visible("error")) == 1


async def test_a_large_body_is_kept_for_as_long_as_a_new_one(desk):
    await put_payload(desk)
    await desk.put(with_large_body(1))
    await desk.move("retry")
    assert await desk.world.backend.payloads.sweep(desk.world.clock.now() + timedelta(days=29)) == 0
    assert await desk.world.backend.payloads.get(BIG) == b"big"


async def test_a_large_body_goes_along_where_the_form_has_no_headers(desk):
    await put_payload(desk)
    await desk.put(with_large_body(1), with_large_body(2, "invoices"))
    await desk.move("retry", envelope_form=lambda name: EnvelopeForm.RAW)
    assert desk.texts("orders") == [base64.b64encode(b"big").decode()]
    await desk.world.backend.payloads.delete(BIG)
    await desk.undo()
    desk.told.clear()
    desk.path = desk.path.with_name("second")
    await desk.move("retry", envelope_form=lambda name: EnvelopeForm.RAW)
    assert desk.outcomes == {Outcome.FAILED: 2}


async def test_a_large_body_that_the_form_can_not_carry_stays(desk):
    await put_payload(desk, b"x" * 50_000)
    await desk.put(with_large_body(1))
    await desk.move("retry", envelope_form=lambda _: EnvelopeForm.RAW)
    assert "does not fit" in desk.told[0].reason


async def test_a_rate_is_kept_to(desk):
    await desk.put(*(failed(n) for n in range(5)))
    moving = asyncio.ensure_future(desk.move("retry", rate=0.5))
    counts = []
    async with asyncio.timeout(30):
        for _ in range(5):
            while len(desk.told) <= len(counts):
                await asyncio.to_thread(lambda: None)
            counts.append(len(desk.told))
            await desk.world.clock.advance(2)
    assert counts == [1, 2, 3, 4, 5]
    assert await moving == 5


async def test_asked_to_stop_it_leaves_the_rest(desk):
    await desk.put(*(failed(n) for n in range(50)))
    told = desk.told

    class Stopping(list):
        def append(self, moved):
            super().append(moved)
            desk.stop.set()

    desk.told = Stopping(told)
    tried = await desk.move("retry")
    assert 0 < tried < 50
    assert len(desk.told) == tried == len(desk.texts("orders"))
    assert len(desk.visible("error")) == 50 - tried


# Others on the same queue


async def received_by_another(desk):
    await desk.world.clock.advance(HOLD_SECONDS)
    return await desk.world.backend.receiver.receive("error", count=32, visibility_s=600)


@pytest.mark.parametrize("did", ["retry", "discard"])
async def test_a_message_that_somebody_else_took_is_left_to_them(desk, monkeypatch, did):
    await desk.put(*(failed(n) for n in range(3)))
    original_keep = ErrorQueue.keep

    async def keep(queue, one):
        if one.message.message_id == "m00001":
            await received_by_another(desk)
        return await original_keep(queue, one)

    monkeypatch.setattr(ErrorQueue, "keep", keep)
    monkeypatch.setattr("postdate.engine.error_moves.AT_ONCE", 1)
    await desk.move(did)
    assert Counter(m.outcome for m in desk.told)[Outcome.TAKEN] == 2
    assert len(desk.texts("error")) == 2
    assert len(desk.texts("orders")) == (1 if did == "retry" else 0)


async def test_a_copy_is_taken_back_when_the_original_was_taken_meanwhile(desk, monkeypatch):
    await desk.put(failed(1))
    send = desk.world.backend.sender.send

    async def slow(*arguments, **options):
        receipt = await send(*arguments, **options)
        await received_by_another(desk)
        return receipt

    monkeypatch.setattr(desk.world.backend.sender, "send", slow)
    await desk.move("retry")
    assert desk.outcomes == {Outcome.TAKEN: 1}
    assert desk.texts("orders") == []
    assert await desk.undo() == [UndoOutcome.NOTHING]


async def test_a_copy_that_was_received_already_is_told_as_doubled(desk, monkeypatch):
    await desk.put(failed(1))
    send = desk.world.backend.sender.send

    async def slow(*arguments, **options):
        receipt = await send(*arguments, **options)
        await received_by_another(desk)
        await desk.world.backend.receiver.receive("orders", count=1, visibility_s=600)
        return receipt

    monkeypatch.setattr(desk.world.backend.sender, "send", slow)
    await desk.move("retry")
    assert desk.outcomes == {Outcome.DOUBLED: 1}


# Failures


async def test_a_send_whose_outcome_is_unknown_keeps_the_message(desk, monkeypatch):
    await desk.put(failed(1), failed(2))
    sender = desk.world.backend.sender
    monkeypatch.setattr(sender, "send", failing(OutcomeUnknown("no answer"), sender.send))
    await desk.move("retry")
    assert desk.outcomes == {Outcome.UNKNOWN: 1, Outcome.RETRIED: 1}
    assert len(desk.texts("orders")) == 2  # the first was sent all the same
    assert len(desk.visible("error")) == 1


@pytest.mark.parametrize("error", [ServiceBusy("busy"), StorageUnreachable("gone")])
async def test_a_service_that_fails_stops_it_and_all_that_was_not_sent_stays(desk, monkeypatch, error):
    await desk.put(*(failed(n) for n in range(50)))
    sender = desk.world.backend.sender
    monkeypatch.setattr(sender, "send", failing(error, sender.send, nth=10, before=True))
    with pytest.raises(type(error)):
        await desk.move("retry")
    assert 9 <= desk.outcomes[Outcome.RETRIED] < 9 + AT_ONCE  # those that were under way
    assert sorted(desk.texts("error") + [failed(int(m.message.message_id[1:])) for m in desk.told]) == sorted(
        failed(n) for n in range(50)
    )
    assert len(desk.visible("error")) == len(desk.texts("error"))


async def test_a_destination_that_vanishes_is_told_for_each_and_nothing_is_lost(desk):
    await desk.put(*(failed(n) for n in range(3)))
    await desk.world.backend.sender.delete("orders")
    await desk.move("retry")
    assert desk.outcomes == {Outcome.FAILED: 3}
    assert len(desk.visible("error")) == 3


async def test_a_deletion_that_fails_after_the_send_is_told_as_unknown(desk, monkeypatch):
    await desk.put(failed(1))
    receiver = desk.world.backend.receiver
    monkeypatch.setattr(receiver, "ack", failing(ServiceBusy("busy"), receiver.ack, before=True))
    await desk.move("retry")
    (moved,) = desk.told
    assert (moved.outcome, "may come twice" in moved.reason) == (Outcome.UNKNOWN, True)
    assert desk.visible("error") == [failed(1)]
    assert await desk.undo() == [UndoOutcome.WITHDRAWN]  # its copy
    assert desk.texts("orders") == []
    assert desk.visible("error") == [failed(1)]


@pytest.mark.parametrize("did", ["retry", "discard"])
@pytest.mark.parametrize("nth", range(1, 8))
async def test_a_disk_that_is_full_loses_nothing(desk, monkeypatch, did, nth):
    await desk.put(*(failed(n) for n in range(4)))
    write, calls = UndoWriter._write, 0

    async def full(writer, values):
        nonlocal calls
        calls += 1
        if calls > nth:
            raise OSError(28, "No space left on device", str(desk.path))
        await write(writer, values)

    monkeypatch.setattr(UndoWriter, "_write", full)
    with pytest.raises(OSError, match="No space"):
        await desk.move(did)
    kept = desk.visible("error") + [entry for entry in recorded(desk) if entry not in desk.visible("error")]
    assert set(kept) >= {failed(n) for n in range(4)}
    sent = {unwrap(text, "").message.message_id for text in desk.texts("orders")}
    assert sent <= {unwrap(text, "").message.message_id for text in recorded(desk)}


def recorded(desk):
    file = UndoFile.read(desk.path)
    return [file.recorded(entry).text for entry in file.entries]


async def test_a_cancelled_retry_finishes_what_is_under_way(desk, monkeypatch):
    await desk.put(*(failed(n) for n in range(20)))
    sender, begun, go_on = desk.world.backend.sender, asyncio.Event(), asyncio.Event()
    send = sender.send

    async def waiting(*arguments, **options):
        begun.set()
        await go_on.wait()
        return await send(*arguments, **options)

    monkeypatch.setattr(sender, "send", waiting)
    moving = asyncio.ensure_future(desk.move("retry"))
    await begun.wait()
    moving.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await moving
    assert len(desk.texts("orders")) + len(desk.visible("error")) == 20
    assert len(desk.told) == len(desk.texts("orders")) > 0
