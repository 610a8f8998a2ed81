"""DelayedStore, reading: what comes back, when, and in which order."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from postdate.errors import NotProvisioned
from postdate.model.delayed import DelayedMessage, DelayedRow, Row, RowValue, UnreadableRow
from postdate.model.limits import PAGE_ROWS
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
    #: Puts a row into `store`'s table as another program would.
    insert: Callable[[dict[str, RowValue]], Awaitable[None]]


def delayed(
    number: int = 1, due_at: datetime = NOON, *, destination: str = "orders", body: bytes = b"{}"
) -> DelayedMessage:
    """A message whose id tells its number."""
    message_id = f"message-{number:05d}"
    headers: dict[str, str | None] = {"NServiceBus.MessageId": message_id, "Note": None}
    return DelayedMessage(Message(message_id, headers, body), destination, due_at, scheduled_at=NOON)


def dotnet_row(second: datetime, suffix: str = "0d6f2c6e4b8a4d3f9a5b7c1e2f304152") -> dict[str, RowValue]:
    """A row as a .NET endpoint writes it: no microseconds, no columns of ours."""
    text = f"{second:%Y%m%d%H%M%S}"
    return {
        "PartitionKey": text[:10],
        "RowKey": f"{text}_{suffix}",
        "Destination": "orders",
        "Body": b"{}",
        "MessageId": f"dotnet-{suffix}",
        "Headers": '{"NServiceBus.MessageId":"dotnet"}',
    }


async def pages(store: DelayedStore, until: datetime) -> list[Sequence[Row]]:
    """All pages of rows due by then."""
    return [page async for page in store.due(until)]


async def due_ids(store: DelayedStore, until: datetime) -> list[str]:
    """Message ids of the rows due by then, in the order given."""
    rows = [row for page in await pages(store, until) for row in page]
    return [row.delayed.message.message_id for row in rows if isinstance(row, DelayedRow)]


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
        row = await harness.store.get(added.key)
        assert isinstance(row, DelayedRow)
        assert row.delayed == message
        assert (row.key, row.etag) == (added.key, added.etag)

    async def test_bodies_of_every_size_come_back(self, harness: StoreHarness) -> None:
        sizes = (0, 1, 36_000)
        await harness.store.add(
            [delayed(n, NOON + n * _MICROSECOND, body=b"\xff" * size) for n, size in enumerate(sizes)]
        )
        rows = [row for page in await pages(harness.store, NOON + timedelta(1)) for row in page]
        assert [len(r.delayed.message.body) for r in rows if isinstance(r, DelayedRow)] == list(sizes)

    async def test_a_payload_reference_takes_the_place_of_the_body(self, harness: StoreHarness) -> None:
        message = replace(delayed(), payload_ref="abc", message=Message("m", {}, b""))
        (added,) = await harness.store.add([message])
        row = await harness.store.get(added.key)
        assert isinstance(row, DelayedRow)
        assert row.delayed.payload_ref == "abc"

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
        await harness.store.add([delayed(n, NOON + n * timedelta(seconds=5)) for n in range(count)])
        found = await pages(harness.store, NOON + timedelta(days=1))
        assert all(len(page) <= PAGE_ROWS for page in found)
        rows = [row for page in found for row in page]
        numbers = [int(r.delayed.message.message_id[8:]) for r in rows if isinstance(r, DelayedRow)]
        assert numbers == list(range(count))

    async def test_removing_a_page_while_reading_hides_no_other_row(self, harness: StoreHarness) -> None:
        count = PAGE_ROWS + 200
        await harness.store.add([delayed(n, NOON + n * timedelta(seconds=5)) for n in range(count)])
        seen = 0
        async for page in harness.store.due(NOON + timedelta(days=1)):
            seen += len(page)
            assert all(await harness.store.remove(page))
        assert seen == count
        assert await harness.store.next_due() is None

    async def test_a_dotnet_row_is_due_when_its_second_is_over(self, harness: StoreHarness) -> None:
        second = NOON.replace(microsecond=0)
        await harness.insert(dotnet_row(second))
        over = second + timedelta(seconds=1)
        assert await due_ids(harness.store, over - _MICROSECOND) == []
        assert len(await due_ids(harness.store, over)) == 1
        assert await harness.store.next_due() == over
        assert await harness.store.next_due(over - _MICROSECOND) == over
        assert await harness.store.next_due(over) is None

    async def test_a_row_that_cannot_be_read_is_told_and_blocks_nobody(self, harness: StoreHarness) -> None:
        await harness.insert({**dotnet_row(NOON), "Headers": "not json"})
        await harness.insert(
            {"PartitionKey": "2026030111", "RowKey": "20260301115900_x", "Destination": "orders"}
        )
        await harness.store.add([delayed()])
        rows = [row for page in await pages(harness.store, NOON + timedelta(1)) for row in page]
        unreadable = [row for row in rows if isinstance(row, UnreadableRow)]
        assert len(rows) == 3
        assert len(unreadable) == 2
        assert all("Headers" in row.reason or "MessageId" in row.reason for row in unreadable)
        assert all(await harness.store.remove(unreadable))

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
        await harness.store.add([delayed(n, at) for n, at in enumerate(instants)])
        found = [
            row.delayed.due_at
            async for row in harness.store.upcoming(start=instants[1], end=instants[3])
            if isinstance(row, DelayedRow)
        ]
        assert found == instants[1:3]
        assert len([row async for row in harness.store.upcoming()]) == 5
