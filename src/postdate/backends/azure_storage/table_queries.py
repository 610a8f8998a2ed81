"""Reading the endpoint's table: what is due, what comes next, what waits.

Pages of queries, one by one: an empty page is not the end, and Azure may send hundreds of them (fact 16).
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from azure.data.tables.aio import TableClient

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, refusal, translate, translating
from postdate.backends.azure_storage.hot_calls import HotTable, Token
from postdate.backends.azure_storage.rows import (
    Entity,
    due_of,
    due_order,
    key_of,
    properties_of,
    quoted,
    row_of,
)
from postdate.errors import PostdateError
from postdate.model.delayed import Row
from postdate.model.keys import RowKey, bound, due_time, row_key
from postdate.model.limits import PAGE_ROWS
from postdate.model.rowcodec import DUE_TIME, decode_row

#: Rows read at a time when looking for the next due time.
NEXT_DUE_PAGE = 100
KEYS = ["PartitionKey", "RowKey"]

_SECOND = timedelta(seconds=1)
_IDENTITY_DIGITS = 32


class TableQueries:
    """The reading half of `ports.DelayedStore`."""

    def __init__(self, client: TableClient, hot: HotTable, place: Place, name: str) -> None:
        self._client = client
        self._hot = hot
        self._place = place
        self._name = name

    async def due(self, until: datetime, within: str = "") -> AsyncIterator[Sequence[Row]]:
        """Pages of rows due at or before `until`; see `ports.DelayedStore.due`.

        Args:
            until: the last due time.
            within: a filter of the table service that rows match too; empty: all.
        """
        last = bound(until)
        matching = f"PartitionKey le {quoted(last.partition)} and RowKey le {quoted(last.row)}"
        if within:
            matching += f" and {within}"
        async for entities in self._pages(matching, "reading due rows of"):
            rows = [decode_row(*entity) for entity in entities]
            # A .NET row of the last second is due when that second is over.
            yield sorted((row for row in rows if (due_of(row) or until) <= until), key=due_order)

    async def next_due(self, after: datetime | None = None) -> datetime | None:
        """The earliest due time of all rows, or of those due later than `after`."""
        matching = ""
        if after is not None:
            # From the whole second on: a .NET row in it is due at its end, whatever its key's text.
            first = bound(after.replace(microsecond=0))
            start = first.row.partition("_")[0] + "_"
            matching = f"PartitionKey ge {quoted(first.partition)} and RowKey ge {quoted(start)}"
        earliest: datetime | None = None
        async for entities in self._pages(
            matching, "looking for the next due row of", top=NEXT_DUE_PAGE, select=[*KEYS, DUE_TIME]
        ):
            for entity, _ in entities:
                key = key_of(entity)
                due = _due(entity, key)
                if due is None or (after is not None and due <= after):
                    continue
                exact = row_key(due, key.row[-_IDENTITY_DIGITS:]) == key
                # Keys are in order of seconds; only inside one second may a later key be due earlier.
                if earliest is not None and (due if exact else due - _SECOND) >= earliest:
                    return earliest
                earliest = due if earliest is None else min(earliest, due)
                if exact:
                    return earliest
        return earliest

    async def upcoming(
        self, *, start: datetime | None = None, end: datetime | None = None
    ) -> AsyncIterator[Row]:
        """Rows with `start <= due < end` in due order, read page by page."""
        conditions = []
        if start is not None:
            # A second earlier: a .NET row of that second is due at its end.
            first = bound(start.replace(microsecond=0) - _SECOND)
            conditions += [f"PartitionKey ge {quoted(first.partition)}"]
            conditions += [f"RowKey ge {quoted(first.row.partition('_')[0])}"]
        if end is not None:
            last = bound(end)
            conditions += [f"PartitionKey le {quoted(last.partition)}", f"RowKey le {quoted(last.row)}"]
        matching = " and ".join(conditions)
        async for entities in self._pages(matching, "reading rows of"):
            for row in sorted((decode_row(*entity) for entity in entities), key=due_order):
                due = due_of(row)
                early = start is not None and (due is None or due < start)
                late = end is not None and due is not None and due >= end
                if not early and not late:
                    yield row

    async def _pages(
        self, matching: str, what: str, *, top: int = PAGE_ROWS, select: Sequence[str] = ()
    ) -> AsyncIterator[list[tuple[Entity, str]]]:
        """Entities with their etags, page by page. Only a missing continuation is the end (fact 16)."""
        token: Token | None = None
        while True:
            with translating(f"{what} table {self._name}", self._place, changes=False):
                page = await self._hot.page(matching, top=top, select=select, token=token)
            yield [properties_of(entry) for entry in page.rows]
            token = page.token
            if token is None:
                return

    async def get(self, key: RowKey) -> Row | None:
        """One row, or None."""
        try:
            return row_of(await self._client.get_entity(key.partition, key.row))
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.GONE:
                return None
            raise self._translated(error, "reading a row of", changes=False) from error

    def _translated(self, error: BaseException, doing: str, *, changes: bool = True) -> PostdateError:
        return translate(error, f"{doing} table {self._name}", self._place, changes=changes)


def _due(entity: Entity, key: RowKey) -> datetime | None:
    value = entity.get(DUE_TIME)
    return value if isinstance(value, datetime) else due_time(key)
