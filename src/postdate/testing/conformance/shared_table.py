"""DelayedStore on a table that .NET endpoints read and write too; a store of one's own needs none of this."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from postdate.model.delayed import RowValue, UnreadableRow
from postdate.ports import DelayedStore
from postdate.testing.conformance.store import NOON, delayed, due_ids, pages

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class SharedTableHarness:
    """A store under test, and a way around it."""

    #: Empty and created.
    store: DelayedStore
    #: Puts a row into its table as another program would.
    insert: Callable[[dict[str, RowValue]], Awaitable[None]]


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


class SharedTableConformance:
    """What a DelayedStore must make of rows that it did not write."""

    @pytest.fixture
    async def harness(self) -> SharedTableHarness:
        """Provide the store; override this."""
        raise AssertionError("override the fixture `harness`")

    async def test_a_dotnet_row_is_due_when_its_second_is_over(self, harness: SharedTableHarness) -> None:
        second = NOON.replace(microsecond=0)
        await harness.insert(dotnet_row(second))
        over = second + timedelta(seconds=1)
        assert await due_ids(harness.store, over - _MICROSECOND) == []
        assert len(await due_ids(harness.store, over)) == 1
        assert await harness.store.next_due() == over
        assert await harness.store.next_due(over - _MICROSECOND) == over
        assert await harness.store.next_due(over) is None

    async def test_a_row_of_anybody_that_cannot_be_read_is_told_and_blocks_nobody(
        self, harness: SharedTableHarness
    ) -> None:
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
