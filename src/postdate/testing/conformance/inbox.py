"""InboxStore: one claim at a time, nothing kept by who lost his, and old partitions that go."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from postdate.errors import ClaimLost, NotProvisioned
from postdate.model.inbox import OUTCOME_BYTES, PIECE_BYTES, RECORDS, RECORDS_BYTES, InboxKey
from postdate.ports import Busy, Done, Fresh, InboxClaim, InboxStore

_LONG = timedelta(minutes=10)
_SHORT = timedelta(seconds=1)
#: Then a short claim is over, also by a clock that is known to a second only.
_OVER = 2.5
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class InboxHarness:
    """An inbox store under test."""

    #: Empty and created.
    store: InboxStore
    #: The same kind of store on a table that does not exist.
    absent: InboxStore
    #: The instant by which claims end.
    now: Callable[[], datetime]
    #: Lets so many seconds pass for the store (real or virtual).
    pass_time: Callable[[float], Awaitable[None]]

    def key(self, number: int = 1, *, consumer: str = "billing", age: timedelta = timedelta(0)) -> InboxKey:
        """A message that came so long ago."""
        return InboxKey(consumer, f"message-{number:05d}", self.now() - age)

    async def claimed(self, key: InboxKey, by: str = "one", last: timedelta = _LONG) -> InboxClaim:
        """A claim that was granted."""
        answer = await self.store.claim(key, by, self.now() + last)
        assert isinstance(answer, Fresh)
        return answer.claim

    async def done(
        self, key: InboxKey, outcome: bytes = b"", records: dict[str, bytes] | None = None
    ) -> None:
        """Be done with a message."""
        await self.store.complete(await self.claimed(key), outcome, records or {})


class InboxStoreConformance:
    """What an InboxStore must grant, keep and drop."""

    @pytest.fixture
    async def harness(self) -> InboxHarness:
        """Provide the store; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_create_is_safe_in_many_processes_at_once(self, harness: InboxHarness) -> None:
        answers = await asyncio.gather(*(harness.absent.create() for _ in range(8)))
        assert sum(answers) == 1
        assert await harness.absent.create() is False

    async def test_a_missing_table_is_told_with_the_way_out_and_holds_nothing(
        self, harness: InboxHarness
    ) -> None:
        with pytest.raises(NotProvisioned, match="postdate setup --inbox"):
            await harness.absent.claim(harness.key(), "one", harness.now() + _LONG)
        assert await harness.absent.forget("billing", harness.now()) == 0
        assert await harness.absent.consumers() == []

    async def test_one_of_many_claims_is_granted_and_the_others_hear_until_when(
        self, harness: InboxHarness
    ) -> None:
        key, until = harness.key(), harness.now() + _LONG
        answers = await asyncio.gather(*(harness.store.claim(key, f"token-{n}", until) for n in range(8)))
        (granted,) = [answer for answer in answers if isinstance(answer, Fresh)]
        assert granted.claim.attempt == 1
        assert [answer for answer in answers if not isinstance(answer, Fresh)] == [Busy(until)] * 7

    async def test_the_same_token_twice_is_the_same_claim(self, harness: InboxHarness) -> None:
        key = harness.key()
        assert await harness.claimed(key) == await harness.claimed(key)

    async def test_messages_and_consumers_are_claimed_apart(self, harness: InboxHarness) -> None:
        claims = [
            await harness.claimed(harness.key(number, consumer=consumer))
            for number in (1, 2)
            for consumer in ("billing", "shipping")
        ]
        assert [claim.attempt for claim in claims] == [1] * 4

    async def test_a_claim_past_its_time_is_taken_over_and_attempts_grow(self, harness: InboxHarness) -> None:
        key = harness.key()
        await harness.claimed(key, "one", _SHORT)
        await harness.pass_time(_OVER)
        answers = await asyncio.gather(
            *(harness.store.claim(key, f"token-{n}", harness.now() + _LONG) for n in range(6))
        )
        (granted,) = [answer for answer in answers if isinstance(answer, Fresh)]
        assert granted.claim.attempt == 2

    async def test_a_claim_that_was_taken_over_can_do_nothing_more(self, harness: InboxHarness) -> None:
        key = harness.key()
        old = await harness.claimed(key, "one", _SHORT)
        await harness.pass_time(_OVER)
        new = await harness.claimed(key, "two")
        with pytest.raises(ClaimLost, match="attempt 1 at message 'message-00001'"):
            await harness.store.complete(old, b"old", {"effect": b"1"})
        assert await harness.store.prolong(old, harness.now() + _LONG) is None
        assert await harness.store.release(old) is False
        assert await harness.store.records(key) == {}
        await harness.store.complete(new, b"new", {})
        assert await harness.store.claim(key, "three", harness.now() + _LONG) == Done(b"new")

    async def test_a_claim_past_its_time_that_nobody_took_is_still_good(self, harness: InboxHarness) -> None:
        key = harness.key()
        claim = await harness.claimed(key, "one", _SHORT)
        await harness.pass_time(_OVER)
        await harness.store.complete(claim, b"x", {})
        assert await harness.store.claim(key, "two", harness.now() + _LONG) == Done(b"x")

    async def test_a_prolonged_claim_lasts_and_its_old_version_is_worth_nothing(
        self, harness: InboxHarness
    ) -> None:
        key = harness.key()
        first = await harness.claimed(key, "one", _SHORT)
        until = harness.now() + _LONG
        prolonged = await harness.store.prolong(first, until)
        assert prolonged is not None
        await harness.pass_time(_OVER)
        assert await harness.store.claim(key, "two", harness.now() + _LONG) == Busy(until)
        await harness.store.complete(prolonged, b"", {})
        assert await harness.store.claim(key, "two", until) == Done(b"")

    async def test_a_released_claim_is_free_at_once_and_its_attempt_is_counted(
        self, harness: InboxHarness
    ) -> None:
        key = harness.key()
        assert await harness.store.release(await harness.claimed(key, "one")) is True
        assert (await harness.claimed(key, "two")).attempt == 2

    @pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, OUTCOME_BYTES])
    async def test_an_outcome_comes_back_whole(self, harness: InboxHarness, size: int) -> None:
        outcome = bytes(number % 251 for number in range(size))
        await harness.done(harness.key(), outcome)
        assert await harness.store.claim(harness.key(), "two", harness.now() + _LONG) == Done(outcome)

    async def test_outcome_and_records_of_the_largest_sizes_are_kept_together(
        self, harness: InboxHarness
    ) -> None:
        share = RECORDS_BYTES // RECORDS
        records = {f"record-{number:02d}": bytes([number]) * share for number in range(RECORDS)}
        await harness.done(harness.key(), b"o" * OUTCOME_BYTES, records)
        assert await harness.store.records(harness.key()) == records
        assert await harness.store.claim(harness.key(), "two", harness.now()) == Done(b"o" * OUTCOME_BYTES)

    async def test_records_are_those_of_a_message_that_is_done_with(self, harness: InboxHarness) -> None:
        await harness.claimed(harness.key())
        assert await harness.store.records(harness.key()) == {}
        await harness.done(harness.key(2), b"", {"a.b_c-d": b"1", "E": b""})
        assert await harness.store.records(harness.key(2)) == {"a.b_c-d": b"1", "E": b""}
        assert await harness.store.records(harness.key(3)) == {}

    async def test_completing_twice_is_once(self, harness: InboxHarness) -> None:
        claim = await harness.claimed(harness.key())
        await harness.store.complete(claim, b"x", {"a": b"1"})
        await harness.store.complete(claim, b"x", {"a": b"1"})
        assert await harness.store.claim(harness.key(), "two", harness.now()) == Done(b"x")

    async def test_what_is_settled_is_done_with_nothing_left_to_dispatch(self, harness: InboxHarness) -> None:
        await harness.done(harness.key(), b"x" * (PIECE_BYTES + 1), {"a": b"1"})
        await harness.store.settle(harness.key())
        await harness.store.settle(harness.key(2))  # was dropped by age, say
        assert await harness.store.claim(harness.key(), "two", harness.now()) == Done(b"")
        assert await harness.store.records(harness.key()) == {"a": b"1"}

    async def test_old_partitions_are_dropped_and_nothing_else(self, harness: InboxHarness) -> None:
        for number in range(30):
            await harness.done(harness.key(number, age=10 * _DAY), b"x" * (PIECE_BYTES + 1), {"a": b"1"})
        await harness.done(harness.key(1, consumer="shipping", age=10 * _DAY))
        await harness.pass_time(1.0)  # after which they are older than the instant below
        before = harness.now()
        # Of the very day of that instant, so never of a day before.
        today = InboxKey("billing", "today", before)
        await harness.done(today)
        assert await harness.store.forget("billing", before) == 30
        assert await harness.store.forget("billing", before) == 0
        assert await harness.store.claim(today, "two", before + _LONG) == Done(b"")
        assert (await harness.claimed(harness.key(1, age=10 * _DAY), "two")).attempt == 1
        assert await harness.store.consumers() == ["billing", "shipping"]

    async def test_a_message_that_came_late_is_kept_as_long_as_any_other(self, harness: InboxHarness) -> None:
        key = harness.key(age=100 * _DAY)
        await harness.done(key, b"x")
        assert await harness.store.forget("billing", harness.now() - _DAY) == 0
        assert await harness.store.claim(key, "two", harness.now() + _LONG) == Done(b"x")

    async def test_consumers_with_names_alike_are_told_apart(self, harness: InboxHarness) -> None:
        names = ["a", "a-b", "a.b", "A", "a1", "ab", "b"]
        for name in names:
            await harness.done(harness.key(consumer=name, age=10 * _DAY))
        await harness.pass_time(1.0)
        assert await harness.store.consumers() == sorted(names)
        assert await harness.store.forget("a", harness.now()) == 1
        assert await harness.store.consumers() == sorted(set(names) - {"a"})
