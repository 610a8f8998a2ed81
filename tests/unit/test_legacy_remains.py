"""What is left for the timeout manager, and what a drain would do: looking changes nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from drain_cases import DAY, drain, left, stored, timeout
from engine_cases import open_world

from postdate.legacy.ground import Selection
from postdate.legacy.remains import short_notice


def snapshot(world):
    slot = world.account.timeouts.get(world.endpoint.settings.timeout_table)
    rows = {} if slot is None else {place: dict(row) for place, row in slot.rows.items()}
    return rows, {} if slot is None else dict(slot.states), dict(world.rows), set(world.account.queues)


async def test_nothing_of_a_timeout_manager_can_be_switched_off():
    async with open_world() as world:
        found = await world.endpoint.parts.migration.look()
        assert (found.store, found.waiting.count, found.can_be_switched_off) == (False, 0, True)
        assert found.queues == {"unit-tests-timeouts": None, "unit-tests-timeoutsdispatcher": None}


async def test_what_is_left_is_counted_by_destination():
    async with open_world() as world:
        timeouts = await stored(world, 3, after=-DAY)
        await world.backend.timeouts.add(timeout(world, 8, destination="bills"))
        await world.backend.timeouts.add(timeout(world, 9, destination="q@AccountName=a;AccountKey=c2VjcmV0"))
        found = await world.endpoint.parts.migration.look()
        assert (found.store, found.waiting.count, found.overdue) == (True, 5, 3)
        counts = {name: group.count for name, group in found.waiting.by_destination.items()}
        assert counts == {"orders": 3, "bills": 1, "q@…": 1}
        group = found.waiting.by_destination["orders"]
        assert (group.earliest, group.latest) == (timeouts[0].due_at, timeouts[2].due_at)
        assert not found.can_be_switched_off


async def test_a_message_in_either_queue_is_work_left():
    for queue in ("unit-tests-timeouts", "unit-tests-timeoutsdispatcher"):
        async with open_world() as world:
            await world.endpoint.setup(queue)
            assert (await world.endpoint.parts.migration.look()).can_be_switched_off
            await world.backend.sender.send(queue, "x")
            found = await world.endpoint.parts.migration.look()
            assert (found.queues[queue], found.can_be_switched_off) == (1, False)


async def test_what_a_migration_tool_hid_is_work_left():
    async with open_world() as world:
        (one,) = await stored(world, 1)
        slot = world.account.timeouts[world.endpoint.settings.timeout_table]
        for (_, row), properties in slot.rows.items():
            if row:
                properties["OwningTimeoutManager"] = f"__hidden__tmpA1B2__{one.owner}"
        found = await world.endpoint.parts.migration.look()
        assert (found.waiting.count, found.hidden, found.can_be_switched_off) == (0, 1, False)
        warnings = (await world.endpoint.parts.migration.preview(Selection())).warnings
        assert any("1 timeouts are hidden by another migration tool" in text for text in warnings)


async def test_what_nobody_can_read_is_work_left():
    async with open_world() as world:
        await stored(world, 1)
        for row in world.account.timeouts[world.endpoint.settings.timeout_table].rows.values():
            row["Headers"] = "["
        found = await world.endpoint.parts.migration.look()
        assert (found.waiting.count, found.unreadable, found.can_be_switched_off) == (0, 1, False)


async def test_after_a_drain_nothing_is_left(tmp_path):
    async with open_world() as world:
        await stored(world, 3)
        await drain(world, tmp_path / "undo")
        assert (await world.endpoint.parts.migration.look()).can_be_switched_off


async def test_looking_and_previewing_change_nothing():
    async with open_world() as world:
        await stored(world, 120)
        before = snapshot(world)
        await world.endpoint.parts.migration.look()
        await world.endpoint.parts.migration.preview(Selection())
        assert snapshot(world) == before


async def test_a_preview_tells_what_the_drain_then_does(tmp_path):
    async with open_world() as world:
        await stored(world, 110, after=timedelta(minutes=-3))
        await world.backend.timeouts.add(replace(timeout(world, 900), destination="ordres"))
        selection = Selection(due_from=world.clock.now())
        told = await world.endpoint.parts.migration.preview(selection)
        done = await drain(world, tmp_path / "undo", selection)
        assert told.movable == done.moved
        assert told.too_soon == done.too_soon > 0
        assert told.refused == done.refused
        assert len(told.refused) == 1
        # What is due before the cut-off is not even counted.
        assert told.movable.count + told.too_soon + 1 + 3 == 111
        assert len(await left(world)) == told.too_soon + 1 + 3


async def test_a_preview_warns_of_what_should_be_put_right_first():
    async with open_world() as world:
        await stored(world, 1, after=timedelta(hours=3))
        queue = world.endpoint.settings.timeout_queues[0]
        await world.endpoint.setup(queue)
        await world.backend.sender.send(queue, "x")
        world.account.tables.clear()
        warnings = (await world.endpoint.parts.migration.preview(Selection())).warnings
        for part in ("is missing; create it", "postdate run", f"1 messages in queue {queue}", "due in 3h1s"):
            assert any(part in text for text in warnings), part
        assert len(warnings) == 4


async def test_with_a_leader_and_time_a_preview_warns_of_nothing():
    async with open_world() as world:
        await stored(world, 1, after=timedelta(hours=5))
        await world.backend.lease.acquire("somebody", 15, 30.0)
        assert (await world.endpoint.parts.migration.preview(Selection())).warnings == []


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (timedelta(hours=4), None),
        (timedelta(hours=4, seconds=-1), "due in 3h59m59s, less than 4h"),
        (timedelta(0), "due already"),
        (-DAY, "due already"),
    ],
)
def test_short_notice_is_less_than_four_hours(after, says):
    now = datetime(2026, 3, 1, tzinfo=UTC)
    assert short_notice(None, now) == []
    told = short_notice(now + after, now)
    assert (says in told[0]) if says else told == []
