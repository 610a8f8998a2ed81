"""The suite of timeout stores is worth something: a store that breaks the contract fails the test that guards it."""

import inspect
from datetime import timedelta

import pytest

from postdate.backends.memory import MemoryAccount
from postdate.backends.memory.timeouts import MemoryTimeouts
from postdate.model.legacy_timeout import TimeoutPlaces
from postdate.model.limits import PAGE_ROWS
from postdate.testing.conformance import TimeoutHarness, TimeoutStoreConformance


class Wrapper:
    """A store that does everything as the good one inside it."""

    def __init__(self, good):
        self.good = good

    def __getattr__(self, name):
        return getattr(self.good, name)


class TakesTheFirstThousandBeforeSorting(Wrapper):
    """As older endpoints do."""

    async def due(self, until, *, everywhere=False):
        found = [one async for page in self.good.due(until, everywhere=everywhere) for one in page]
        by_key = sorted(found, key=lambda one: (one.partition, one.id))[:PAGE_ROWS]
        yield sorted(by_key, key=lambda one: one.due_at)


class MovesForwardOnly(Wrapper):
    """Asks from the latest due time that it has seen, as older endpoints do."""

    latest = None

    async def due(self, until, *, everywhere=False):
        async for page in self.good.due(until, everywhere=everywhere):
            new = [one for one in page if self.latest is None or one.due_at > self.latest]
            if new:
                self.latest = new[-1].due_at
                yield new


class IsEarly(Wrapper):
    def due(self, until, *, everywhere=False):
        return self.good.due(until + timedelta(seconds=1), everywhere=everywhere)


class KnowsOneCalendar(Wrapper):
    def due(self, until, *, everywhere=False):
        return self.good.due(until)


class Replaces(Wrapper):
    """Writes over what is there."""

    async def add(self, timeout):
        await self.good.remove(timeout.id)
        await self.good.add(timeout)


class ClaimsEveryRemoval(Wrapper):
    async def remove(self, timeout_id):
        await self.good.remove(timeout_id)
        return True


class LeavesTheBody(Wrapper):
    async def remove(self, timeout_id):
        timeout = await self.good.get(timeout_id)
        removed = await self.good.remove(timeout_id)
        if timeout is not None:
            self.good.insert_state(timeout_id, timeout.body)
        return removed


class CleansUpWhatIsWhole(Wrapper):
    async def clean_up(self, left):
        return await self.good.clean_up(left) or await self.good.remove(left.id)


class CountsAllEndpoints(Wrapper):
    async def count(self, limit=None):
        return len(self.good._slot().rows)


async def failures(kind):
    """Names of the tests of the suite that a store of this kind fails."""
    failed = set()
    for name, test in inspect.getmembers(TimeoutStoreConformance, inspect.iscoroutinefunction):
        if not name.startswith("test_"):
            continue
        slots = MemoryAccount().timeouts

        def store(owner, table, slots=slots):
            return MemoryTimeouts(slots, TimeoutPlaces(owner, table=table))

        good = store("Contoso.Orders", "timeouts")
        await good.create()

        async def insert(rows, good=good):
            for row in rows:
                good.insert_raw(row)

        harness = TimeoutHarness(
            kind(good),
            kind(store("Contoso.Billing", "timeouts")),
            kind(store("Contoso.Orders", "absent")),
            "Contoso.Orders",
            insert,
        )
        try:
            await test(TimeoutStoreConformance(), harness)
        except (Exception, pytest.fail.Exception):
            failed.add(name)
    return failed


async def test_the_good_store_fails_nothing():
    assert await failures(Wrapper) == set()


@pytest.mark.parametrize(
    ("kind", "guard"),
    [
        (
            TakesTheFirstThousandBeforeSorting,
            "test_more_than_a_page_of_one_partition_is_found_whole_and_in_order",
        ),
        (MovesForwardOnly, "test_one_stored_late_with_an_early_due_time_is_found"),
        (IsEarly, "test_a_timeout_is_due_at_its_instant_and_not_a_microsecond_before"),
        (KnowsOneCalendar, "test_one_filed_under_another_calendar_is_found_everywhere"),
        (Replaces, "test_the_same_id_twice_is_one_the_first"),
        (ClaimsEveryRemoval, "test_of_two_removers_exactly_one_hears_true"),
        (LeavesTheBody, "test_removing_leaves_nothing_behind"),
        (CleansUpWhatIsWhole, "test_what_an_interruption_left_is_cleaned_up_and_nothing_else"),
        (CountsAllEndpoints, "test_endpoints_do_not_see_each_others"),
    ],
)
async def test_a_store_that_breaks_the_contract_fails(kind, guard):
    assert guard in await failures(kind)
