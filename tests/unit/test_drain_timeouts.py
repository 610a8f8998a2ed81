"""Draining the timeout store: what becomes a row, what stays, and what a preview tells of it."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from drain_cases import (
    DAY,
    SAGA,
    SECOND,
    OldManager,
    Watched,
    drain,
    ids,
    left,
    message_ids,
    stored,
    timeout,
    waiting,
)
from engine_cases import open_world

from postdate.errors import NotProvisioned, OutcomeUnknown, ServiceBusy
from postdate.events import TimeoutsMoved
from postdate.legacy.ground import Selection
from postdate.legacy.undo_lines import Settled, read_lines
from postdate.model import headers as h

ALL = Selection(margin=timedelta(0))


async def rows(world):
    return [row async for row in world.backend.store.upcoming()]


async def test_timeouts_become_rows_and_leave_the_store(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 3)
        done = await drain(world, tmp_path / "undo")
        assert await left(world) == []
        found = await rows(world)
        assert [(r.delayed.due_at, r.delayed.destination, r.delayed.message.body) for r in found] == [
            (one.due_at, one.destination, one.body) for one in timeouts
        ]
        assert (done.moved.count, done.refused, done.doubtful, done.taken, done.arrived) == (3, [], [], 0, 0)
        assert done.verified.ok
        assert (done.verified.expected.count, done.verified.found.count) == (3, 3)
        assert done.verified.expected.text == done.verified.found.text != "0" * 32
        assert done.moved.by_destination["orders"].count == 3
        assert (done.moved.earliest, done.moved.latest) == (timeouts[0].due_at, timeouts[2].due_at)


async def test_what_was_moved_is_delivered_once_at_its_time(tmp_path):
    async with open_world() as world:
        (one,) = await stored(world, 1)
        await drain(world, tmp_path / "undo")
        await world.clock.advance(one.due_at - world.clock.now() - SECOND)
        await world.endpoint.deliver_due()
        assert await world.take("orders") == []
        await world.clock.advance(2)
        (message,) = await world.take("orders")
        assert message.message_id == "m00000"
        assert message.body == one.body
        # As the old manager would have sent it: nothing of ours is in it.
        assert h.TERM not in message.headers
        assert message.headers["Größe"] == one.headers["Größe"]


async def test_twice_moves_nothing_twice(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 2)
        await drain(world, tmp_path / "undo")
        before = dict(world.rows)
        again = await drain(world, tmp_path / "undo")
        assert again.moved.count == 0
        assert again.verified.ok
        assert world.rows == before
        # Nor where the store was copied back by hand.
        for one in timeouts:
            await world.backend.timeouts.add(one)
        assert (await drain(world, tmp_path / "undo")).moved.count == 2
        assert await waiting(world) == message_ids(timeouts)
        assert await left(world) == []


async def test_more_than_a_batch_is_told_batch_by_batch(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 250)
        done = await drain(world, tmp_path / "undo")
        assert await waiting(world) == message_ids(timeouts)
        told = world.log.of(TimeoutsMoved)
        assert [event.moved for event in told] == [100, 100, 50]
        assert [event.moved_in_all for event in told] == [100, 200, 250]
        assert {event.run for event in told} == {done.run}


async def test_a_stop_ends_it_after_a_batch_and_the_next_run_goes_on(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 250)
        stop = asyncio.Event()
        world.endpoint.parts.events.observe(lambda event: isinstance(event, TimeoutsMoved) and stop.set())
        done = await drain(world, tmp_path / "undo", stop=stop)
        assert (done.moved.count, done.verified) == (100, None)
        assert len(await left(world)) == 150
        rest = await drain(world, tmp_path / "undo")
        assert (rest.run, rest.moved.count) == (done.run, 150)
        assert rest.verified.ok
        assert rest.verified.found.count == 250
        assert await waiting(world) == message_ids(timeouts)


# --- what stays -----------------------------------------------------------------------------------


async def test_what_is_due_soon_stays_with_the_timeout_manager(tmp_path):
    async with open_world(lookahead="1m") as world:
        # The margin of five minutes, and what a leader may hold.
        timeouts = await stored(world, 3, after=timedelta(minutes=5))
        done = await drain(world, tmp_path / "undo")
        assert (done.too_soon, done.moved.count) == (1, 2)
        assert await left(world) == ids(timeouts[:1])
        assert done.verified.ok


async def test_without_a_margin_overdue_ones_are_moved_too_and_delivered_at_once(tmp_path):
    async with open_world() as world:
        await stored(world, 2, after=-400 * DAY)
        done = await drain(world, tmp_path / "undo", ALL)
        assert (done.too_soon, done.moved.count, done.doubtful) == (0, 2, [])
        await world.endpoint.deliver_due()
        assert sorted(m.message_id for m in await world.take("orders")) == ["m00000", "m00001"]


REFUSED = {
    "no queue's name": ({"destination": ""}, "names no queue"),
    "a connection string": ({"destination": "q@AccountKey=c2VjcmV0"}, "carries a connection string"),
    "an unknown account": ({"destination": "orders@elsewhere"}, "unknown account alias"),
    "a queue that is not there": ({"destination": "ordres"}, "Did you mean 'orders'?"),
    "headers that are no text": ({"headers": {"n": 1}}, "is not text but int"),
    "headers beyond a row": ({"headers": {"n": "x" * 40_000}}, "a row holds 32,768"),
    "a time that can't be stored": ({"due_at": None}, "can't be stored"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_a_row_stays_and_is_told_with_its_reason(case, tmp_path):
    changes, says = REFUSED[case]
    async with open_world() as world:
        await stored(world, 1)
        wrong = replace(timeout(world, 9), **changes)
        if wrong.due_at is None:
            wrong = replace(wrong, due_at=timeout(world).due_at.replace(year=9999))
        if not wrong.destination or not all(isinstance(v, str) for v in wrong.headers.values()):
            world.backend.timeouts = _Serving(world.backend.timeouts, wrong)
        else:
            await world.backend.timeouts.add(wrong)
        done = await drain(world, tmp_path / "undo")
        assert [one.id for one in done.refused] == [wrong.id]
        assert says in done.refused[0].reason
        assert "c2VjcmV0" not in f"{done.refused}"
        assert await waiting(world) == ["m00000"]
        assert done.verified.ok
        assert await world.backend.timeouts.get(wrong.id) is not None
        assert wrong.id not in (tmp_path / "undo").read_text()


class _Serving:
    """A store that serves one more timeout, such as its own codec would not make."""

    def __init__(self, inner, more):
        self._inner = inner
        self._more = more

    async def all(self, **selected):
        async for one in self._inner.all(**selected):
            yield one
        yield replace(self._more, body=b"")

    async def get(self, timeout_id):
        return self._more if timeout_id == self._more.id else await self._inner.get(timeout_id)

    def __getattr__(self, name):
        return getattr(self._inner, name)


async def test_rows_that_nobody_can_read_stay_and_are_told(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 2)
        slot = world.account.timeouts[world.endpoint.settings.timeout_table]
        for place, row in slot.rows.items():
            if timeouts[0].id in place:
                row["Headers"] = "[1]"
        del slot.states[timeouts[1].id]
        done = await drain(world, tmp_path / "undo")
        reasons = {one.id: one.reason for one in done.refused}
        assert "column Headers is not a JSON object" in reasons[timeouts[0].id]
        assert "body of timeout" in reasons[timeouts[1].id]
        assert (done.moved.count, done.arrived) == (0, 0)
        assert world.rows == {}


async def test_a_body_too_large_for_a_queue_goes_to_a_blob(tmp_path):
    async with open_world() as world:
        (one,) = await stored(world, 1, body=b"x" * 60_000)
        done = await drain(world, tmp_path / "undo")
        assert done.verified.ok
        (row,) = await rows(world)
        assert row.delayed.message.body == b""
        assert await world.backend.payloads.get(row.delayed.payload_ref) == one.body


async def test_a_body_too_large_stays_where_blobs_are_not_wanted(tmp_path):
    async with open_world(large_bodies="refuse") as world:
        await stored(world, 1, body=b"x" * 60_000)
        done = await drain(world, tmp_path / "undo")
        assert "POSTDATE_LARGE_BODIES" in done.refused[0].reason
        assert len(await left(world)) == 1


async def test_another_message_under_the_same_key_is_never_overwritten(tmp_path):
    async with open_world() as world:
        (one,) = await stored(world, 1)
        await world.endpoint.schedule("orders", b"other", at=one.due_at, message_id="m00000")
        done = await drain(world, tmp_path / "undo")
        assert "another message with id 'm00000'" in done.refused[0].reason
        assert ids([one]) == await left(world)
        (row,) = await rows(world)
        assert row.delayed.message.body == b"other"


async def test_without_a_delays_table_nothing_is_changed(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 1)
        world.account.tables.clear()
        with pytest.raises(NotProvisioned, match="postdate setup"):
            await drain(world, tmp_path / "undo")
        assert await left(world) == ids(timeouts)
        assert (tmp_path / "undo").read_bytes() == b""


async def test_without_a_timeout_store_there_is_nothing_to_move(tmp_path):
    async with open_world() as world:
        done = await drain(world, tmp_path / "undo")
        assert (done.moved.count, done.verified.ok) == (0, True)


async def test_timeouts_of_other_endpoints_stay(tmp_path):
    async with open_world() as world:
        await stored(world, 1)
        other = replace(timeout(world, 7), owner="Other.Endpoint")
        await world.backend.timeouts.add(other)
        await drain(world, tmp_path / "undo")
        assert await waiting(world) == ["m00000"]
        assert await world.backend.timeouts.get(other.id) == other


async def test_one_that_arrives_meanwhile_is_told(tmp_path):
    async with open_world() as world:
        await stored(world, 1)
        late = timeout(world, 5, after=2 * DAY)

        def arrive(event):
            if isinstance(event, TimeoutsMoved):
                with pytest.raises(StopIteration):  # memory does not wait for anything
                    world.backend.timeouts.add(late).send(None)

        world.endpoint.parts.events.observe(arrive)
        done = await drain(world, tmp_path / "undo")
        assert (done.moved.count, done.arrived) == (1, 1)
        assert (await drain(world, tmp_path / "undo")).moved.count == 1


# --- others at the same time ----------------------------------------------------------------------


async def test_beside_an_old_manager_nothing_is_lost_and_nothing_comes_twice(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 240, after=timedelta(minutes=-60))
        manager = OldManager(world)
        polling = []

        def poll(name, after):
            polling.append(asyncio.ensure_future(manager.poll()))

        # It releases what is due between any two steps of ours.
        world.backend.store = Watched(world.backend.store, poll)
        done = await drain(world, tmp_path / "undo")
        await asyncio.gather(*polling)
        assert done.doubtful == []
        assert done.verified.ok
        await manager.poll()
        for _ in range(5):
            await world.clock.advance(3600)
            await manager.poll()
            await world.endpoint.deliver_due()
        delivered = [m.message_id for m in await world.take("orders")]
        assert sorted(delivered + manager.released) == message_ids(timeouts)
        assert delivered
        assert manager.released


async def test_a_timeout_that_a_saga_takes_back_meanwhile_is_withdrawn(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 2)
        inner = world.backend.timeouts

        class Racing(Watched):
            async def remove(self, timeout_id):
                if timeout_id == timeouts[1].id:
                    assert await inner.remove_of_saga(SAGA) == 1
                return await inner.remove(timeout_id)

        world.backend.timeouts = Racing(inner, lambda name, after: None)
        done = await drain(world, tmp_path / "undo")
        assert (done.moved.count, done.taken, done.doubtful) == (1, 1, [])
        assert await waiting(world) == ["m00000"]
        assert done.verified.ok


async def test_what_took_longer_than_the_margin_is_told_as_a_possible_duplicate(tmp_path):
    async with open_world(lookahead="30s") as world:
        timeouts = await stored(world, 1, after=timedelta(minutes=6))
        inner = world.backend.timeouts

        class Slow(Watched):
            async def remove(self, timeout_id):
                world.clock.step(timedelta(minutes=4))
                return await inner.remove(timeout_id)

        world.backend.timeouts = Slow(inner, lambda name, after: None)
        done = await drain(world, tmp_path / "undo")
        assert done.doubtful == timeouts
        assert done.moved.count == 1
        assert await waiting(world) == ["m00000"]


async def test_two_drains_at_once_move_each_once_and_lose_none(tmp_path):
    async with open_world() as one:
        timeouts = await stored(one, 120)
        async with open_world(account=one.account, clock=one.clock) as two:
            for world in (one, two):
                world.backend.timeouts = _Yielding(world.backend.timeouts)
                world.backend.store = _Yielding(world.backend.store)
            done = await asyncio.gather(drain(one, tmp_path / "a"), drain(two, tmp_path / "b"))
        assert await waiting(one) == message_ids(timeouts)
        assert await left(one) == []
        settled = [
            timeout_id
            for name in "ab"
            for line in read_lines(tmp_path / name)
            if isinstance(line, Settled)
            for timeout_id in line.moved
        ]
        assert sorted(settled) == ids(timeouts)
        assert all(each.verified.ok for each in done)


class _Yielding:
    """Gives others a turn at each call."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        member = getattr(self._inner, name)
        if name in ("due", "all", "upcoming"):
            return member

        async def call(*args, **more):
            await asyncio.sleep(0)
            answer = await member(*args, **more)
            await asyncio.sleep(0)
            return answer

        return call


