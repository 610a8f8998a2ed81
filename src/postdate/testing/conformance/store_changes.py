"""DelayedStore, writing: who wins, and what stays."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from postdate.errors import MessageTooLarge
from postdate.model.delayed import DelayedRow, Row, UnreadableRow
from postdate.ports import AddResult, LeaseLost, added_before
from postdate.testing.conformance.store import NOON, StoreHarness, delayed, pages, the_row

_LATER = NOON + timedelta(days=1)
#: Larger than any body that intake lets into a row.
_LARGE_BYTES = 1_000_000


async def _rows(harness: StoreHarness) -> list[Row]:
    return [row for page in await pages(harness.store, _LATER) for row in page]


class DelayedStoreChangesConformance:
    """What a DelayedStore must keep, and for whom it removes."""

    @pytest.fixture
    async def harness(self) -> StoreHarness:
        """Provide the store; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_the_same_message_twice_is_one_row_the_first(self, harness: StoreHarness) -> None:
        (first,) = await harness.store.add([delayed(body=b"first")])
        (second,) = await harness.store.add([delayed(body=b"second")])
        assert (first.created, second.created) == (True, False)
        assert (first.key, first.etag) == (second.key, second.etag)
        (row,) = await _rows(harness)
        assert isinstance(row, DelayedRow)
        assert row.delayed.message.body == b"first"

    async def test_the_same_message_twice_in_one_call_is_one_row(self, harness: StoreHarness) -> None:
        results = await harness.store.add([delayed(1), delayed(2), delayed(1)])
        assert [r.created for r in results] == [True, True, False]
        assert results[0].key == results[2].key
        assert len(await _rows(harness)) == 2

    async def test_of_two_adders_exactly_one_makes_each_row(self, harness: StoreHarness) -> None:
        messages = [delayed(n, NOON + (n % 3) * timedelta(hours=1)) for n in range(60)]
        ours, theirs = await asyncio.gather(harness.store.add(messages), harness.store.add(messages))
        assert all(a.created != b.created for a, b in zip(ours, theirs, strict=True))
        assert [a.etag for a in ours] == [b.etag for b in theirs]
        assert len(await _rows(harness)) == 60

    async def test_adding_again_leaves_attempts_as_they_are(self, harness: StoreHarness) -> None:
        (added,) = await harness.store.add([delayed()])
        row = await the_row(harness.store, added.key)
        etag = await harness.store.update(row, failure_count=4, next_attempt_at=_LATER)
        (again,) = await harness.store.add([delayed()])
        assert (again.created, again.etag) == (False, etag)
        after = (await the_row(harness.store, added.key)).delayed
        assert (after.failure_count, after.next_attempt_at) == (4, _LATER)

    async def test_another_time_or_destination_is_another_row(self, harness: StoreHarness) -> None:
        await harness.store.add(
            [
                delayed(),
                delayed(due_at=NOON + timedelta(microseconds=1)),
                delayed(destination="invoices"),
            ]
        )
        assert len(await _rows(harness)) == 3

    async def test_many_rows_over_many_partitions_are_added_in_one_call(self, harness: StoreHarness) -> None:
        messages = [delayed(n, NOON + (n % 5) * timedelta(hours=1)) for n in range(270)]
        results = await harness.store.add(messages)
        assert [r.key for r in results] == [m.key for m in messages]
        assert all(r.created for r in results)
        again = await harness.store.add(messages)
        assert not any(r.created for r in again)
        assert [r.etag for r in again] == [r.etag for r in results]
        assert len(await _rows(harness)) == 270

    async def test_existing_rows_in_a_batch_keep_no_other_out(self, harness: StoreHarness) -> None:
        await harness.store.add([delayed(n) for n in (3, 50, 97)])
        results = await harness.store.add([delayed(n) for n in range(100)])
        assert [n for n, r in enumerate(results) if not r.created] == [3, 50, 97]
        assert len(await _rows(harness)) == 100

    async def test_a_row_that_the_store_cannot_hold_keeps_no_other_out(self, harness: StoreHarness) -> None:
        """A store that knows no limit keeps such rows whole instead."""
        messages = [delayed(n, NOON + (n % 2) * timedelta(hours=1)) for n in range(120)]
        size = _LARGE_BYTES if harness.largest_body is None else harness.largest_body + 1
        for n in (0, 7, 70):
            messages[n] = delayed(n, messages[n].due_at, body=b"x" * size)
        if harness.largest_body is None:
            assert all(result.created for result in await harness.store.add(messages))
            for n in (0, 7, 70):
                row = await the_row(harness.store, messages[n].key)
                assert len(row.delayed.message.body) == size
            return
        with pytest.raises(MessageTooLarge) as refused:
            await harness.store.add(messages)
        outcomes = added_before(refused.value, len(messages))
        assert [n for n, o in enumerate(outcomes) if not isinstance(o, AddResult)] == [0, 7, 70]
        assert all(isinstance(outcomes[n], MessageTooLarge) for n in (0, 7, 70))
        stored = {row.key for row in await _rows(harness)}
        assert stored == {o.key for o in outcomes if isinstance(o, AddResult)}

    async def test_remove_answers_for_each_row_whether_this_call_removed_it(
        self, harness: StoreHarness
    ) -> None:
        messages = [delayed(n, NOON + (n % 3) * timedelta(hours=1)) for n in range(230)]
        await harness.store.add(messages)
        rows = await _rows(harness)
        gone = rows[5::20]
        assert all(await harness.store.remove(gone))
        answers = await harness.store.remove(rows)
        assert [n for n, ok in enumerate(answers) if not ok] == list(range(5, 230, 20))
        assert await _rows(harness) == []

    async def test_a_row_that_changed_is_not_removed_and_keeps_nobody_from_it(
        self, harness: StoreHarness
    ) -> None:
        await harness.store.add([delayed(n) for n in range(10)])
        rows = await _rows(harness)
        assert await harness.store.update(rows[4], failure_count=1, next_attempt_at=None)
        answers = await harness.store.remove(rows)
        assert [n for n, ok in enumerate(answers) if not ok] == [4]
        (left,) = await _rows(harness)
        assert left.key == rows[4].key

    async def test_of_two_removers_exactly_one_hears_true(self, harness: StoreHarness) -> None:
        await harness.store.add([delayed(n) for n in range(60)])
        rows = await _rows(harness)
        ours, theirs = await asyncio.gather(harness.store.remove(rows), harness.store.remove(rows))
        assert all(a != b for a, b in zip(ours, theirs, strict=True))

    async def test_the_same_row_twice_in_one_call_is_removed_once(self, harness: StoreHarness) -> None:
        await harness.store.add([delayed(1), delayed(2)])
        one, two = await _rows(harness)
        assert await harness.store.remove([one, two, one]) == [True, True, False]

    async def test_a_row_that_was_never_there_answers_false(self, harness: StoreHarness) -> None:
        await harness.store.add([delayed(1)])
        (row,) = await _rows(harness)
        assert isinstance(row, DelayedRow)
        assert await harness.store.remove([replace(row, key=delayed(2).key)]) == [False]
        assert len(await _rows(harness)) == 1

    async def test_a_row_that_was_removed_and_added_again_is_another_version(
        self, harness: StoreHarness
    ) -> None:
        (added,) = await harness.store.add([delayed()])
        stale = await the_row(harness.store, added.key)
        assert await harness.store.remove([stale]) == [True]
        (again,) = await harness.store.add([delayed()])
        assert again.created
        assert again.etag != stale.etag
        # Who handed the first one over must not take the second one away.
        assert await harness.store.remove([stale]) == [False]
        assert await harness.store.update(stale, failure_count=1, next_attempt_at=None) is None
        assert await harness.store.get(again.key) is not None

    async def test_of_an_update_and_a_removal_one_wins(self, harness: StoreHarness) -> None:
        await harness.store.add([delayed(n) for n in range(20)])
        for row in await _rows(harness):
            etag, (removed,) = await asyncio.gather(
                harness.store.update(row, failure_count=1, next_attempt_at=None), harness.store.remove([row])
            )
            assert removed is (etag is None)

    async def test_a_guard_that_says_no_keeps_every_row(self, harness: StoreHarness) -> None:
        await harness.store.add([delayed(n) for n in range(3)])
        with pytest.raises(LeaseLost):
            await harness.store.remove(await _rows(harness), lambda: False)
        assert len(await _rows(harness)) == 3

    async def test_removing_nothing_is_nothing(self, harness: StoreHarness) -> None:
        assert await harness.store.remove([]) == []
        assert await harness.store.add([]) == []

    async def test_update_writes_attempts_and_leaves_the_rest(self, harness: StoreHarness) -> None:
        (added,) = await harness.store.add([delayed(body=b"kept")])
        row = await the_row(harness.store, added.key)
        at = NOON + timedelta(seconds=30, microseconds=5)
        etag = await harness.store.update(row, failure_count=2, next_attempt_at=at)
        assert etag is not None
        assert etag != row.etag
        after = await the_row(harness.store, added.key)
        assert after.etag == etag
        assert after.delayed == replace(row.delayed, failure_count=2, next_attempt_at=at)

    async def test_attempts_of_a_row_that_cannot_be_read_are_kept_too(self, harness: StoreHarness) -> None:
        (added,) = await harness.store.add([delayed()])
        await harness.spoil(added.key)
        row = await harness.store.get(added.key)
        assert row is not None
        # It waits for its error queue, which is missing, say.
        etag = await harness.store.update(row, failure_count=1, next_attempt_at=_LATER)
        after = await harness.store.get(added.key)
        assert isinstance(after, UnreadableRow)
        assert (after.etag, after.failure_count, after.next_attempt_at) == (etag, 1, _LATER)

    async def test_update_can_clear_the_next_attempt(self, harness: StoreHarness) -> None:
        held = replace(delayed(), next_attempt_at=_LATER)
        (added,) = await harness.store.add([held])
        row = await the_row(harness.store, added.key)
        assert await harness.store.update(row, failure_count=0, next_attempt_at=None)
        after = await the_row(harness.store, added.key)
        # Cleared means: not held back any longer.
        assert after.delayed.next_attempt_at is None or after.delayed.next_attempt_at <= NOON

    async def test_update_of_a_changed_or_missing_row_answers_none(self, harness: StoreHarness) -> None:
        (added,) = await harness.store.add([delayed()])
        row = await the_row(harness.store, added.key)
        assert await harness.store.update(row, failure_count=1, next_attempt_at=None)
        assert await harness.store.update(row, failure_count=9, next_attempt_at=None) is None
        current = await the_row(harness.store, added.key)
        assert current.delayed.failure_count == 1
        assert await harness.store.remove([current]) == [True]
        assert await harness.store.update(current, failure_count=9, next_attempt_at=None) is None
        assert await harness.store.get(added.key) is None
