"""What a run asks of a place with old timeouts, whatever it is: SQL tables, or tables and blobs of Azure.

Taking hides a timeout from the old timeout manager as a whole, and keeps it whole where the run finds it
again: it is staged. What is staged becomes rows, or is given back.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from postdate.model.legacy_timeout import LegacyTimeout, UnreadableTimeout
from postdate.spark.migrating.sources import Range

Found = LegacyTimeout | UnreadableTimeout


@dataclass(frozen=True, slots=True)
class Staged:
    """Timeouts that were taken together."""

    timeouts: list[LegacyTimeout]
    #: Those that were gone when they were taken: by us, a moment before we were killed, or by somebody else.
    gone: frozenset[str] = field(default_factory=frozenset)
    #: Of the place where they are kept.
    name: str = ""


class OldTimeouts(Protocol):
    """The old timeouts of one endpoint."""

    def read(self, within: Range, due_from: datetime | None) -> AsyncIterator[list[Found]]:
        """The timeouts of a range with their bodies, so many together as are taken together.

        What was read may be taken before the next ones are asked for.
        """
        ...

    async def prepare(self) -> None:
        """Make the place for what is staged."""
        ...

    async def resume(self, part: int) -> None:
        """Finish what a killed task has left half taken."""
        ...

    async def take(self, part: int, timeouts: Sequence[LegacyTimeout]) -> None:
        """Stage timeouts; at no instant in between is one of them in neither place, or can be lost."""
        ...

    def staged(self, part: int) -> AsyncIterator[Staged]:
        """What is staged for a part. What was read may be given back before the next ones are asked for."""
        ...

    async def give_back(self, part: int, timeouts: Sequence[LegacyTimeout]) -> None:
        """Back to where they were, as they were."""
        ...

    async def drop(self, part: int, staged: Staged) -> None:
        """Forget what was staged: it has its rows, or is back."""
        ...

    async def finish(self) -> None:
        """Drop the place for what is staged, as nothing is there any more."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
