"""What is known to go wrong when timeouts are migrated (nservicebus-azure, 5.4), and does not go wrong here."""

import base64
import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from drain_cases import DAY, OldManager, drain, ids, left, message_ids, stored, timeout, undo, waiting
from engine_cases import open_world

from postdate.errors import InvalidDueTime
from postdate.events import TimeoutsMoved
from postdate.legacy.ground import Selection
from postdate.legacy.undo_lines import Added, read_lines
from postdate.model import headers as h
from postdate.model.durations import parse_instant_text

ALL = Selection(margin=timedelta(0))


def golden_rows(legacy):
    """The rows as a store holds them: dates as dates."""
    for row in legacy["rows"]:
        plain = {name: value for name, value in row.items() if not name.endswith("@odata.type")}
        yield {**plain, "Time": datetime.fromisoformat(plain["Time"])}


async def put_golden(world, legacy):
    await world.backend.timeouts.create()
    for row in golden_rows(legacy):
        world.backend.timeouts.insert_raw(row)
    world.backend.timeouts.insert_state(legacy["blob_name"], base64.b64decode(legacy["blob_content_base64"]))
    await world.endpoint.setup("contoso-orders")


async def only_row(world):
    (row,) = [row async for row in world.backend.store.upcoming()]
    return row


async def test_rows_go_to_the_table_of_the_endpoints_real_name(golden, tmp_path):
    """Of an escaped name, the tool looks for another table."""
    trap = golden["legacy_migration_to_asq"]["sqlp_escaped_name_trap"]
    async with open_world(endpoint=trap["real_endpoint"]) as world:
        await put_golden(world, golden["legacy_azure_table_timeout"])
        await drain(world, tmp_path / "undo", ALL)
        assert world.endpoint.settings.table_name == trap["table_the_endpoint_uses"]
        assert len(world.account.tables[trap["table_the_endpoint_uses"]].rows) == 1
        assert trap["table_the_tool_looks_for"] not in world.account.tables


async def test_the_message_id_is_the_original_one(golden, tmp_path):
    legacy, final = golden["legacy_azure_table_timeout"], golden["legacy_migration_to_asq"]["final_row"]
    original = json.loads(legacy["rows"][0]["Headers"])[h.MESSAGE_ID]
    async with open_world(endpoint="Contoso.Orders") as world:
        await put_golden(world, legacy)
        await drain(world, tmp_path / "undo", ALL)
        row = await only_row(world)
        assert row.delayed.message.message_id == original != final["MessageId"]
        # All else is what the tool would have written.
        assert row.key.partition == final["PartitionKey"]
        assert row.delayed.destination == final["Destination"]
        assert row.delayed.message.body == base64.b64decode(final["Body"])
        assert row.delayed.due_at == datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)


async def test_headers_of_the_timeout_manager_are_not_kept(golden, tmp_path):
    legacy = golden["legacy_azure_table_timeout"]
    before = json.loads(legacy["rows"][0]["Headers"])
    async with open_world(endpoint="Contoso.Orders") as world:
        await put_golden(world, legacy)
        await drain(world, tmp_path / "undo", ALL)
        after = (await only_row(world)).delayed.message.headers
        assert set(before) - set(after) == {h.TIMEOUT_EXPIRE, h.TIMEOUT_DESTINATION}
        assert after == {name: before[name] for name in after}


async def test_one_without_a_message_id_gets_that_of_the_timeout(tmp_path):
    async with open_world() as world:
        (one,) = await stored(world, 1, headers={"Note": "x"})
        await drain(world, tmp_path / "undo")
        assert await waiting(world) == [one.id]


