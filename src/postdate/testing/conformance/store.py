"""DelayedStore, reading: what comes back, when, and in which order."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from postdate.errors import NotProvisioned
from postdate.model.delayed import DelayedMessage, DelayedRow, Row, UnreadableRow
from postdate.model.keys import RowKey
from postdate.model.limits import PAGE_ROWS, QUEUE_TEXT_BYTES, STRING_PROPERTY_UNITS
from postdate.model.message import Message
from postdate.ports import DelayedStore

#: Around the turn of an hour, hence of a partition.
NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class StoreHarness:
    """A store under test."""

    #: Empty and created.
    store: DelayedStore
    #: The same kind of store on a table that does not exist.
    absent: DelayedStore
    #: Makes the stored row with this key unreadable (its headers, say), as somebody's mistake would.
    #: It keeps its due time.
    spoil: Callable[[RowKey], Awaitable[None]]
    #: Bytes of the largest body that the store takes; None: it knows no limit.
    largest_body: int | None = None


def delayed(
    number: int = 1, due_at: datetime = NOON, *, destination: str = "orders", body: bytes = b"{}"
) -> DelayedMessage:
    """A message whose id tells its number."""
    message_id = f"message-{number:05d}"
    headers: dict[str, str | None] = {"NServiceBus.MessageId": message_id, "Note": None}
    return DelayedMessage(Message(message_id, headers, body), destination, due_at, scheduled_at=NOON)


async def pages(store: DelayedStore, until: datetime) -> list[Sequence[Row]]:
    """All pages of rows due by then."""
    return [page async for page in store.due(until)]


async def due_ids(store: DelayedStore, until: datetime) -> list[str]:
    """Message ids of the rows due by then, in the order given."""
    rows = [row for page in await pages(store, until) for row in page]
    return [row.delayed.message.message_id for row in rows if isinstance(row, DelayedRow)]


async def the_row(store: DelayedStore, key: RowKey) -> DelayedRow:
    """The row with this key, which is there and can be read."""
    row = await store.get(key)
    assert isinstance(row, DelayedRow)
    return row


class DelayedStoreConformance:
    """What a DelayedStore must answer."""

    @pytest.fixture
    async def harness(self) -> StoreHarness:
        """Provide the store; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_create_is_safe_in_many_processes_at_once(self, harness: StoreHarness) -> None:
        answers = await asyncio.gather(*(harness.absent.create() for _ in range(8)))
        assert sum(answers) == 1
        assert await harness.absent.create() is False

    async def test_a_missing_table_is_told_with_the_way_out(self, harness: StoreHarness) -> None:
        with pytest.raises(NotProvisioned, match="postdate setup"):
            await harness.absent.add([delayed()])
        with pytest.raises(NotProvisioned, match="postdate setup"):
            await pages(harness.absent, NOON)
        with pytest.raises(NotProvisioned, match="postdate setup"):
            await harness.absent.next_due()
        with pytest.raises(NotProvisioned, match="postdate setup"):
            _ = [row async for row in harness.absent.upcoming()]

    async def test_every_field_comes_back_as_it_was_stored(self, harness: StoreHarness) -> None:
        message = DelayedMessage(
            Message("id-1", {"Größe": '\U0001f69a "x" \\ \'', "Null": None, "Empty": ""}, bytes(range(256))),
            "orders@accountb",
            NOON + timedelta(microseconds=7),
            scheduled_at=NOON - timedelta(days=400),
            failure_count=3,
            next_attempt_at=NOON + timedelta(seconds=9),
        )
        (added,) = await harness.store.add([message])
        row = await the_row(harness.store, added.key)
        assert row.delayed == message
        assert (row.key, row.etag) == (added.key, added.etag)

    async def test_bodies_of_every_size_come_back(self, harness: StoreHarness) -> None:
        # The last one is as large as a queue takes as plain text.
        sizes = (0, 1, 36_000, QUEUE_TEXT_BYTES)
        await harness.store.add(
            [delayed(n, NOON + n * _MICROSECOND, body=b"\xff" * size) for n, size in enumerate(sizes)]
        )
        rows = [row for page in await pages(harness.store, NOON + timedelta(1)) for row in page]
        assert [len(r.delayed.message.body) for r in rows if isinstance(r, DelayedRow)] == list(sizes)

    async def test_headers_as_long_as_they_may_be_come_back(self, harness: StoreHarness) -> None:
        note = "x" * (STRING_PROPERTY_UNITS - 100)
        message = replace(delayed(), message=Message("m", {"Note": note}))
        (added,) = await harness.store.add([message])
        assert (await the_row(harness.store, added.key)).delayed.message.headers == {"Note": note}

    async def test_a_payload_reference_takes_the_place_of_the_body(self, harness: StoreHarness) -> None:
        message = replace(delayed(), payload_ref="abc", message=Message("m", {}, b""))
        (added,) = await harness.store.add([message])
        assert (await the_row(harness.store, added.key)).delayed.payload_ref == "abc"

    async def test_a_row_is_due_at_its_instant_and_not_a_microsecond_before(
        self, harness: StoreHarness
    ) -> None:
        await harness.store.add([delayed()])
        assert await due_ids(harness.store, NOON - _MICROSECOND) == []
        assert await due_ids(harness.store, NOON) == ["message-00001"]

    async def test_rows_come_in_due_order_across_partitions(self, harness: StoreHarness) -> None:
        offsets = [n * timedelta(minutes=7, microseconds=13) for n in range(40)]
        messages = [delayed(n, NOON + offset) for n, offset in enumerate(offsets)]
        random.Random(7).shuffle(messages)
        await harness.store.add(messages)
        found = await due_ids(harness.store, NOON + timedelta(days=1))
        assert found == [f"message-{n:05d}" for n in range(40)]

    async def test_microseconds_decide_the_order_within_a_second(self, harness: StoreHarness) -> None:
        second = NOON.replace(microsecond=0)
        messages = [delayed(n, second + n * 37 * _MICROSECOND) for n in range(50)]
        random.Random(3).shuffle(messages)
        await harness.store.add(messages)
        assert await due_ids(harness.store, NOON) == [f"message-{n:05d}" for n in range(50)]

    async def test_more_than_a_page_is_read_whole_once_and_in_order(self, harness: StoreHarness) -> None:
        count = PAGE_ROWS + 350
        messages = [delayed(n, NOON + n * timedelta(seconds=5)) for n in range(count)]
        random.Random(11).shuffle(messages)
        await harness.store.add(messages)
        found = await pages(harness.store, NOON + timedelta(days=1))
        assert all(len(page) <= PAGE_ROWS for page in found)
        rows = [row for page in found for row in page]
        assert _numbers(rows) == list(range(count))
        assert _numbers([row async for row in harness.store.upcoming()]) == list(range(count))

    async def test_removing_a_page_while_reading_hides_no_other_row(self, harness: StoreHarness) -> None:
        count = PAGE_ROWS + 200
        await harness.store.add([delayed(n, NOON + n * timedelta(seconds=5)) for n in range(count)])
        seen = 0
        async for page in harness.store.due(NOON + timedelta(days=1)):
            seen += len(page)
            assert all(await harness.store.remove(page))
        assert seen == count
        assert await harness.store.next_due() is None

    async def test_a_row_that_is_held_back_is_due_and_the_next_one_all_the_same(
        self, harness: StoreHarness
    ) -> None:
        await harness.store.add([delayed(1), delayed(2, NOON + timedelta(hours=1))])
        row = await the_row(harness.store, delayed(1).key)
        later = NOON + timedelta(days=1)
        assert await harness.store.update(row, failure_count=1, next_attempt_at=later)
        # The leader reads from it when to come back.
        assert await due_ids(harness.store, NOON) == ["message-00001"]
        assert await harness.store.next_due() == NOON

    async def test_a_row_that_cannot_be_read_is_told_in_its_place_and_blocks_nobody(
        self, harness: StoreHarness
    ) -> None:
        instants = [NOON + n * timedelta(hours=1) for n in range(3)]
        added = await harness.store.add([delayed(n, at) for n, at in enumerate(instants)])
        await harness.spoil(added[1].key)
        rows = [row for page in await pages(harness.store, NOON + timedelta(days=1)) for row in page]
        assert [row.key for row in rows] == [result.key for result in added]
        assert [type(row) for row in rows] == [DelayedRow, UnreadableRow, DelayedRow]
        assert [row.key async for row in harness.store.upcoming()] == [row.key for row in rows]
        spoilt = await harness.store.get(added[1].key)
        assert isinstance(spoilt, UnreadableRow)
        assert spoilt.reason
        assert spoilt.properties["MessageId"] == "message-00001"
        assert await harness.store.remove(rows) == [True, True, True]

    async def test_a_row_that_cannot_be_read_is_the_next_one_as_any_other(
        self, harness: StoreHarness
    ) -> None:
        later = NOON + timedelta(hours=1)
        added = await harness.store.add([delayed(1), delayed(2, later)])
        await harness.spoil(added[0].key)
        assert await harness.store.next_due() == NOON
        assert await harness.store.next_due(NOON) == later

    async def test_next_due_is_the_earliest_of_all_or_after_an_instant(self, harness: StoreHarness) -> None:
        assert await harness.store.next_due() is None
        later = NOON + timedelta(days=3, microseconds=1)
        await harness.store.add([delayed(1, later), delayed(2, NOON)])
        assert await harness.store.next_due() == NOON
        assert await harness.store.next_due(NOON - _MICROSECOND) == NOON
        assert await harness.store.next_due(NOON) == later
        assert await harness.store.next_due(later) is None

    async def test_get_answers_none_for_what_is_not_there(self, harness: StoreHarness) -> None:
        assert await harness.store.get(delayed().key) is None

    async def test_upcoming_takes_the_start_and_leaves_the_end(self, harness: StoreHarness) -> None:
        instants = [NOON + n * timedelta(hours=1) for n in range(5)]
        await harness.store.add([delayed(n, instants[n]) for n in (3, 0, 4, 2, 1)])
        found = [
            row.delayed.due_at
            async for row in harness.store.upcoming(start=instants[1], end=instants[3])
            if isinstance(row, DelayedRow)
        ]
        assert found == instants[1:3]
        assert len([row async for row in harness.store.upcoming()]) == 5


def _numbers(rows: Sequence[Row]) -> list[int]:
    return [int(row.delayed.message.message_id[8:]) for row in rows if isinstance(row, DelayedRow)]
