"""Undoing a drain: what is not delivered yet goes back, whole; of the rest is told what became of it."""

import asyncio
from datetime import timedelta

import pytest
from drain_cases import DAY, SECOND, Watched, drain, ids, left, message_ids, stored, undo, undo_file, waiting
from engine_cases import open_world

from postdate.errors import MessageTooLarge, NotProvisioned, UsageError
from postdate.events import TimeoutsPutBack
from postdate.legacy.ground import Selection
from postdate.model.handles import RowHandle, format_handle


async def handles(world):
    return [format_handle(RowHandle(row.key)) async for row in world.backend.store.upcoming()]


async def test_timeouts_are_put_back_as_they_were(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 3)
        slot = world.account.timeouts[world.endpoint.settings.timeout_table]
        before = (dict(slot.rows), dict(slot.states))
        await drain(world, tmp_path / "undo")
        assert slot.rows == {}
        done = await undo(world, tmp_path / "undo")
        assert (done.back, done.already, done.doubtful, done.stopped) == (3, 0, [], False)
        assert (slot.rows, slot.states) == before
        assert world.rows == {}
        assert [await world.backend.timeouts.get(one.id) for one in timeouts] == timeouts
        (told,) = world.log.of(TimeoutsPutBack)
        assert (told.back, told.doubtful, told.back_in_all) == (3, 0, 3)


async def test_twice_changes_nothing_more(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 2)
        await drain(world, tmp_path / "undo")
        await undo(world, tmp_path / "undo")
        again = await undo(world, tmp_path / "undo")
        assert (again.back, again.already) == (0, 2)
        assert await left(world) == ids(timeouts)


async def test_there_and_back_and_there_again(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 150)
        first = await drain(world, tmp_path / "undo")
        await undo(world, tmp_path / "undo")
        second = await drain(world, tmp_path / "undo")
        assert second.run != first.run
        assert (second.moved.count, second.verified.ok, second.verified.found.count) == (150, True, 150)
        assert (await undo(world, tmp_path / "undo")).back == 150
        assert await left(world) == ids(timeouts)
        assert world.rows == {}


async def test_a_large_body_survives_there_and_back_and_there(tmp_path):
    async with open_world() as world:
        (one,) = await stored(world, 1, body=b"x" * 60_000)
        await drain(world, tmp_path / "undo")
        await undo(world, tmp_path / "undo")
        assert await world.backend.timeouts.get(one.id) == one
        await drain(world, tmp_path / "undo")
        await world.clock.advance(2 * DAY)
        await world.endpoint.deliver_due()
        (message,) = await world.take("orders")
        assert await world.backend.payloads.get(message.headers["Postdate.Payload"]) == one.body


async def test_what_a_leader_may_hold_is_left_to_it(tmp_path):
    async with open_world(lookahead="30s") as world:
        (one,) = await stored(world, 1)
        await drain(world, tmp_path / "undo")
        await world.clock.advance(one.due_at - world.clock.now() - 31 * SECOND)
        done = await undo(world, tmp_path / "undo")
        assert (done.back, done.too_late) == (0, [one])
        assert await left(world) == []
        assert await waiting(world) == message_ids([one])


async def test_the_published_lookahead_of_another_leader_counts(tmp_path):
    async with open_world(lookahead=0) as world:
        (one,) = await stored(world, 1)
        async with open_world(account=world.account, clock=world.clock, lookahead="10m") as leader:
            await leader.endpoint.deliver_due()
        await drain(world, tmp_path / "undo")
        await world.clock.advance(one.due_at - world.clock.now() - timedelta(minutes=9))
        assert (await undo(world, tmp_path / "undo")).too_late == [one]


async def test_what_was_cancelled_meanwhile_is_named_and_not_brought_back(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 2)
        await drain(world, tmp_path / "undo")
        await world.endpoint.cancel((await handles(world))[0])
        done = await undo(world, tmp_path / "undo")
        assert (done.gone, done.back) == (timeouts[:1], 1)
        assert await left(world) == ids(timeouts[1:])


async def test_a_row_that_somebody_changed_is_not_taken(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 1)
        await drain(world, tmp_path / "undo")
        (stored_row,) = world.rows.values()
        stored_row.properties["Body"] = b"another"
        done = await undo(world, tmp_path / "undo")
        assert done.gone == timeouts
        assert len(world.rows) == 1


async def test_a_row_that_goes_while_it_is_put_back_is_told_as_a_possible_duplicate(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 1)
        await drain(world, tmp_path / "undo")
        store = world.backend.store

        class Racing(Watched):
            async def remove(self, rows, guard=None):
                await store.remove(rows)  # somebody cancels it
                return await store.remove(rows)

        world.backend.store = Racing(store, lambda name, after: None)
        done = await undo(world, tmp_path / "undo")
        assert (done.back, done.doubtful) == (0, timeouts)
        assert await left(world) == ids(timeouts)