@pytest.fixture
def new_york(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def test_due_times_do_not_shift_with_the_zone_of_the_host(new_york, tmp_path):
    assert datetime(2026, 3, 1, tzinfo=UTC).astimezone().utcoffset() == timedelta(hours=-5)
    async with open_world() as world:
        (one,) = await stored(world, 1)
        await drain(world, tmp_path / "undo")
        row = await only_row(world)
        assert row.delayed.due_at == one.due_at
        assert row.key.row.startswith("20260302120000_987654_")
        assert (await undo(world, tmp_path / "undo")).back == 1
        assert (await world.backend.timeouts.get(one.id)).due_at == one.due_at


async def test_the_cut_off_is_an_instant_and_not_a_text_or_a_time_of_day(tmp_path):
    async with open_world() as world:
        timeouts = await stored(world, 3)
        edge = timeouts[1].due_at
        # The same instant in another zone, where its text and its time of day are others.
        elsewhere = edge.astimezone(timezone(timedelta(hours=-9)))
        done = await drain(world, tmp_path / "undo", Selection(elsewhere))
        assert done.moved.count == 2
        assert await left(world) == ids(timeouts[:1])
        # And the same time of day a month earlier is another cut-off.
        assert (await drain(world, tmp_path / "undo", Selection(edge - 30 * DAY))).moved.count == 1


def test_a_cut_off_without_a_zone_is_refused():
    with pytest.raises(InvalidDueTime, match="has no time zone"):
        parse_instant_text("2026-03-01T12:00:00")


async def test_an_empty_body_is_moved(golden, tmp_path):
    legacy = golden["legacy_azure_table_timeout"]
    for address in ("", None):
        async with open_world(endpoint="Contoso.Orders") as world:
            await put_golden(world, legacy)
            main = next(row for row in golden_rows(legacy) if not row["RowKey"])
            world.backend.timeouts.insert_raw({**main, "StateAddress": address})
            done = await drain(world, tmp_path / f"undo{address}", ALL)
            assert done.verified.ok
            assert (await only_row(world)).delayed.message.body == b""


async def test_all_rows_of_a_timeout_go_so_that_no_manager_finds_it_again(golden, tmp_path):
    """The tool hides time rows only: a host with a new name finds the saga rows."""
    legacy = golden["legacy_azure_table_timeout"]
    async with open_world(endpoint="Contoso.Orders") as world:
        await put_golden(world, legacy)
        done = await drain(world, tmp_path / "undo", ALL)
        slot = world.account.timeouts[legacy["tables"]["timeouts"]]
        assert (done.moved.count, slot.rows, slot.states) == (1, {}, {})


async def test_one_that_is_announced_already_is_gone_for_the_dispatcher_too(tmp_path):
    """Due by now, found by a poll, and its id lies in the dispatcher's queue."""
    async with open_world() as world:
        (one,) = await stored(world, 1, after=-DAY)
        await drain(world, tmp_path / "undo", ALL)
        assert await world.backend.timeouts.get(one.id) is None


async def test_more_than_a_full_batch_of_leftovers_is_moved_whole(tmp_path):
    """The tool's purge loses one of each hundred leftovers, and never knows that they were staged."""
    async with open_world() as world:
        timeouts = await stored(world, 250)
        stop = _Break(world, after=1)
        with pytest.raises(BaseExceptionGroup):
            await drain(world, tmp_path / "undo")
        stop.off()
        assert len(await waiting(world)) == 200
        assert len(await left(world)) == 150
        assert sum(len(line.ids) for line in read_lines(tmp_path / "undo") if isinstance(line, Added)) == 200
        done = await drain(world, tmp_path / "undo")
        assert await waiting(world) == message_ids(timeouts)
        assert await left(world) == []
        assert done.verified.ok
        assert (done.verified.found.count, done.doubtful) == (250, [])


class _Break:
    """Ends a drain between adding and removing, after so many whole batches."""

    class Broken(BaseException):
        """As a kill would."""

    def __init__(self, world, *, after):
        self._moved = 0
        self._after = after
        self._world = world
        self._inner = world.backend.timeouts
        world.backend.timeouts = self
        world.endpoint.parts.events.observe(self._hear)

    def _hear(self, event):
        self._moved += isinstance(event, TimeoutsMoved)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def remove(self, timeout_id):
        if self._moved >= self._after:
            raise _Break.Broken
        return await self._inner.remove(timeout_id)

    def off(self):
        self._world.backend.timeouts = self._inner


async def test_undo_does_not_bring_back_what_was_delivered(tmp_path):
    """The tool's abort gives back completed batches too, and they fire twice."""
    async with open_world() as world:
        timeouts = await stored(world, 3)
        await drain(world, tmp_path / "undo")
        await world.clock.advance(timeouts[0].due_at - world.clock.now() + timedelta(seconds=1))
        await world.endpoint.deliver_due()
        assert [m.message_id for m in await world.take("orders")] == ["m00000"]
        done = await undo(world, tmp_path / "undo")
        assert done.delivered == timeouts[:1]
        # The second is in a leader's reach.
        assert done.too_late == timeouts[1:2]
        assert await left(world) == ids(timeouts[2:])
        manager = OldManager(world, ahead=2 * DAY)
        await manager.poll()
        assert manager.released == ["m00002"]


async def test_undo_gives_back_whatever_its_age(tmp_path):
    """The tool leaves rows hidden that are due far in the past or future."""
    async with open_world() as world:
        await stored(world, 1, after=3650 * DAY)
        far = replace(timeout(world, 5, after=7000 * DAY), saga_id=None)
        await world.backend.timeouts.add(far)
        await drain(world, tmp_path / "undo")
        assert (await undo(world, tmp_path / "undo")).back == 2
        assert len(await left(world)) == 2
        assert world.rows == {}
