"""Leaving the timeout manager behind: what is left, moving it, and back."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from postdate.legacy.drain import Drain, Drained
from postdate.legacy.ground import Ground, Selection
from postdate.legacy.remains import Preview, Remains, look, preview
from postdate.legacy.undo import PutBack, Undo

if TYPE_CHECKING:
    from postdate.legacy.undo_file import UndoFile


class Migration:
    """What `postdate legacy` does, on one endpoint."""

    def __init__(self, ground: Ground, queues: Sequence[str]) -> None:
        self._ground = ground
        #: Of the timeout manager: of what shall be kept, and of what is due.
        self._queues = tuple(queues)

    @property
    def ground(self) -> Ground:
        """The endpoint's two stores, and what judges."""
        return self._ground

    async def look(self) -> Remains:
        """What is left for the timeout manager."""
        return await look(self._ground, self._queues)

    async def preview(self, selection: Selection) -> Preview:
        """What a drain would do; nothing is written."""
        return await preview(self._ground, selection, self._queues)

    async def drain(
        self, selection: Selection, file: "UndoFile", stop: asyncio.Event | None = None
    ) -> Drained:
        """Move what is selected into the delays table; see `Drain.run`."""
        return await Drain(self._ground, selection, file, stop).run()

    async def undo(self, file: "UndoFile", stop: asyncio.Event | None = None) -> PutBack:
        """Put back what was not delivered yet; see `Undo.run`."""
        return await Undo(self._ground, file, stop).run()
