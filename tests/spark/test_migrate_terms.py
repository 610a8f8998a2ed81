"""A call that was frozen while another one continued its run, or gave it up, changes nothing afterwards."""

import asyncio
from contextvars import Context
from dataclasses import replace

import pytest
from migrate_cases import ids, on_parts, waiting
from test_migrate_phases import Backend, migrate_all, old, settings  # noqa: F401

from postdate import Endpoint
from postdate.clock import SystemClock
from postdate.errors import UsageError
from postdate.spark.migrating.documents import Documents, Ending, PartDocument, Phase
from postdate.spark.migrating.fence import Fence
from postdate.spark.migrating.job import _Job
from postdate.spark.migrating.opening import old_timeouts
from postdate.spark.migrating.parts import Worker
from postdate.spark.migrating.sources import AzureSource, Chosen
from postdate.spark.tasks import azure_backend

#: Before which call the process is frozen, and at its how many-th.
PLACES = [("old.take", 2), ("documents.put_part", 1), ("store.add", 1)]


class Thawed(SystemClock):
    """Of a process that was frozen for so long."""

    frozen_seconds = 0.0

    def monotonic(self):
        return super().monotonic() + self.frozen_seconds


class Freezing:
    """Calls through, and lets something happen before the n-th call of one method."""

    def __init__(self, inner, method, at, meanwhile):
        self._inner, self._method, self._left, self._meanwhile = inner, method, at, meanwhile

    def __getattr__(self, name):
        member = getattr(self._inner, name)
        if name != self._method:
            return member

        async def call(*args, **more):
            self._left -= 1
            if not self._left:
                await self._meanwhile()
            return await member(*args, **more)

        return call


def freezing(worker, where, at, meanwhile):
    part, _, method = where.partition(".")
    if part == "store":
        ground = worker.ground
        store = Freezing(ground.backend.store, method, at, meanwhile)
        return replace(worker, ground=replace(ground, backend=Backend(ground.backend, store)))
    return replace(worker, **{part: Freezing(getattr(worker, part), method, at, meanwhile)})


async def continued(worker, found):
    await migrate_all(worker, found)


async def given_up(worker, found):
    await worker.documents.give_up()
    for number in range(len(found)):
        await worker.give_back(number)


async def as_another_call(settings, source, work, found):  # noqa: F811
    """What a call does that comes later; the one that is frozen does nothing meanwhile."""
    async with Endpoint(settings) as endpoint:
        documents = Documents(azure_backend(endpoint).bulk, "one")
        fence = Fence(documents, await documents.take_term(), SystemClock())
        async with fence.held(), old_timeouts(endpoint, source, documents, fence) as opened:
            await work(Worker(endpoint.parts.migration.ground, opened, documents, Chosen(), fence), found)


@pytest.mark.parametrize("other", [continued, given_up])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place)))
def test_who_was_frozen_changes_nothing_afterwards(settings, old, place, other, on_endpoint):  # noqa: F811
    old.fill()
    seen = []

    def all_there_is():
        return on_endpoint(waiting), old.content()

    async def work(worker, found):
        clock = Thawed()
        fence = Fence(worker.documents, await worker.documents.take_term(), clock)
        worker.old._fence = fence

        async def others():
            await as_another_call(settings, old.source, other, found)
            seen.append(await asyncio.to_thread(all_there_is))

        async def meanwhile():
            # Of their own: not within what this call may do.
            await asyncio.create_task(others(), context=Context())
            clock.frozen_seconds += 60

        async with fence.held():
            await migrate_all(freezing(replace(worker, fence=fence), *place, meanwhile), found)

    with pytest.raises(UsageError, match="another call works on it"):
        on_parts(settings, old.source, "one", work, rows=old.rows)
    (before,) = seen
    assert all_there_is() == before
    rows, left = before
    assert sorted(rows + old.message_ids()) == ids(old.count)
    assert other is given_up or left == []


def test_a_driver_that_was_overtaken_ends_and_gives_up_nothing(settings, reference):  # noqa: F811
    class Awake(SystemClock):
        async def sleep(self, seconds):
            self.slept = seconds

    async def calls():
        first, later = (_Job(None, reference, "one", None) for _ in range(2))
        later._clock = Awake()
        mine = await first.lead(AzureSource(), Chosen())
        theirs = await later.lead(AzureSource(), Chosen())
        assert (mine.term, theirs.term) == (1, 2)
        assert later._clock.slept > 0
        for late in (
            first.end(mine, Ending(Phase.COMPLETED, PartDocument())),
            first.given_up(mine),
            first.resumed(mine),
        ):
            with pytest.raises(UsageError, match="another call works on it"):
                await late
        assert await first.ending() is None
        assert await later.resumed(theirs) is None
        await later.end(theirs, Ending(Phase.COMPLETED, PartDocument()))
        return await later.given_up(await later.lead(AzureSource(), Chosen()))

    ending = asyncio.run(calls())
    assert ending is not None
    assert ending.phase is Phase.COMPLETED