async def test_of_two_drains_the_slower_one_cannot_take_the_row_with_it(tmp_path):
    """The one that made the row finds the timeout gone, because the other one removed it."""
    async with open_world() as slow, open_world(account=slow.account, clock=slow.clock) as quick:
        timeouts = await stored(slow, 1)
        inner = slow.backend.timeouts

        class Overtaken(Watched):
            async def remove(self, timeout_id):
                done = await drain(quick, tmp_path / "quick")
                assert done.moved.count == 1
                return await inner.remove(timeout_id)

        slow.backend.timeouts = Overtaken(inner, lambda name, after: None)
        done = await drain(slow, tmp_path / "slow")
        assert await waiting(slow) == message_ids(timeouts)
        assert (done.taken, done.doubtful) == (0, timeouts)


@pytest.mark.parametrize("applied", [False, True])
async def test_a_storage_failure_leaves_the_rest_to_the_next_run(applied, tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 5)
        inner = world.backend.timeouts

        class Failing(Watched):
            async def remove(self, timeout_id):
                if timeout_id != timeouts[2].id:
                    return await inner.remove(timeout_id)
                if applied:
                    await inner.remove(timeout_id)
                    raise OutcomeUnknown("an answer was lost")
                raise ServiceBusy("try again")

        world.backend.timeouts = Failing(inner, lambda name, after: None)
        with pytest.raises(OutcomeUnknown if applied else ServiceBusy):
            await drain(world, tmp_path / "undo")
        assert await left(world) == ([] if applied else [timeouts[2].id])
        world.backend.timeouts = inner
        done = await drain(world, tmp_path / "undo")
        assert (done.moved.count, done.doubtful) == (1, [])
        assert done.verified.found.count == 5
        assert await waiting(world) == message_ids(timeouts)


