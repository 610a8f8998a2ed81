"""Scans of a table by ranges of its keys: what the bulk jobs read, and keys alone to plan them."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import translating
from postdate.backends.azure_storage.hot_calls import HotTable, Page, Token
from postdate.backends.azure_storage.rows import Entity, instant_of_text, key_of, properties_of
from postdate.model.keys import RowKey
from postdate.model.limits import PAGE_ROWS

KEYS = ("PartitionKey", "RowKey")


@dataclass(frozen=True, slots=True)
class Scanned:
    """One entity with what the service says of it."""

    properties: Entity
    etag: str
    written_at: datetime | None
    #: As the service's JSON has it, types and all.
    entry: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> RowKey:
        """Its two keys."""
        return key_of(self.properties)


class TableScan:
    """Reads one table, page by page."""

    def __init__(self, hot: HotTable, place: Place, name: str) -> None:
        self._hot = hot
        self._place = place
        self._name = name

    async def pages(self, matching: str, select: Sequence[str] = ()) -> AsyncGenerator[list[Scanned]]:
        """Entities that match a filter, in key order. Only a missing continuation is the end (fact 16).

        The next page is under way while one is read and looked at: close it where you end early.

        Args:
            matching: in the service's filter language; empty: all.
            select: columns to read; none: all. `Timestamp` among them gives `written_at`.

        Raises:
            StorageError: the table can't be read; `NotProvisioned`: it is not there.
        """

        def ask(token: Token | None) -> "asyncio.Task[Page]":
            return asyncio.create_task(self._page(matching, select, PAGE_ROWS, token))

        coming: asyncio.Task[Page] | None = ask(None)
        try:
            while coming is not None:
                page = await coming
                coming = None if page.token is None else ask(page.token)
                if coming is not None:
                    await asyncio.sleep(0)  # it leaves now; then the service works while we do
                yield _scanned(page.rows)
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def first_keys(self, matching: str, most: int) -> list[RowKey]:
        """The keys of the first so many entities that match a filter; fewer: there are no more.

        Raises as `pages`.
        """
        found: list[RowKey] = []
        token: Token | None = None
        while True:
            page = await self._page(matching, KEYS, most, token)
            found += map(key_of, page.rows)
            token = page.token
            if token is None or len(found) >= most:
                return found

    async def _page(self, matching: str, select: Sequence[str], top: int, token: Token | None) -> Page:
        with translating(f"reading table {self._name}", self._place, changes=False):
            return await self._hot.page(matching, top=top, select=select, token=token)


def _scanned(entries: Sequence[Mapping[str, Any]]) -> list[Scanned]:
    found = []
    for entry in entries:
        properties, etag = properties_of(entry)
        found.append(Scanned(properties, etag, instant_of_text(entry.get("Timestamp")), entry))
    return found
