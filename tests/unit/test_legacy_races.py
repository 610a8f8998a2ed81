"""What others do between two steps of a drain or an undo."""

from datetime import timedelta

import pytest
from drain_cases import SECOND, Watched, drain, ids, left, message_ids, stored, undo, waiting
from engine_cases import open_world

from postdate.errors import ServiceBusy, UsageError
from postdate.events import TimeoutsMoved


def quiet(_name, _after):
    """Nothing to tell."""


async def test_a_row_that_was_withdrawn_by_a_slower_drain_is_made_again(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 1)
        inner = world.backend.timeouts
        # The slower one has made the row...
        await _make_rows(world, timeouts)

        class Withdrawn(Watched):
            async def remove(self, timeout_id):
                removed = await inner.remove(timeout_id)
                world.rows.clear()  # ...and takes it back, since it finds the timeout gone.
                return removed

        world.backend.timeouts = Withdrawn(inner, quiet)
        done = await drain(world, tmp_path / "undo")
        assert await waiting(world) == message_ids(timeouts)
        assert (done.moved.count, done.doubtful, done.verified.ok) == (1, [], True)


async def _make_rows(world, timeouts):
    judge = world.endpoint.parts.migration._ground.judge
    await world.backend.store.add([judge.weigh(one).delayed for one in timeouts])


async def test_a_row_that_goes_before_it_is_looked_at_leaves_the_timeout_where_it_is(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 1)
        await _make_rows(world, timeouts)
        store = world.backend.store

        class Gone(Watched):
            async def add(self, messages):
                answer = await store.add(messages)
                world.rows.clear()
                return answer

        world.backend.store = Gone(store, quiet)
        done = await drain(world, tmp_path / "undo")
        assert "run the command again" in done.refused[0].reason
        assert await left(world) == ids(timeouts)
        world.backend.store = store
        assert (await drain(world, tmp_path / "undo")).moved.count == 1


async def test_a_timeout_taken_by_others_whose_row_was_there_before_keeps_its_row(tmp_path):
    """It may be the row of whoever took it: one too many rather than one too few."""
    async with open_world() as world:
        timeouts = await stored(world, 1)
        await _make_rows(world, timeouts)
        inner = world.backend.timeouts

        class Taken(Watched):
            async def remove(self, timeout_id):
                await inner.remove(timeout_id)
                return False

        world.backend.timeouts = Taken(inner, quiet)
        done = await drain(world, tmp_path / "undo")
        assert (done.doubtful, done.taken) == (timeouts, 0)
        assert await waiting(world) == message_ids(timeouts)


async def test_a_timeout_that_goes_before_it_is_read_is_nobodys_concern(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 2)
        inner = world.backend.timeouts

        class Gone(Watched):
            async def get(self, timeout_id):
                if timeout_id == timeouts[0].id:
                    await inner.remove(timeout_id)
                return await inner.get(timeout_id)

        world.backend.timeouts = Gone(inner, quiet)
        done = await drain(world, tmp_path / "undo")
        assert (done.moved.count, done.refused, done.verified.ok) == (1, [], True)
        assert await waiting(world) == message_ids(timeouts[1:])


async def test_a_run_does_not_go_on_with_other_settings(tmp_path):
    """Its timeouts would stay in both places."""
    async with open_world() as world:
        timeouts = await stored(world, 1, body=b"x" * 60_000)
        inner = world.backend.timeouts

        class Failing(Watched):
            async def remove(self, timeout_id):
                raise ServiceBusy("try again")

        world.backend.timeouts = Failing(inner, quiet)
        with pytest.raises(ServiceBusy):
            await drain(world, tmp_path / "undo")
    async with open_world(account=world.account, clock=world.clock, large_bodies="refuse") as other:
        with pytest.raises(UsageError, match="with the settings of that run"):
            await drain(other, tmp_path / "undo")
    async with open_world(account=world.account, clock=world.clock, envelopes={"orders": "raw"}) as other:
        with pytest.raises(UsageError, match="with the settings of that run"):
            await drain(other, tmp_path / "undo")
    async with open_world(account=world.account, clock=world.clock) as same:
        done = await drain(same, tmp_path / "undo")
        assert (done.moved.count, done.verified.ok) == (1, True)
        assert await left(same) == []
        assert await waiting(same) == message_ids(timeouts)


async def test_an_undo_that_takes_too_long_is_told_as_a_possible_duplicate(tmp_path):
    async with open_world(lookahead="30s") as world:
        timeouts = await stored(world, 1)
        await drain(world, tmp_path / "undo")
        inner = world.backend.timeouts

        class Slow(Watched):
            async def add(self, one):
                await inner.add(one)
                world.clock.step(timeouts[0].due_at - world.clock.now() - SECOND)

        world.backend.timeouts = Slow(inner, quiet)
        done = await undo(world, tmp_path / "undo")
        assert (done.back, done.doubtful) == (0, timeouts)
        assert await left(world) == ids(timeouts)


async def test_a_wait_in_the_middle_of_a_run_leaves_what_became_due_soon(tmp_path):
    async with open_world(lookahead="30s") as world:
        timeouts = await stored(world, 150, after=timedelta(minutes=100))

        def pass_time(event):
            if isinstance(event, TimeoutsMoved):
                world.clock.step(timedelta(minutes=200))

        world.endpoint.parts.events.observe(pass_time)
        done = await drain(world, tmp_path / "undo")
        # After the first hundred it is 200 minutes later: the next six are due within margin and lookahead.
        assert (done.moved.count, done.too_soon) == (144, 6)
        assert await left(world) == ids(timeouts[100:106])
