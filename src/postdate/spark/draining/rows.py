"""The delays table as a task sees it: its ranges are due, and nothing is read without a fresh proof."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime

from postdate.backends.azure_storage.delayed_table import DelayedTable
from postdate.model.delayed import DelayedMessage, Row
from postdate.model.keys import RowKey
from postdate.ports import AddResult, Guard
from postdate.spark.draining.fence import Fence
from postdate.spark.draining.pacing import Pacer
from postdate.spark.ranges import KeyRange

#: Rows between two proofs. The next page is proved while this one is sent: so at most 100 messages, one
#: batch, leave on a proof.
ROWS_PER_PROOF = 50


class RangeRows:
    """`ports.DelayedStore` on some ranges of the table."""

    def __init__(self, table: DelayedTable, ranges: Sequence[KeyRange], fence: Fence, pacer: Pacer) -> None:
        self._table = table
        self._ranges = ranges
        self._fence = fence
        self._pacer = pacer

    async def due(self, until: datetime) -> AsyncIterator[Sequence[Row]]:
        """Pages of due rows of the ranges, in due order; they end where the fence says no."""
        async with aclosing(self._pacer.paced(self._pieces(until), lambda: self._fence.ended)) as pages:
            async for page in pages:
                if not await self._fence.prove():
                    return
                yield page

    async def _pieces(self, until: datetime) -> AsyncGenerator[Sequence[Row]]:
        for keys in self._ranges:
            async for page in self._table.due(until, keys.filter()):
                for start in range(0, len(page), ROWS_PER_PROOF):
                    yield page[start : start + ROWS_PER_PROOF]

    async def next_due(self, after: datetime | None = None) -> None:
        """None: whoever leads next asks the table."""

    async def create(self) -> bool:
        """As the table."""
        return await self._table.create()

    async def add(self, messages: Sequence[DelayedMessage]) -> list[AddResult]:
        """As the table."""
        return await self._table.add(messages)

    async def remove(self, rows: Sequence[Row], guard: Guard | None = None) -> list[bool]:
        """As the table."""
        return await self._table.remove(rows, guard)

    async def update(self, row: Row, *, failure_count: int, next_attempt_at: datetime | None) -> str | None:
        """As the table."""
        return await self._table.update(row, failure_count=failure_count, next_attempt_at=next_attempt_at)

    async def get(self, key: RowKey) -> Row | None:
        """As the table."""
        return await self._table.get(key)

    def upcoming(self, *, start: datetime | None = None, end: datetime | None = None) -> AsyncIterator[Row]:
        """As the table."""
        return self._table.upcoming(start=start, end=end)
