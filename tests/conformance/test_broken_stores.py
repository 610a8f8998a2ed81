"""The suite is worth something: a store that breaks the contract fails the test that guards it."""

import inspect
from datetime import timedelta

import pytest

from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.errors import MessageTooLarge
from postdate.model.limits import BINARY_PROPERTY_BYTES
from postdate.ports import AddResult
from postdate.testing.clock import VirtualClock
from postdate.testing.conformance import (
    DelayedStoreChangesConformance,
    DelayedStoreConformance,
    StoreHarness,
)


class Wrapper:
    """A store that does everything as the good one inside it."""

    def __init__(self, good):
        self.good = good

    def __getattr__(self, name):
        return getattr(self.good, name)


class InsertsAgain(Wrapper):
    """Says of every message that this call stored it."""

    async def add(self, messages):
        return [AddResult(r.key, r.etag, created=True) for r in await self.good.add(messages)]


class RefusesAllForOne(Wrapper):
    """Lets one row that can't be stored keep the others out, as a transaction does by itself."""

    async def add(self, messages):
        if any(len(message.message.body) > BINARY_PROPERTY_BYTES for message in messages):
            raise MessageTooLarge("too large")
        return await self.good.add(messages)


class StopsAtTheFirstPage(Wrapper):
    async def due(self, until):
        async for page in self.good.due(until):
            yield page
            return


class StopsAtAnEmptyPage(Wrapper):
    """Takes an empty page for the end, as a reader does that ignores the continuation."""

    async def due(self, until):
        async for page in self._with_empty_pages(until):
            if not page:
                return
            yield page

    async def _with_empty_pages(self, until):
        yield []
        async for page in self.good.due(until):
            yield page


class ForgetsTheOrder(Wrapper):
    async def due(self, until):
        async for page in self.good.due(until):
            yield list(reversed(page))


class IsEarly(Wrapper):
    def due(self, until):
        return self.good.due(until + timedelta(seconds=1))


class RemovesWhatChanged(Wrapper):
    """Deletes by key, whatever the version."""

    async def remove(self, rows, guard=None):
        current = [await self.good.get(row.key) or row for row in rows]
        return await self.good.remove(current, guard)


class ClaimsEveryRemoval(Wrapper):
    async def remove(self, rows, guard=None):
        return [True for _ in await self.good.remove(rows, guard)]


class GivesUpAtTheFirstMissingRow(Wrapper):
    """Lets one row that is gone fail its whole batch, as a transaction does by itself."""

    async def remove(self, rows, guard=None):
        if None in [await self.good.get(row.key) for row in rows]:
            return [False] * len(rows)
        return await self.good.remove(rows, guard)


class IgnoresTheGuard(Wrapper):
    async def remove(self, rows, guard=None):
        del guard
        return await self.good.remove(rows)


class UpdatesWhatChanged(Wrapper):
    async def update(self, row, *, failure_count, next_attempt_at):
        current = await self.good.get(row.key) or row
        return await self.good.update(current, failure_count=failure_count, next_attempt_at=next_attempt_at)


class ForgetsAttempts(Wrapper):
    async def update(self, row, *, failure_count, next_attempt_at):
        del failure_count
        return await self.good.update(row, failure_count=0, next_attempt_at=next_attempt_at)


class HidesAMissingTable(Wrapper):
    async def next_due(self, after=None):
        try:
            return await self.good.next_due(after)
        except Exception:
            return None


async def failures(kind):
    """Names of the tests of the suite that a store of this kind fails."""
    failed = set()
    for suite in (DelayedStoreConformance, DelayedStoreChangesConformance):
        for name, test in inspect.getmembers(suite, inspect.iscoroutinefunction):
            if not name.startswith("test_"):
                continue
            account, clock = MemoryAccount(), VirtualClock()
            good = MemoryBackend(account, "delays", clock, frozenset()).store
            await good.create()

            async def insert(properties, good=good):
                good.insert_raw(properties)

            absent = MemoryBackend(account, "absent", clock, frozenset()).store
            try:
                await test(suite(), StoreHarness(kind(good), kind(absent), insert))
            except (Exception, pytest.fail.Exception):
                failed.add(name)
    return failed


async def test_the_good_store_fails_nothing():
    assert await failures(Wrapper) == set()


@pytest.mark.parametrize(
    ("kind", "guard"),
    [
        (InsertsAgain, "test_the_same_message_twice_is_one_row_the_first"),
        (RefusesAllForOne, "test_a_row_that_the_store_cannot_hold_keeps_no_other_out"),
        (StopsAtTheFirstPage, "test_more_than_a_page_is_read_whole_once_and_in_order"),
        (StopsAtAnEmptyPage, "test_a_row_is_due_at_its_instant_and_not_a_microsecond_before"),
        (ForgetsTheOrder, "test_rows_come_in_due_order_across_partitions"),
        (IsEarly, "test_a_row_is_due_at_its_instant_and_not_a_microsecond_before"),
        (RemovesWhatChanged, "test_a_row_that_changed_is_not_removed_and_keeps_nobody_from_it"),
        (ClaimsEveryRemoval, "test_of_two_removers_exactly_one_hears_true"),
        (GivesUpAtTheFirstMissingRow, "test_remove_answers_for_each_row_whether_this_call_removed_it"),
        (IgnoresTheGuard, "test_a_guard_that_says_no_keeps_every_row"),
        (UpdatesWhatChanged, "test_update_of_a_changed_or_missing_row_answers_none"),
        (ForgetsAttempts, "test_update_writes_attempts_and_leaves_the_rest"),
        (HidesAMissingTable, "test_a_missing_table_is_told_with_the_way_out"),
    ],
)
async def test_a_store_that_breaks_the_contract_fails(kind, guard):
    assert guard in await failures(kind)
