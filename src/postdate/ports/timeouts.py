"""The store of the legacy timeout manager (nservicebus-azure, sections 4 and 5)."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

from postdate.model.legacy_timeout import DueTimeouts, LegacyTimeout


class TimeoutStore(Protocol):
    """Timeouts of one endpoint, in the layout that older endpoints read and write.

    A store whose tables are missing is an empty store to whoever reads; `add` raises `NotProvisioned`.
    """

    async def create(self) -> bool:
        """Create tables and container where they are missing; True if this call created any."""
        ...

    async def exists(self) -> bool:
        """Whether there is a store at all."""
        ...

    async def add(self, timeout: LegacyTimeout) -> None:  # noqa: ASYNC109 - no time limit
        """Keep a timeout. The same id twice is one timeout: what is there is left as it is."""
        ...

    async def due(self, after: datetime | None, now: datetime) -> DueTimeouts:
        """Ids with `after < due <= now`, in due order, each once; None: from the beginning.

        Raises:
            StorageError: ask again.
        """
        ...

    async def get(self, timeout_id: str) -> LegacyTimeout | None:
        """One timeout with its body; None: removed, or never there."""
        ...

    async def remove(self, timeout_id: str) -> bool:
        """Remove it with all that belongs to it; False: it was gone. Two callers never both hear True."""
        ...

    async def remove_of_saga(self, saga_id: str) -> int:
        """Remove all timeouts of a saga; how many."""
        ...

    def all(self, *, due_from: datetime | None = None) -> AsyncIterator[LegacyTimeout]:
        """Every timeout of the endpoint, without bodies (`body` is empty)."""
        ...

    async def count(self) -> int:
        """How many timeouts of this endpoint wait."""
        ...