# --- verification ---------------------------------------------------------------------------------


async def test_verification_names_what_is_missing_and_what_was_changed(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 3)

        def spoil(event):
            if isinstance(event, TimeoutsMoved):
                places = sorted(world.rows)
                del world.rows[places[0]]
                world.rows[places[1]].properties["Body"] = b"changed"

        world.endpoint.parts.events.observe(spoil)
        done = await drain(world, tmp_path / "undo")
        assert not done.verified.ok
        assert done.verified.missing == timeouts[:1]
        assert done.verified.changed == timeouts[1:2]
        assert (done.verified.expected.count, done.verified.found.count) == (3, 2)
        assert done.verified.expected.text != done.verified.found.text


async def test_what_was_delivered_by_then_is_not_missing(tmp_path):
    async with open_world() as world:
        await stored(world, 2)

        def pass_time(event):
            if isinstance(event, TimeoutsMoved):
                world.clock.step(DAY)
                del world.rows[min(world.rows)]

        world.endpoint.parts.events.observe(pass_time)
        done = await drain(world, tmp_path / "undo")
        assert done.verified.ok
        assert (done.verified.delivered, done.verified.found.count) == (1, 1)


async def test_the_undo_file_is_its_owners_alone(tmp_path):
    async with open_world() as world:
        await stored(world, 1)
        await drain(world, tmp_path / "undo")
    assert (tmp_path / "undo").stat().st_mode & 0o077 == 0
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "undo").read_text().splitlines()]
    assert kinds == ["began", "moving", "added", "settled", "finished"]
