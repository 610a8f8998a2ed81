"""LeaseStore: one holder at a time, and term numbers that only grow."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from postdate.ports import LeaseStore

_DURATION = 15
_LONGER = 60


@dataclass(frozen=True)
class LeaseHarness:
    """A lease under test."""

    #: A store for one more process, all on the same lease; nothing is created yet.
    open: Callable[[], LeaseStore]
    #: Lets so many seconds pass for the lease (real or virtual).
    pass_time: Callable[[float], Awaitable[None]]


async def _acquire(store: LeaseStore, holder: str = "one") -> int | None:
    return await store.acquire(holder, _DURATION, 30.0)


async def _held(store: LeaseStore) -> str:
    assert await _acquire(store) is not None
    assert store.lease_id is not None
    return store.lease_id


class LeaseStoreConformance:
    """What a LeaseStore must grant, and to whom."""

    @pytest.fixture
    async def harness(self) -> LeaseHarness:
        """Provide the lease; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_create_is_idempotent_and_acquire_needs_no_create(self, harness: LeaseHarness) -> None:
        assert await _acquire(harness.open()) == 1
        assert await harness.open().create() is False

    async def test_only_one_of_many_acquires(self, harness: LeaseHarness) -> None:
        await harness.open().create()
        numbers = await asyncio.gather(*(_acquire(harness.open(), f"p{n}") for n in range(8)))
        assert [n for n in numbers if n is not None] == [1]

    async def test_somebody_else_hears_none_while_it_is_held(self, harness: LeaseHarness) -> None:
        one, two = harness.open(), harness.open()
        assert await _acquire(one) is not None
        assert await _acquire(two) is None
        assert await one.renew(_DURATION) is True
        assert await two.renew(_DURATION) is False

    async def test_release_frees_at_once_and_is_safe_twice(self, harness: LeaseHarness) -> None:
        one, two = harness.open(), harness.open()
        first = await _acquire(one)
        await one.release()
        await one.release()
        second = await _acquire(two, "two")
        assert first is not None
        assert second is not None
        assert second > first
        await one.release()  # takes nothing from the new holder
        assert await two.renew(_DURATION) is True
        assert await one.renew(_DURATION) is False

    async def test_a_renewal_can_make_it_last_longer(self, harness: LeaseHarness) -> None:
        one, two = harness.open(), harness.open()
        assert await _acquire(one) == 1
        assert await one.renew(_LONGER) is True
        await harness.pass_time(_DURATION + 0.5)
        assert await _acquire(two) is None

    async def test_a_broken_lease_is_lost_also_to_a_renewal_for_longer(self, harness: LeaseHarness) -> None:
        one, two = harness.open(), harness.open()
        assert await _acquire(one) == 1
        assert await two.break_lease() is True
        assert await one.renew(_LONGER) is False
        assert await _acquire(two, "two") == 2

    async def test_term_numbers_grow_over_holders(self, harness: LeaseHarness) -> None:
        numbers = []
        for n in range(4):
            store = harness.open()
            numbers.append(await _acquire(store, f"p{n}"))
            await store.release()
        assert numbers == [1, 2, 3, 4]

    async def test_an_expired_lease_can_be_taken_and_is_lost_to_the_first(
        self, harness: LeaseHarness
    ) -> None:
        one, two = harness.open(), harness.open()
        assert await _acquire(one) == 1
        await harness.pass_time(_DURATION + 0.5)
        assert await _acquire(two, "two") == 2
        assert await one.renew(_DURATION) is False
        assert await two.renew(_DURATION) is True

    async def test_breaking_takes_it_from_its_holder(self, harness: LeaseHarness) -> None:
        one, two = harness.open(), harness.open()
        assert await _acquire(one) == 1
        assert await two.break_lease() is True
        assert await one.renew(_DURATION) is False
        assert await _acquire(two, "two") == 2
        await two.release()
        assert await two.break_lease() is False

    async def test_its_id_proves_that_it_is_held(self, harness: LeaseHarness) -> None:
        one, helper = harness.open(), harness.open()
        assert one.lease_id is None
        held = await _held(one)
        assert await helper.prove(held) is True
        assert await helper.prove("00000000-0000-4000-8000-000000000000") is False
        assert helper.lease_id is None
        await one.release()
        assert await helper.prove(held) is False

    async def test_an_id_proves_nothing_for_the_next_holder_nor_after_a_break(
        self, harness: LeaseHarness
    ) -> None:
        one, two, helper = harness.open(), harness.open(), harness.open()
        first = await _held(one)
        await helper.break_lease()
        assert await helper.prove(first) is False
        second = await _held(two)
        assert await helper.prove(first) is False
        assert await helper.prove(second) is True

    async def test_a_lease_that_runs_out_is_not_renewed_and_nobody_elses_before_its_end(
        self, harness: LeaseHarness
    ) -> None:
        one, two = harness.open(), harness.open()
        assert await two.let_run_out() is False
        held = await _held(one)
        assert await two.let_run_out() is True
        assert await one.renew(_DURATION) is False
        assert await _acquire(two, "two") is None
        assert await _acquire(one) is None
        await harness.pass_time(_DURATION + 0.5)
        assert await two.prove(held) is False
        assert await _acquire(two, "two") == 2
        assert await two.renew(_DURATION) is True

    async def test_the_record_tells_who_leads(self, harness: LeaseHarness) -> None:
        one, two = harness.open(), harness.open()
        assert await two.holder() is None
        assert await one.acquire("host/1", _DURATION, 42.5) == 1
        record = await two.holder()
        assert record is not None
        assert (record.holder, record.term, record.lookahead_s) == ("host/1", 1, 42.5)
        assert record.leased is True
        await one.release()
        record = await two.holder()
        assert record is not None
        assert record.leased is False
