"""Each step of a part, broken off and gone on with, or given back; what an old manager sees meanwhile."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from migrate_cases import FIRST, SqlStore, azure_timeout, ids, on_parts, waiting

from postdate.errors import PostdateError, UsageError
from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage
from postdate.model.message import Message
from postdate.spark.migrating import AzureSource, SqlSource
from postdate.spark.migrating.documents import Phase

#: Where a task ends: before or after which call, and at its how many-th.
PLACES = [
    ("old.take", 1, True),
    ("old.take", 2, True),
    ("documents.put_part", 1, False),
    ("documents.put_part", 1, True),
    ("store.add", 1, True),
    ("documents.put_moved", 1, True),
    ("documents.put_part", 2, True),
    ("old.drop", 1, True),
]


@pytest.fixture
def settings(postdate_settings, reference):
    """`reference` has set the endpoint up."""
    name = f"T{postdate_settings.endpoint[-8:]}"
    return postdate_settings.model_copy(
        update={"timeout_table": name, "timeout_state_container": f"{name}-states".lower()}
    )


class Sqlite:
    """Timeouts in SQLite: two parts, the first of two batches."""

    count, rows = 250, 150
    #: Where the first part is completed.
    completed = PLACES[6:]

    def __init__(self, settings, folder):
        self.store = SqlStore(SqlSource("sqlite", str(folder / "old.db")), settings.endpoint)
        self.source = self.store.source
        self._settings = settings

    def fill(self):
        self.store.create()
        self.store.fill(self.count)

    def content(self):
        return self.store.rows()

    def message_ids(self):
        return [json.loads(row[5])[h.MESSAGE_ID] for row in self.content()]


class Azure:
    """Timeouts in Azure tables: two parts of one hour."""

    count, rows = 12, 6
    completed = (*PLACES[6:], ("old.take", 2, True))
    source = AzureSource()

    def __init__(self, settings, folder):
        self._settings = settings

    def fill(self):
        async def put(worker, found):
            timeouts = worker.ground.backend.timeouts
            await timeouts.create()
            for n in range(self.count):
                await timeouts.add(azure_timeout(worker.ground.endpoint, n, FIRST + n * timedelta(seconds=7)))

        on_parts(self._settings, self.source, "fill", put)

    def content(self):
        async def read(worker, found):
            return await azure_rows_of(worker)

        return on_parts(self._settings, self.source, "look", read)

    def message_ids(self):
        mains = [row for row in self.content() if "RowKey" in row and not row["RowKey"]]
        return [json.loads(row["Headers"])[h.MESSAGE_ID] for row in mains]


async def azure_rows_of(worker):
    """All rows of the table, and all blobs."""
    timeouts = worker.ground.backend.timeouts
    rows = [row async for page in timeouts._pages("") for row in page]
    names = [blob.name async for blob in timeouts._states.list_blobs()]
    bodies = [{"blob": name, "body": await timeouts._state(name, name)} for name in sorted(names)]
    return sorted(rows, key=lambda row: (row["PartitionKey"], row["RowKey"])) + bodies


@pytest.fixture
def azure(settings, tmp_path):
    return Azure(settings, tmp_path)


@pytest.fixture(params=[Sqlite, Azure], ids=["sqlite", "azure"])
def old(request, settings, tmp_path):
    return request.param(settings, tmp_path)


class Killed(BaseException):
    """As a kill would end it."""


class Breaking:
    """Calls through, and ends at the n-th call of one method: before it is made, or after."""

    def __init__(self, inner, method, *, at=1, after=False):
        self._inner, self._method, self._left, self._after = inner, method, at, after

    def __getattr__(self, name):
        member = getattr(self._inner, name)
        if name != self._method:
            return member

        async def call(*args, **more):
            self._left -= 1
            is_last = not self._left
            if is_last and not self._after:
                raise Killed
            answer = await member(*args, **more)
            if is_last:
                raise Killed
            return answer

        return call


class Backend:
    """A backend with another store."""

    def __init__(self, inner, store):
        self._inner, self.store = inner, store

    def __getattr__(self, name):
        return getattr(self._inner, name)


def broken(worker, where, at, after):
    """The same worker, a part of which breaks."""
    part, _, method = where.partition(".")
    if part == "timeouts":
        timeouts = worker.old._timeouts
        setattr(timeouts, method, getattr(Breaking(timeouts, method, at=at, after=after), method))
        return worker
    if part == "store":
        ground = worker.ground
        store = Breaking(ground.backend.store, method, at=at, after=after)
        return replace(worker, ground=replace(ground, backend=Backend(ground.backend, store)))
    return replace(worker, **{part: Breaking(getattr(worker, part), method, at=at, after=after)})


async def migrate_all(worker, found):
    return [await worker.migrate(n, within) for n, within in enumerate(found)]


def broken_off(settings, old, place):
    """Begins, and is killed there; the parts."""
    planned = []

    async def work(worker, found):
        planned.extend(found)
        await migrate_all(broken(worker, *place), found)

    with pytest.raises((Killed, BaseExceptionGroup)):
        on_parts(settings, old.source, "one", work, rows=old.rows)
    assert len(planned) >= 2
    return planned


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place)))
def test_broken_off_anywhere_it_goes_on_and_ends_with_all_rows(settings, old, place, on_endpoint):
    old.fill()
    planned = broken_off(settings, old, place)

    async def again(worker, found):
        return await migrate_all(worker, planned)

    done = on_parts(settings, old.source, "one", again)
    assert {one.phase for one in done} == {Phase.COMPLETED}
    assert sum(one.moved for one in done) == old.count
    assert all((one.expected, one.expected_sum) == (one.found, one.found_sum) for one in done)
    assert on_endpoint(waiting) == ids(old.count)
    assert old.content() == []


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place)))
def test_given_up_anywhere_exactly_what_is_not_completed_is_back(settings, old, place, on_endpoint):
    old.fill()
    before = old.content()
    planned = broken_off(settings, old, place)

    async def abort(worker, found):
        await worker.documents.give_up()
        return [await worker.give_back(n) for n in range(len(planned))]

    done = on_parts(settings, old.source, "one", abort)
    after, rows = old.content(), on_endpoint(waiting)
    completed = sum(one.moved for one in done if one.phase is Phase.COMPLETED)
    assert bool(completed) == (place in old.completed)
    assert len(rows) == completed
    assert sorted(rows + old.message_ids()) == ids(old.count)
    # All that is back is as it was, to the last column.
    assert [one for one in after if one not in before] == []
    assert completed or after == before
    # And once more changes nothing.
    again = on_parts(settings, old.source, "one", abort)
    assert (old.content(), on_endpoint(waiting)) == (after, rows)
    assert [one.given_back for one in again] == [one.given_back for one in done]


@pytest.mark.parametrize("after", [False, True])
def test_broken_off_while_timeouts_are_removed_all_of_them_come(settings, azure, after, on_endpoint):
    azure.fill()
    planned = broken_off(settings, azure, ("timeouts.remove_main", 3, after))

    async def again(worker, found):
        return await migrate_all(worker, planned)

    done = on_parts(settings, azure.source, "one", again)
    assert (sum(one.moved for one in done), sum(one.doubtful for one in done)) == (12, 0)
    assert on_endpoint(waiting) == ids(12)
    assert azure.content() == []


def test_broken_off_while_timeouts_are_removed_all_of_them_can_be_given_back(settings, azure):
    azure.fill()
    before = azure.content()
    broken_off(settings, azure, ("timeouts.remove_main", 3, True))
    assert azure.content() != before

    async def abort(worker, found):
        return await worker.give_back(0)

    on_parts(settings, azure.source, "one", abort)
    assert azure.content() == before


def test_how_far_it_came_is_told(settings, old):
    """The tool never stores that a batch is staged."""
    old.fill()
    broken_off(settings, old, ("store.add", 1, False))

    async def look(worker, found):
        return await worker.documents.part(0)

    document = on_parts(settings, old.source, "one", look)
    assert (document.phase, document.staged) == (Phase.STAGED, old.rows)


def test_nothing_more_is_taken_once_it_is_given_up(settings, old):
    old.fill()
    before = old.content()

    async def late(worker, found):
        await worker.documents.give_up()
        await worker.migrate(0, found[0])

    with pytest.raises(UsageError, match="'one' was given up"):
        on_parts(settings, old.source, "one", late, rows=old.rows)
    assert old.content() == before


def test_a_row_that_is_another_message_stays_and_the_timeout_is_back(settings, old, on_endpoint):
    old.fill()

    async def work(worker, found):
        other = DelayedMessage(Message("m000001", {}, b"other"), "target", FIRST + timedelta(seconds=7))
        await worker.ground.backend.store.add([other])
        return [await worker.migrate(n, within) for n, within in enumerate(found)]

    done = on_parts(settings, old.source, "one", work, rows=old.rows)
    assert (sum(one.moved for one in done), sum(one.refused for one in done)) == (old.count - 1, 1)
    assert [reason for one in done for _, reason in one.examples] == [
        "another message with id 'm000001' waits for the same destination and due time"
    ]
    assert old.message_ids() == ["m000001"]
    assert on_endpoint(waiting) == ids(old.count)


def test_a_row_that_somebody_removes_meanwhile_is_missed_and_made_anew(settings, old, on_endpoint):
    old.fill()

    class Losing(Breaking):
        async def add(self, messages):
            added = await self._inner.add(messages)
            row = await self._inner.get(added[0].key)
            await self._inner.remove([row])
            return added

    async def work(worker, found):
        ground = worker.ground
        lossy = Losing(ground.backend.store, "none")
        careless = replace(worker, ground=replace(ground, backend=Backend(ground.backend, lossy)))
        with pytest.raises(PostdateError, match=r"part 0: \d of \d+ rows are not there"):
            await migrate_all(careless, found)
        return await migrate_all(worker, found)

    done = on_parts(settings, old.source, "one", work, rows=old.rows)
    assert sum(one.found for one in done) == old.count
    assert on_endpoint(waiting) == ids(old.count)
