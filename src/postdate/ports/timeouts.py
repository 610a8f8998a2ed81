"""The store of the legacy timeout manager (nservicebus-azure, sections 4 and 5)."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout, UnreadableTimeout


class TimeoutStore(Protocol):
    """Timeouts of one endpoint, in the layout that older endpoints read and write.

    Whoever removes a timeout's main row has removed the timeout: of ours and of older endpoints', one. Where
    the store's tables are missing nothing waits; `due` and `add` raise `NotProvisioned`.
    """

    async def create(self) -> list[str]:
        """Create tables and container where they are missing; what this call created, for people."""
        ...

    async def exists(self) -> bool:
        """Whether there is a store at all. It may be shared by all endpoints of the account."""
        ...

    async def add(self, one: LegacyTimeout) -> None:
        """Keep a timeout; durable when this returns. The same id twice is one timeout: what is there stays.

        Raises:
            NotProvisioned: there is no store.
            MessageTooLarge, MessageRefused: the store can't hold it.
        """
        ...

    def due(self, until: datetime, *, everywhere: bool = False) -> AsyncIterator[Sequence[DueTimeout]]:
        """Timeouts due at or before `until`: one partition after the other, each in due order.

        Always from the beginning: a timeout that was stored late, with an early due time, is found too. Some
        may be gone already, or not be complete yet; `get` tells.

        Args:
            until: aware.
            everywhere: also those whose partition is not that of their due time, since it was made by another
                calendar or another partition scope. Reads the whole table, those of other endpoints too.

        Raises:
            NotProvisioned: there is no store.
        """
        ...

    async def get(self, timeout_id: str) -> LegacyTimeout | None:
        """One timeout with its body; None: removed, not complete yet, or never there.

        Raises:
            PoisonMessage: it is there, and can't be read.
        """
        ...

    async def remove(self, timeout_id: str) -> bool:
        """Remove it with all that belongs to it; False: it was gone. Two callers never both hear True.

        Raises:
            OutcomeUnknown: it is gone, and whether this call did it can't be told.
        """
        ...

    async def remove_of_saga(self, saga_id: str) -> int:
        """Remove all timeouts of a saga (lower-case dashed GUID); how many this call removed."""
        ...

    async def clean_up(self, left: DueTimeout) -> bool:
        """Remove what is left of a timeout without a main row; False: it has one, or nothing is left.

        A timeout that is just being written has no main row yet: ask for this minutes after it was found so.
        """
        ...

    def all(self, *, due_from: datetime | None = None) -> AsyncIterator[LegacyTimeout | UnreadableTimeout]:
        """Every timeout of the endpoint, without bodies (`body` is empty), page by page.

        In due order, as far as partitions tell it. Those that a migration tool has hidden are not among them;
        what is left of an interrupted removal may be: `get` tells.

        Args:
            due_from: only those due at or after this instant.
        """
        ...

    async def count(self, limit: int | None = None) -> int:
        """How many wait; reads no further than `limit` of them."""
        ...

    async def hidden(self) -> int:
        """How many a migration tool has hidden from the timeout manager, and not given back or removed."""
        ...
