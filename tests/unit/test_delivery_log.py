"""The delivery log: what is written, when, once, and what happens while it can't be."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from engine_cases import Outage, open_world

from postdate.backends.memory.delivery_log import MemoryLog
from postdate.engine.delivery_log import DeliveryLogWriter, LogWriterSettings
from postdate.errors import OutcomeUnknown, PoisonMessage, StorageUnreachable
from postdate.events import DeliveryLogFailed, DeliveryLogLost, Events, Scheduled
from postdate.model.delivery_log import (
    LogOutcome,
    LogRecord,
    blob_name,
    decode_record,
    encode_record,
    hour_in,
)
from postdate.testing.clock import VirtualClock, settle
from postdate.testing.signals import EventLog

DUE = datetime(2026, 3, 1, 13, 0, 0, 250_000, tzinfo=UTC)
LATER = timedelta(minutes=10)


def log_world(**settings):
    return open_world(delivery_log=True, **settings)


def records(world_or_slot):
    slot = world_or_slot
    if hasattr(slot, "account"):
        slot = slot.account.logs[slot.endpoint.settings.table_name]
    return [decode_record(line) for name in sorted(slot) for line in bytes(slot[name]).splitlines()]


def told(found):
    return [(record.outcome.value, record.message_id) for record in found]


class Writer:
    """A writer with nothing around it."""

    def __init__(self, **settings):
        self.clock, self.log, self.slot = VirtualClock(), EventLog(), {}
        self.store = MemoryLog(self.slot)
        values = {"interval": timedelta(seconds=5), **settings}
        self.writer = DeliveryLogWriter(
            self.store, self.clock, Events([self.log]), LogWriterSettings("Unit.Tests", "host/1/ab", **values)
        )

    def hear(self, *ids):
        for message_id in ids:
            self.writer.hear(Scheduled(str(message_id), "orders", DUE, "row"))


async def test_a_message_leaves_a_record_where_it_is_scheduled_and_where_it_is_handed_over():
    async with log_world() as world:
        await world.endpoint.schedule("orders", "x", delay=LATER, message_id="m1")
        due = world.clock.now() + LATER
        await world.clock.advance(LATER - timedelta(seconds=10))
        await world.endpoint.deliver_due()
        await world.clock.advance(5)
        scheduled, handed = records(world)
    assert (scheduled.outcome, scheduled.path, scheduled.due_time) == (LogOutcome.SCHEDULED, "row", due)
    assert scheduled.visible_at is None
    assert handed.outcome is LogOutcome.HANDED_OVER
    assert (handed.message_id, handed.destination, handed.due_time) == ("m1", "orders", due)
    assert (handed.handed_over_at, handed.visible_at) == (due - timedelta(seconds=10), due)
    assert (handed.term, handed.attempts) == (1, 1)
    assert (handed.endpoint, handed.process) == ("Unit.Tests", scheduled.process)


async def test_what_a_sender_puts_into_a_queue_is_shown_when_it_is_due():
    async with log_world() as world:
        await world.endpoint.schedule("orders", "x", delay=20, message_id="short")
        await world.endpoint.send("orders", "x", message_id="now")
        start = world.clock.now()
        await world.clock.advance(5)
        short, now = records(world)
    assert (short.path, short.visible_at) == ("queue", start + timedelta(seconds=20))
    assert (now.path, now.visible_at) == ("now", start)


async def test_changes_of_mind_are_recorded():
    async with log_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=LATER, message_id="m1")
        moved = await world.endpoint.reschedule(handle, delay=2 * LATER)
        await world.endpoint.cancel(moved.handle)
        short = await world.endpoint.schedule("orders", "x", delay=20, message_id="m2")
        short = (await world.endpoint.reschedule(short, delay=25)).handle
        await world.endpoint.cancel(short)
        row = await world.endpoint.schedule("orders", "x", delay=LATER, message_id="m3")
        await world.endpoint.reschedule(row, delay=20)
        start = world.clock.now()
        await world.clock.advance(5)
        found = records(world)
    by_outcome = [r for r in found if r.outcome is not LogOutcome.SCHEDULED]
    assert told(by_outcome) == [
        ("rescheduled", "m1"),
        ("cancelled", "m1"),
        ("rescheduled", None),
        ("cancelled", None),
        ("rescheduled", "m3"),
    ]
    assert {record.destination for record in found} == {"orders"}
    first, _, hidden, cancelled, soon = by_outcome
    assert (first.was_due_time, first.due_time) == (start + LATER, start + 2 * LATER)
    assert (first.path, hidden.path, soon.path) == ("row", "hidden", "queue")
    assert hidden.visible_at == hidden.due_time == cancelled.due_time == start + timedelta(seconds=25)
    assert soon.visible_at == start + timedelta(seconds=20)


async def test_messages_that_end_otherwise_are_recorded():
    async with log_world(number_of_retries=1, retry_base="1s", check_destinations=False) as world:
        await world.endpoint.schedule("nowhere", "x", delay=LATER, message_id="lost-way")
        await world.endpoint.schedule("orders", "x", delay=LATER, message_id="old", expires_after=1)
        await world.clock.advance(LATER + timedelta(seconds=5))
        await world.endpoint.deliver_due()
        await world.clock.advance(5)
        await world.endpoint.deliver_due()
        await world.clock.advance(5)
        ended = [r for r in records(world) if r.outcome is not LogOutcome.SCHEDULED]
    by_id = {record.message_id: record for record in ended}
    assert by_id["old"].outcome is LogOutcome.EXPIRED
    failed = by_id["lost-way"]
    assert (failed.outcome, failed.attempts) == (LogOutcome.MOVED_TO_ERROR_QUEUE, 2)
    assert "nowhere" in failed.reason


async def test_without_the_setting_nothing_is_written():
    async with open_world() as world:
        await world.endpoint.schedule("orders", "x", delay=LATER)
        await world.clock.advance(60)
    assert world.account.logs[world.endpoint.settings.table_name] == {}


async def test_records_wait_for_each_other_and_closing_writes_the_rest():
    async with log_world(delivery_log_interval="7s") as world:
        await world.endpoint.schedule("orders", "x", delay=LATER, message_id="m1")
        await world.clock.advance(6)
        await world.endpoint.schedule("orders", "x", delay=LATER, message_id="m2")
        assert records(world) == []
        await world.clock.advance(1)
        assert told(records(world)) == [("scheduled", "m1"), ("scheduled", "m2")]
        await world.endpoint.schedule("orders", "x", delay=LATER, message_id="m3")
    assert [record.message_id for record in records(world)] == ["m1", "m2", "m3"]


async def test_each_hour_has_a_file_of_its_own():
    one = Writer()
    one.hear("m1")
    await one.clock.advance(3600)
    one.hear("m2")
    one.clock.step(timedelta(seconds=-1))
    one.hear("m3")
    await one.writer.write()
    files = {name: [r.message_id for r in records({name: one.slot[name]})] for name in one.slot}
    assert files == {
        "log/20260301/12-host-1-ab.jsonl": ["m1", "m3"],
        "log/20260301/13-host-1-ab.jsonl": ["m2"],
    }


async def test_a_full_file_is_followed_by_another():
    one = Writer(blocks_per_file=2)
    for n in range(5):
        one.hear(n)
        await one.writer.write()
    assert [name.rpartition("ab")[2] for name in sorted(one.slot)] == ["-2.jsonl", "-3.jsonl", ".jsonl"]
    assert sorted(r.message_id for r in records(one.slot)) == ["0", "1", "2", "3", "4"]


async def test_a_file_that_somebody_else_took_is_left_alone():
    one = Writer()
    taken = "log/20260301/12-host-1-ab.jsonl"
    one.slot[taken] = bytearray(b"not ours\n")
    one.hear("m1")
    await one.writer.write()
    assert one.slot[taken] == b"not ours\n"
    assert told(records({"second": one.slot["log/20260301/12-host-1-ab-2.jsonl"]})) == [("scheduled", "m1")]


async def test_a_block_whose_answer_was_lost_is_sent_again_as_it_was():
    one = Writer()
    inner = one.store.append

    async def without_answer(*args, **options):
        one.store.append = inner
        await inner(*args, **options)
        raise OutcomeUnknown("no answer")

    one.store.append = without_answer
    one.hear("m1")
    with pytest.raises(OutcomeUnknown):
        await one.writer.write()
    one.hear("m2")
    await one.writer.write()
    assert [r.message_id for r in records(one.slot)] == ["m1", "m2"]
    assert len(one.slot) == 1


async def test_an_outage_is_told_once_and_nothing_is_lost_while_there_is_room():
    async with log_world() as world:
        outage = Outage(StorageUnreachable).of(world.backend.delivery_log, "append")
        await world.endpoint.schedule("orders", "x", delay=timedelta(days=1), message_id="m1")
        await world.clock.advance(600)
        assert 5 < len(outage.tried) < 30
        await world.endpoint.schedule("orders", "x", delay=timedelta(days=1), message_id="m2")
        outage.lasts = False
        await world.clock.advance(60)
        assert [record.message_id for record in records(world)] == ["m1", "m2"]
        assert len(world.log.of(DeliveryLogFailed)) == 1
        assert world.log.of(DeliveryLogLost) == []


async def test_what_finds_no_room_is_counted_told_once_and_stands_in_the_log_as_a_gap():
    one = Writer(limit_bytes=2_000)
    one.hear(*range(100))
    kept = len(one.writer._lines)
    assert 0 < kept < 100
    assert one.writer._bytes <= 2_000
    await one.writer._try_to_write()
    one.hear("after")
    await one.writer.write()
    (lost,) = one.log.of(DeliveryLogLost)
    assert (lost.records, lost.since) == (100 - kept, one.clock.now())
    found = records(one.slot)
    assert [r.outcome for r in found[kept:]] == [LogOutcome.GAP, LogOutcome.SCHEDULED]
    assert found[kept].count == 100 - kept


async def test_closing_during_an_outage_ends_soon_and_tells_what_is_lost():
    one = Writer(limit_bytes=2_000)
    Outage(StorageUnreachable).of(one.store, "append")
    one.hear(*range(100))
    await one.writer.close()
    (lost,) = one.log.of(DeliveryLogLost)
    assert lost.records == 100


async def test_closing_waits_no_longer_than_some_seconds():
    one = Writer()

    async def never(*_, **__):
        await one.clock.sleep(1_000_000)

    one.store.append = never
    one.hear("m1")
    closing = asyncio.create_task(one.writer.close())
    await one.clock.advance(6)
    await settle()
    assert closing.done()
    assert one.log.of(DeliveryLogLost)[0].records == 1


def test_a_record_is_one_line_and_comes_back():
    record = LogRecord(DUE, LogOutcome.HANDED_OVER, "E", "p", "m\n1", "orders@b", DUE, term=3)
    line = encode_record(record)
    assert line.count(b"\n") == 1
    assert line.startswith(b'{"logged_at":"2026-03-01T13:00:00.250000Z","outcome":"handed_over",')
    assert decode_record(line) == record


def test_what_is_no_record_is_said_to_be_none():
    with pytest.raises(PoisonMessage, match="can't be read"):
        decode_record(b'{"outcome":"made up"}')


def test_names_of_files_tell_their_hour():
    name = blob_name("20260301/07", "ho st/7/äb", 3)
    assert name == "log/20260301/07-ho-st-7-b-3.jsonl"
    assert hour_in(name) == "20260301/07"
    assert hour_in("log/other.txt") is None
