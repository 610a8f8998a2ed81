"""Bodies that are too large for a queue."""

from datetime import datetime
from typing import Protocol


class PayloadStore(Protocol):
    """Bodies that are too large for a queue, as blobs (claim check)."""

    async def put(self, name: str, body: bytes, *, keep_until: datetime) -> None:
        """Store a body; the same name twice is one. `keep_until` is when age may clean it up."""
        ...

    async def keep(self, name: str, *, keep_until: datetime) -> None:
        """Keep a body longer, because its message was moved; nothing happens where it is gone."""
        ...

    async def get(self, name: str) -> bytes | None:
        """The body; None: it was deleted because its message is done with.

        Raises:
            PoisonMessage: there is nothing under that name, and never was or is long past its age.
        """
        ...

    async def delete(self, name: str) -> None:
        """The message is done with: drop the body, leaving a mark so that a late duplicate is told so."""
        ...

    async def sweep(self, now: datetime) -> int:
        """Remove what is past its `keep_until`, marks included; how many."""
        ...
