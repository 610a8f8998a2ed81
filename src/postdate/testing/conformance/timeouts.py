"""TimeoutStore: what older endpoints left is found at its time, whole, and removed once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postdate.errors import NotProvisioned, PoisonMessage
from postdate.model.date_patterns import partition_scope
from postdate.model.legacy_rows import HEADERS, OWNER, Properties, encode_timeout
from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout, UnreadableTimeout
from postdate.model.limits import PAGE_ROWS
from postdate.ports import TimeoutStore

_DUE = datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_SAGA = "7c1f3b52-9a40-4c43-8b7e-b3f2007a11c6"
_SCOPE = partition_scope("yyyyMMddHH")


@dataclass(frozen=True)
class TimeoutHarness:
    """Timeout stores under test, of the usual partition scope."""

    #: Empty, created.
    store: TimeoutStore
    #: The same table, for another endpoint.
    other: TimeoutStore
    #: One whose table does not exist.
    absent: TimeoutStore
    #: The endpoint's name.
    owner: str
    #: Puts rows of one partition into the table, as another program would.
    insert: Callable[[Sequence[Properties]], Awaitable[None]]

    def timeout(self, number: int, due_at: datetime = _DUE, **more: Any) -> LegacyTimeout:
        """A timeout of this endpoint."""
        made = LegacyTimeout(
            id=f"3f0d7f3e-6a1c-4f0b-9a55-{number:012d}",
            destination="orders",
            due_at=due_at,
            headers={"NServiceBus.MessageId": f"m{number}", "Größe": 'café "XL" \u2028', "Nothing": None},
            body=b"\x00body",
            owner=self.owner,
        )
        return replace(made, **more)


async def _due(store: TimeoutStore, until: datetime, *, everywhere: bool = False) -> list[DueTimeout]:
    return [one async for page in store.due(until, everywhere=everywhere) for one in page]


async def _ids(store: TimeoutStore, until: datetime, *, everywhere: bool = False) -> list[str]:
    return [one.id for one in await _due(store, until, everywhere=everywhere)]


class TimeoutStoreConformance:
    """What a TimeoutStore must do."""

    @pytest.fixture
    async def harness(self) -> TimeoutHarness:
        """Provide the stores; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_a_timeout_comes_back_whole(self, harness: TimeoutHarness) -> None:
        one, two = harness.timeout(1, saga_id=_SAGA), replace(harness.timeout(2), body=b"")
        await harness.store.add(one)
        await harness.store.add(two)
        assert await harness.store.get(one.id) == one
        assert await harness.store.get(two.id) == two
        assert await harness.store.get("3f0d7f3e-0000-4f0b-9a55-000000000000") is None

    async def test_no_text_is_an_id_that_breaks_a_look(self, harness: TimeoutHarness) -> None:
        for text in ("a/b", "a\\b", "a#b", "a?b", "", "x" * 600, "it's", "\x00"):
            assert await harness.store.get(text) is None
            assert await harness.store.remove(text) is False

    async def test_the_same_id_twice_is_one_the_first(self, harness: TimeoutHarness) -> None:
        first = harness.timeout(1)
        await harness.store.add(first)
        await harness.store.add(replace(first, destination="elsewhere"))
        assert await harness.store.get(first.id) == first
        assert await harness.store.count() == 1

    async def test_an_interrupted_add_is_completed_by_its_repeat(self, harness: TimeoutHarness) -> None:
        timeout = harness.timeout(1, saga_id=_SAGA)
        await harness.insert([encode_timeout(timeout, _SCOPE).time])
        assert await harness.store.get(timeout.id) is None
        await harness.store.add(timeout)
        assert await harness.store.get(timeout.id) == timeout
        assert await harness.store.remove_of_saga(_SAGA) == 1

    async def test_a_timeout_is_due_at_its_instant_and_not_a_microsecond_before(
        self, harness: TimeoutHarness
    ) -> None:
        timeout = harness.timeout(1, saga_id=_SAGA)
        await harness.store.add(timeout)
        assert await _ids(harness.store, _DUE - timedelta(microseconds=1)) == []
        for everywhere in (False, True):
            (found,) = await _due(harness.store, _DUE, everywhere=everywhere)
            assert (found.id, found.due_at) == (timeout.id, _DUE)

    async def test_due_ones_come_in_due_order_within_and_across_partitions(
        self, harness: TimeoutHarness
    ) -> None:
        for number, minutes in enumerate((59, 3, 61, 2, 180, 0)):
            await harness.store.add(harness.timeout(number, _DUE + timedelta(minutes=minutes)))
        found = await _due(harness.store, _DUE + timedelta(hours=2))
        assert [one.due_at - _DUE for one in found] == [timedelta(minutes=m) for m in (0, 2, 3, 59, 61)]

    async def test_one_stored_late_with_an_early_due_time_is_found(self, harness: TimeoutHarness) -> None:
        await harness.store.add(harness.timeout(1))
        assert len(await _due(harness.store, _DUE)) == 1
        early = harness.timeout(2, _DUE - timedelta(days=400))
        await harness.store.add(early)
        assert (await _ids(harness.store, _DUE))[0] == early.id

    async def test_more_than_a_page_of_one_partition_is_found_whole_and_in_order(
        self, harness: TimeoutHarness
    ) -> None:
        count = PAGE_ROWS + 150
        # By id the last is the first, so that the order of keys is not that of due times.
        timeouts = [harness.timeout(count - n, _DUE + n * timedelta(milliseconds=1)) for n in range(count)]
        rows = [encode_timeout(timeout, _SCOPE).time for timeout in timeouts]
        for start in range(0, count, 100):
            await harness.insert(rows[start : start + 100])
        assert await _ids(harness.store, _DUE + timedelta(minutes=1)) == [one.id for one in timeouts]
        assert await harness.store.count() == count
        assert await harness.store.count(limit=1) == 1

    async def test_one_filed_under_another_calendar_is_found_everywhere(
        self, harness: TimeoutHarness
    ) -> None:
        timeout = harness.timeout(1)
        await harness.store.add(timeout)
        rows = encode_timeout(harness.timeout(2), _SCOPE)
        # th-TH: the year is 2569.
        await harness.insert([{**rows.time, "PartitionKey": "2569030107"}])
        await harness.insert([rows.main])
        assert await _ids(harness.store, _DUE) == [timeout.id]
        assert len(await _due(harness.store, _DUE, everywhere=True)) == 2
        assert await harness.store.count() == 2

    async def test_endpoints_do_not_see_each_others(self, harness: TimeoutHarness) -> None:
        await harness.store.add(harness.timeout(1))
        assert await _ids(harness.other, _DUE) == []
        assert await _ids(harness.other, _DUE, everywhere=True) == []
        assert await harness.other.count() == 0
        assert [one async for one in harness.other.all()] == []

    async def test_what_a_migration_tool_has_hidden_is_left_alone(self, harness: TimeoutHarness) -> None:
        rows = encode_timeout(harness.timeout(1, saga_id=_SAGA), _SCOPE)
        assert rows.saga is not None
        assert await harness.store.hidden() == 0
        await harness.insert([{**rows.time, OWNER: f"__hidden__tmpA1B2__{harness.owner}"}])
        await harness.insert([rows.saga])
        await harness.insert([rows.main])
        assert await _ids(harness.store, _DUE) == []
        assert await _ids(harness.store, _DUE, everywhere=True) == []
        assert await harness.store.count() == 0
        assert await harness.store.hidden() == 1
        assert await harness.other.hidden() == 0
        assert [one async for one in harness.store.all()] == []

    async def test_of_two_removers_exactly_one_hears_true(self, harness: TimeoutHarness) -> None:
        timeout = harness.timeout(1, saga_id=_SAGA)
        await harness.store.add(timeout)
        answers = await asyncio.gather(*(harness.store.remove(timeout.id) for _ in range(4)))
        assert sorted(answers) == [False, False, False, True]

    async def test_removing_leaves_nothing_behind(self, harness: TimeoutHarness) -> None:
        timeout = harness.timeout(1, saga_id=_SAGA)
        await harness.store.add(timeout)
        assert await harness.store.remove(timeout.id) is True
        assert await harness.store.get(timeout.id) is None
        assert await _ids(harness.store, _DUE, everywhere=True) == []
        assert await harness.store.remove_of_saga(_SAGA) == 0
        # Nor its body: a new timeout of that id has its own.
        again = replace(timeout, body=b"another")
        await harness.store.add(again)
        assert await harness.store.get(timeout.id) == again

    async def test_all_timeouts_of_a_saga_are_removed_and_no_others(self, harness: TimeoutHarness) -> None:
        other_saga = _SAGA.replace("7c", "8c")
        sagas = {1: _SAGA, 2: _SAGA, 3: other_saga, 4: None}
        for number, saga in sagas.items():
            await harness.store.add(harness.timeout(number, saga_id=saga))
        assert await harness.store.remove_of_saga(_SAGA) == 2
        assert await harness.store.remove_of_saga(_SAGA) == 0
        left = {timeout.id async for timeout in harness.store.all()}
        assert left == {harness.timeout(number).id for number in (3, 4)}

    async def test_what_an_interruption_left_is_cleaned_up_and_nothing_else(
        self, harness: TimeoutHarness
    ) -> None:
        whole = harness.timeout(1, saga_id=_SAGA)
        await harness.store.add(whole)
        rows = encode_timeout(harness.timeout(2, saga_id=_SAGA), _SCOPE)
        assert rows.saga is not None
        await harness.insert([rows.time])
        await harness.insert([rows.saga])
        found = await _due(harness.store, _DUE)
        assert [await harness.store.clean_up(one) for one in found] == [False, True]
        assert [await harness.store.clean_up(one) for one in found] == [False, False]
        assert await _ids(harness.store, _DUE, everywhere=True) == [whole.id]
        assert await harness.store.get(whole.id) == whole
        assert await harness.store.remove_of_saga(_SAGA) == 1

    async def test_all_come_without_bodies_and_from_an_instant_on(self, harness: TimeoutHarness) -> None:
        early, late = harness.timeout(1), harness.timeout(2, _DUE + timedelta(days=3))
        for timeout in (late, early):
            await harness.store.add(timeout)
        assert [one async for one in harness.store.all()] == [
            replace(timeout, body=b"") for timeout in (early, late)
        ]
        after = [one async for one in harness.store.all(due_from=_DUE + _SECOND)]
        assert [one.id for one in after] == [late.id]

    async def test_what_cannot_be_read_is_told_and_kept(self, harness: TimeoutHarness) -> None:
        rows = encode_timeout(harness.timeout(1), _SCOPE)
        for row in (rows.time, rows.main):
            await harness.insert([{**row, HEADERS: "[1]"}])
        with pytest.raises(PoisonMessage, match="column Headers is not a JSON object"):
            await harness.store.get(harness.timeout(1).id)
        (told,) = [one async for one in harness.store.all()]
        assert isinstance(told, UnreadableTimeout)
        assert (told.id, told.due_at) == (harness.timeout(1).id, _DUE)

    async def test_a_body_that_is_missing_is_told(self, harness: TimeoutHarness) -> None:
        rows = encode_timeout(harness.timeout(1), _SCOPE)
        await harness.insert([rows.main])
        with pytest.raises(PoisonMessage, match=r"the body of timeout .* is missing"):
            await harness.store.get(harness.timeout(1).id)

    async def test_a_timeout_without_a_state_address_has_an_empty_body(self, harness: TimeoutHarness) -> None:
        rows = encode_timeout(harness.timeout(1), _SCOPE)
        await harness.insert([{**rows.main, "StateAddress": ""}])
        found = await harness.store.get(harness.timeout(1).id)
        assert found is not None
        assert found.body == b""

    async def test_a_missing_store_is_told_to_writers_and_empty_to_readers(
        self, harness: TimeoutHarness
    ) -> None:
        assert await harness.store.exists() is True
        assert await harness.absent.exists() is False
        with pytest.raises(NotProvisioned, match="postdate setup --timeout-manager"):
            await harness.absent.add(harness.timeout(1))
        with pytest.raises(NotProvisioned, match="postdate setup --timeout-manager"):
            await _due(harness.absent, _DUE)
        assert await harness.absent.get(harness.timeout(1).id) is None
        assert await harness.absent.remove(harness.timeout(1).id) is False
        assert await harness.absent.remove_of_saga(_SAGA) == 0
        assert await harness.absent.count() == 0
        assert await harness.absent.hidden() == 0
        assert [one async for one in harness.absent.all()] == []

    async def test_creating_twice_is_harmless(self, harness: TimeoutHarness) -> None:
        assert await harness.absent.create()
        assert await harness.absent.create() == []
        assert await harness.absent.exists() is True
        await harness.absent.add(harness.timeout(1))