async def test_what_the_timeout_store_refuses_stays_a_row(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 2)
        await drain(world, tmp_path / "undo")
        inner = world.backend.timeouts

        class Refusing(Watched):
            async def add(self, one):
                if one.id == timeouts[0].id:
                    raise MessageTooLarge("too large")
                await inner.add(one)

        world.backend.timeouts = Refusing(inner, lambda name, after: None)
        done = await undo(world, tmp_path / "undo")
        assert (done.back, done.refused) == (1, [(timeouts[0], "too large")])
        assert await waiting(world) == message_ids(timeouts[:1])


async def test_without_a_timeout_store_no_row_is_touched(tmp_path):
    async with open_world() as world:
        await stored(world, 2)
        await drain(world, tmp_path / "undo")
        world.account.timeouts.clear()
        with pytest.raises(NotProvisioned, match="setup --timeout-manager"):
            await undo(world, tmp_path / "undo")
        assert len(world.rows) == 2


async def test_a_stop_ends_it_after_a_batch(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 150)
        await drain(world, tmp_path / "undo")
        stop = asyncio.Event()
        world.endpoint.parts.events.observe(lambda event: isinstance(event, TimeoutsPutBack) and stop.set())
        done = await undo(world, tmp_path / "undo", stop)
        assert (done.back, done.stopped) == (100, True)
        assert (await undo(world, tmp_path / "undo")).back == 50
        assert await left(world) == ids(timeouts)


# --- the file -------------------------------------------------------------------------------------


async def test_a_file_of_another_endpoint_is_refused(tmp_path):
    async with open_world() as world:
        await stored(world, 1)
        await drain(world, tmp_path / "undo")
    async with open_world(endpoint="unit.tests") as other:
        with pytest.raises(UsageError, match=r"is of endpoint 'Unit\.Tests'"):
            await undo(other, tmp_path / "undo")
        with pytest.raises(UsageError, match=r"is of endpoint 'Unit\.Tests'"):
            await drain(other, tmp_path / "undo")


async def test_one_process_at_a_time_has_the_file(tmp_path):
    async with open_world() as world:
        path, says = tmp_path / "undo", "another process works with this file"
        with undo_file(world, path), pytest.raises(UsageError, match=says), undo_file(world, path):
            pass
        with undo_file(world, tmp_path / "undo"):
            pass


NEWER = (
    b'{"kind":"began","run":"x","endpoint":"Unit.Tests","table":"t","at":"2026-03-01T12:00:00Z",'
    b'"due_from":null,"margin_s":300,"version":99}\n'
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"# Notes\n\nnothing of ours\n", "line 1 is not one of an undo file"),
        (b"notes without an end", "this is no undo file"),
        (b'{"kind":"moving"}\n', "line 1 is not one of an undo file"),
        (NEWER, "version 99"),
    ],
)
async def test_a_file_that_is_none_of_ours_is_refused_and_left_as_it_is(content, says, tmp_path):
    path = tmp_path / "notes"
    path.write_bytes(content)
    async with open_world() as world:
        for work in (drain, undo):
            with pytest.raises(UsageError, match=says):
                await work(world, path)
    assert path.read_bytes() == content


async def test_a_file_that_cannot_be_written_is_a_mistake_of_the_user(tmp_path):
    async with open_world() as world:
        await stored(world, 1)
        for path, says in [(tmp_path / "no" / "folder", "No such file"), (tmp_path, "Is a directory")]:
            with pytest.raises(UsageError, match=says):
                await drain(world, path)
        assert len(await left(world)) == 1


async def test_a_disk_that_is_full_keeps_everything_where_it_is(tmp_path, monkeypatch):
    async with open_world() as world:
        timeouts = await stored(world, 3)
        with undo_file(world, tmp_path / "undo") as file:
            monkeypatch.setattr("os.fsync", _full)
            with pytest.raises(UsageError, match="No space left"):
                await world.endpoint.parts.migration.drain(Selection(), file)
        assert await left(world) == ids(timeouts)
        assert world.rows == {}


def _full(_descriptor):
    raise OSError(28, "No space left on device")


async def test_timeouts_of_the_file_are_weighed_with_the_settings_of_the_drain(tmp_path):
    async with open_world() as world:
        await stored(world, 1, body=b"x" * 60_000)
        await drain(world, tmp_path / "undo")
    async with open_world(account=world.account, clock=world.clock, large_bodies="refuse") as other:
        with pytest.raises(UsageError, match="use the settings of the drain"):
            await undo(other, tmp_path / "undo")
        assert len(other.rows) == 1
