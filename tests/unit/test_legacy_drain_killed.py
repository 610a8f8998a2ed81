"""A drain that dies at any step: the same command goes on, nothing is lost, nothing comes twice."""

from collections import Counter
from datetime import timedelta

import pytest
from drain_cases import DAY, OldManager, Watched, drain, ids, left, message_ids, stored, undo, waiting
from engine_cases import open_world

from postdate.legacy.ground import Selection
from postdate.legacy.undo_file import UndoFile

#: More than a drain of five timeouts takes.
_MANY = 400


class Killed(BaseException):
    """As a kill -9 would end it: no handler of ours runs."""


class Killer:
    """Kills at the n-th step: before a call to the storage or the undo file, or after it."""

    def __init__(self, at):
        self._left = at

    def __call__(self, _name, _after):
        self._left -= 1
        if self._left == 0:
            raise Killed


async def killed(world, path, at, monkeypatch, *, work=drain):
    """Whether the work came as far as step `at`, where it is killed."""
    killer, backend = Killer(at), world.backend
    store, timeouts, payloads = backend.store, backend.timeouts, backend.payloads
    write = UndoFile.write

    def watched_write(file, lines):
        killer("write", False)
        write(file, lines)
        killer("write", True)

    with monkeypatch.context() as patch:
        patch.setattr(UndoFile, "write", watched_write)
        patch.setattr(backend, "store", Watched(store, killer))
        patch.setattr(backend, "timeouts", Watched(timeouts, killer))
        patch.setattr(backend, "payloads", Watched(payloads, killer))
        try:
            await work(world, path)
        except (Killed, BaseExceptionGroup):
            return True
    return False


async def five(world):
    """Timeouts, one with a body that goes to a blob."""
    timeouts = await stored(world, 4)
    large = await stored(world, 1, after=2 * DAY, body=b"x" * 60_000, id="large", headers={})
    return timeouts + large


@pytest.mark.parametrize("again", [None, 3, 7, 11, 16, 21])
async def test_killed_at_any_step_it_goes_on_where_it_ended(again, tmp_path, monkeypatch):
    steps = 0
    for at in range(1, _MANY):
        async with open_world() as world:
            timeouts = await five(world)
            path = tmp_path / f"undo{at}"
            if not await killed(world, path, at, monkeypatch):
                break
            steps += 1
            if again is not None:
                await killed(world, path, again, monkeypatch)
            done = await drain(world, path)
            assert await waiting(world) == [*message_ids(timeouts[:4]), "large"], at
            slot = world.account.timeouts[world.endpoint.settings.timeout_table]
            assert (slot.rows, slot.states) == ({}, {}), at
            assert (done.verified.ok, done.doubtful, done.refused, done.taken) == (True, [], [], 0), at
    assert 30 < steps < _MANY - 1


async def test_killed_and_forgotten_until_all_is_due_it_loses_nothing_and_names_what_came_twice(
    tmp_path, monkeypatch
):
    doubled = 0
    for at in range(1, _MANY):
        async with open_world() as world:
            timeouts = await stored(world, 4)
            path = tmp_path / f"undo{at}"
            if not await killed(world, path, at, monkeypatch):
                break
            manager = OldManager(world)
            await world.clock.advance(2 * DAY)
            await manager.poll()
            await world.endpoint.deliver_due()
            done = await drain(world, path)
            await manager.poll()
            await world.endpoint.deliver_due()
            delivered = Counter(m.message_id for m in await world.take("orders"))
            delivered.update(manager.released)
            assert set(delivered) == set(message_ids(timeouts)), at
            twice = {name for name, count in delivered.items() if count > 1}
            assert twice <= set(message_ids(done.doubtful)), at
            doubled += len(twice)
    assert doubled  # so the case is there


async def test_killed_in_the_middle_of_a_removal_it_leaves_nothing_behind(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 3)
        inner = world.backend.timeouts
        slot = world.account.timeouts[world.endpoint.settings.timeout_table]

        class HalfDone(Watched):
            async def remove(self, timeout_id):
                del slot.rows[timeout_id, ""]
                raise Killed

        world.backend.timeouts = HalfDone(inner, lambda name, after: None)
        with pytest.raises(BaseExceptionGroup):
            await drain(world, tmp_path / "undo")
        assert slot.rows
        world.backend.timeouts = inner
        done = await drain(world, tmp_path / "undo")
        assert await waiting(world) == message_ids(timeouts)
        assert (slot.rows, slot.states) == ({}, {})
        assert (done.moved.count, done.verified.ok, done.arrived) == (3, True, 0)


@pytest.mark.parametrize("lost", range(1, 40, 7))
async def test_a_line_that_was_not_written_whole_is_cut_off(lost, tmp_path, monkeypatch):
    async with open_world() as world:
        timeouts = await stored(world, 3)
        path = tmp_path / "undo"
        # After the rows were added, before that was written.
        assert await killed(world, path, 15, monkeypatch)
        content = path.read_bytes()
        path.write_bytes(content[:-lost])
        done = await drain(world, path)
        assert await waiting(world) == message_ids(timeouts)
        assert await left(world) == []
        assert done.verified.ok
        assert path.read_bytes().endswith(b"\n")


async def test_an_undo_that_is_killed_at_any_step_goes_on(tmp_path, monkeypatch):
    steps = 0
    for at in range(1, _MANY):
        async with open_world() as world:
            timeouts = await five(world)
            path = tmp_path / f"undo{at}"
            await drain(world, path)
            if not await killed(world, path, at, monkeypatch, work=undo):
                break
            steps += 1
            done = await undo(world, path)
            assert (done.doubtful, done.delivered, done.gone, done.too_late) == ([], [], [], []), at
            assert done.back + done.already == 5, at
            assert world.rows == {}, at
            for one in timeouts:
                assert await world.backend.timeouts.get(one.id) == one, at
    assert 10 < steps < _MANY - 1


async def test_after_a_kill_an_undo_puts_back_what_was_under_way(tmp_path, monkeypatch):
    for at in range(1, _MANY):
        async with open_world() as world:
            timeouts = await five(world)
            path = tmp_path / f"undo{at}"
            if not await killed(world, path, at, monkeypatch):
                break
            await undo(world, path)
            assert world.rows == {}, at
            assert await left(world) == ids(timeouts), at
            # And a drain after that begins anew.
            done = await drain(world, path, Selection(margin=timedelta(minutes=1)))
            assert done.verified.ok, at
            assert done.verified.found.count == 5, at
