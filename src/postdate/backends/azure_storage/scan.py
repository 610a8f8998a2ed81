"""Scans of a table by ranges of its keys: what the bulk jobs read, and keys alone to plan them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import translating
from postdate.backends.azure_storage.hot_calls import HotTable, Token
from postdate.backends.azure_storage.rows import Entity, instant_of_text, key_of, properties_of
from postdate.model.keys import RowKey
from postdate.model.limits import PAGE_ROWS


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

    async def pages(self, matching: str, select: Sequence[str] = ()) -> AsyncIterator[list[Scanned]]:
        """Entities that match a filter, in key order. Only a missing continuation is the end (fact 16).

        Args:
            matching: in the service's filter language; empty: all.
            select: columns to read; none: all. `Timestamp` among them gives `written_at`.

        Raises:
            StorageError: the table can't be read; `NotProvisioned`: it is not there.
        """
        token: Token | None = None
        while True:
            with translating(f"reading table {self._name}", self._place, changes=False):
                page = await self._hot.page(matching, top=PAGE_ROWS, select=select, token=token)
            found = []
            for entry in page.rows:
                properties, etag = properties_of(entry)
                found.append(Scanned(properties, etag, instant_of_text(entry.get("Timestamp")), entry))
            yield found
            token = page.token
            if token is None:
                return
