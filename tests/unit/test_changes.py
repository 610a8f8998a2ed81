"""Cancel, reschedule, look up: certain answers, one winner, nothing lost."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from engine_cases import open_world

from postdate import CancelOutcome, UsageError
from postdate.engine.changes import RescheduleOutcome
from postdate.engine.lookup import State
from postdate.errors import OutcomeUnknown
from postdate.model import headers as h
from postdate.model.envelope import unwrap

CANCELLED, TOO_LATE, UNKNOWN = CancelOutcome.CANCELLED, CancelOutcome.TOO_LATE, CancelOutcome.UNKNOWN


async def test_a_waiting_row_is_cancelled_once():
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=3600)
        assert await world.endpoint.cancel(handle) is CANCELLED
        assert await world.endpoint.cancel(handle) is UNKNOWN
        assert world.rows == {}


@pytest.mark.parametrize("delay", [10, 3600])
async def test_of_racing_callers_exactly_one_hears_cancelled(delay):
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=delay)
        answers = await asyncio.gather(*(world.endpoint.cancel(handle) for _ in range(5)))
        assert answers.count(CANCELLED) == 1


async def test_a_handle_survives_a_restart():
    async with open_world() as first:
        row = await first.endpoint.schedule("orders", "x", delay=3600)
        hidden = await first.endpoint.schedule("orders", "x", delay=10)
    async with open_world(account=first.account, clock=first.clock) as second:
        assert await second.endpoint.cancel(row) is CANCELLED
        assert await second.endpoint.cancel(hidden) is CANCELLED


async def test_within_the_lookahead_a_row_is_too_late_and_stays():
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=40)
        await world.clock.advance(9.5)
        assert await world.endpoint.cancel(handle) is TOO_LATE
        assert len(world.rows) == 1


async def test_the_leaders_lookahead_counts_where_it_is_larger_than_ours():
    async with open_world(lookahead=0) as ours:
        handle = await ours.endpoint.schedule("orders", "x", delay=40)
        async with open_world(account=ours.account, clock=ours.clock, lookahead=60) as leader:
            await leader.endpoint.deliver_due()
        assert await ours.endpoint.cancel(handle) is TOO_LATE
        other = await ours.endpoint.schedule("orders", "y", delay=50)
        assert await ours.endpoint.cancel(other) is TOO_LATE


async def test_a_handed_over_message_is_too_late():
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=40)
        await world.clock.advance(40)
        await world.endpoint.deliver_due()
        assert await world.endpoint.cancel(handle) is TOO_LATE


async def test_a_hidden_message_is_cancelled_until_somebody_received_it():
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=10)
        await world.clock.advance(10)
        assert len(await world.take("orders")) == 1
        assert await world.endpoint.cancel(handle) is TOO_LATE


async def test_a_cancelled_hidden_message_is_unknown_from_then_on():
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=10)
        assert await world.endpoint.cancel(handle) is CANCELLED
        assert await world.endpoint.cancel(handle) is UNKNOWN


async def test_a_handle_of_another_endpoint_is_unknown():
    async with open_world() as one:
        handle = await one.endpoint.schedule("orders", "x", delay=3600)
        async with open_world(account=one.account, clock=one.clock, endpoint="Another") as other:
            assert await other.endpoint.cancel(handle) is UNKNOWN
            assert await other.endpoint.get(handle) is None
        assert len(one.rows) == 1


async def test_a_removal_that_took_too_long_is_told_as_unsure():
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=40)
        store, remove = world.backend.store, world.backend.store.remove

        async def slow(rows, guard=None):
            world.clock.step(timedelta(seconds=30))
            return await remove(rows, guard)

        store.remove = slow
        with pytest.raises(OutcomeUnknown, match="either cancelled or delivered"):
            await world.endpoint.cancel(handle)


async def test_a_row_moves_to_a_later_time_under_a_new_handle():
    async with open_world() as world:
        old = await world.endpoint.schedule("orders", "x", delay=60, message_id="id-1")
        result = await world.endpoint.reschedule(old, delay=7200)
        assert result.outcome is RescheduleOutcome.MOVED
        assert len(world.rows) == 1
        assert await world.endpoint.get(old) is None
        moved = await world.endpoint.get(result.handle)
        assert (moved.message_id, moved.due_at, moved.state) == ("id-1", result.due_at, State.WAITING)
        assert moved.headers[h.DELIVER_AT] == h.format_instant(result.due_at)
        assert moved.next_attempt_at is None
        await world.clock.advance(3600)
        await world.endpoint.deliver_due()
        assert world.in_queue("orders") == []
        await world.clock.advance(3600)
        await world.endpoint.deliver_due()
        assert len(await world.take("orders")) == 1


async def test_a_row_moves_to_now_and_is_delivered_once():
    async with open_world(envelopes={"orders": "raw"}) as world:
        old = await world.endpoint.schedule("orders", "x", delay=3600)
        result = await world.endpoint.reschedule(old, delay=0)
        assert result.outcome is RescheduleOutcome.MOVED
        assert world.rows == {}
        assert [unwrap(m.text, "n").message.body for m in world.in_queue("orders")] == [b"x"]


async def test_moving_to_the_same_time_changes_nothing():
    async with open_world() as world:
        at = world.clock.now() + timedelta(hours=1)
        handle = await world.endpoint.schedule("orders", "x", at=at)
        result = await world.endpoint.reschedule(handle, at=at)
        assert (result.outcome, result.handle) == (RescheduleOutcome.MOVED, handle)


async def test_a_hidden_message_moves_within_its_queue():
    async with open_world() as world:
        old = await world.endpoint.schedule("orders", "x", delay=10)
        result = await world.endpoint.reschedule(old, delay=100)
        assert result.outcome is RescheduleOutcome.MOVED
        assert (await world.endpoint.reschedule(old, delay=5)).outcome is RescheduleOutcome.TOO_LATE
        await world.clock.advance(99)
        assert await world.take("orders") == []
        assert await world.endpoint.cancel(result.handle) is CANCELLED
        with pytest.raises(UsageError, match="7 days"):
            await world.endpoint.reschedule(result.handle, delay="8d")


async def test_moving_what_was_cancelled_or_handed_over_leaves_no_row_behind():
    async with open_world() as world:
        gone = await world.endpoint.schedule("orders", "x", delay=3600)
        await world.endpoint.cancel(gone)
        assert (await world.endpoint.reschedule(gone, delay=7200)).outcome is RescheduleOutcome.UNKNOWN
        late = await world.endpoint.schedule("orders", "y", delay=40)
        await world.clock.advance(20)
        assert (await world.endpoint.reschedule(late, delay=7200)).outcome is RescheduleOutcome.TOO_LATE
        assert len(world.rows) == 1


@pytest.mark.parametrize("others", ["cancel", "move", "move to the same time"])
async def test_racing_movers_and_cancellers_leave_one_message_or_none(others):
    for seed in range(20):
        async with open_world(endpoint=f"race-{seed}") as world:
            handle = await world.endpoint.schedule("orders", "x", delay=3600)
            at = world.clock.now() + timedelta(hours=2)

            async def wait_turns(turns, call):
                for _ in range(turns):
                    await asyncio.sleep(0)
                return await call

            interleave(world.backend.store)
            if others == "cancel":
                rival = world.endpoint.cancel(handle)
            elif others == "move":
                rival = world.endpoint.reschedule(handle, at=at + timedelta(hours=1))
            else:
                rival = world.endpoint.reschedule(handle, at=at)
            mine, theirs = await asyncio.gather(
                wait_turns(0, world.endpoint.reschedule(handle, at=at)), wait_turns(seed, rival)
            )
            if others == "cancel" and theirs is CANCELLED:
                assert mine.outcome is not RescheduleOutcome.MOVED
                assert world.rows == {}
            else:
                assert len(world.rows) == 1
                (row,) = [r async for r in world.endpoint.upcoming()]
                assert row.next_attempt_at is None


def interleave(store):
    """Every call gives the others a turn before and after it, as a network does."""
    for name in ("add", "remove", "update", "get"):
        inner = getattr(store, name)

        async def call(*args, inner=inner, **kwargs):
            await asyncio.sleep(0)
            result = await inner(*args, **kwargs)
            await asyncio.sleep(0)
            return result

        setattr(store, name, call)


async def test_get_shows_a_waiting_message_and_a_hidden_one():
    async with open_world() as world:
        at = world.clock.now() + timedelta(hours=1)
        row = await world.endpoint.schedule("orders", {"a": 1}, at=at, message_id="id-1")
        shown = await world.endpoint.get(row)
        assert (shown.state, shown.message_id, shown.due_at, shown.body) == (
            State.WAITING, "id-1", at, b'{"a":1}',
        )  # fmt: skip
        hidden = await world.endpoint.schedule("orders", "x", delay=5)
        shown = await world.endpoint.get(hidden)
        assert (shown.state, shown.destination) == (State.IN_QUEUE, "orders")


async def test_upcoming_lists_in_due_order_by_time_destination_and_number():
    async with open_world() as world:
        await world.backend.sender.create("invoices")
        for n in (3, 1, 2):
            await world.endpoint.schedule("orders", n, delay=3600 * n)
        await world.endpoint.schedule("invoices", 9, delay=5400)
        now = world.clock.now()

        async def bodies(**options):
            return [m.body async for m in world.endpoint.upcoming(**options)]

        assert await bodies() == [b"1", b"9", b"2", b"3"]
        assert await bodies(limit=2) == [b"1", b"9"]
        assert await bodies(destination="Orders") == [b"1", b"2", b"3"]
        hours = timedelta(hours=1)
        assert await bodies(start=now + 1.2 * hours, end=now + 3 * hours) == [b"9", b"2"]


async def test_cancelling_and_receiving_drop_a_large_body_and_moving_keeps_it_longer():
    async with open_world() as world:
        body = b"x" * 200_000
        payloads = world.account.payloads[world.endpoint.settings.table_name]
        row = await world.endpoint.schedule("orders", body, delay=3600)
        (name,) = payloads
        assert (await world.endpoint.get(row)).body == body
        moved = await world.endpoint.reschedule(row, delay="90d")
        assert payloads[name][1] == moved.due_at + world.endpoint.settings.payload_retention
        await world.endpoint.cancel(moved.handle)
        assert payloads[name][0] is None
        hidden = await world.endpoint.schedule("orders", body + b"2", delay=5)
        await world.endpoint.cancel(hidden)
        assert [stored for stored, _ in payloads.values()] == [None, None]


async def test_a_row_that_keeps_changing_is_told_and_not_spun_on():
    async with open_world() as world:
        handle = await world.endpoint.schedule("orders", "x", delay=3600)
        store, get = world.backend.store, world.backend.store.get

        async def stale(key):
            row = await get(key)
            return replace(row, etag="stale")

        store.get = stale
        with pytest.raises(OutcomeUnknown, match="keeps changing"):
            await world.endpoint.cancel(handle)
