"""Undoing what an undo file tells, as far as that is certain.

A discarded message goes back into the error queue. A retried one goes back too, if nobody has received its
copy yet: the copy's receipt deletes it only then. So that no crash loses it, its original is put into the
error queue first, hidden; then the copy is deleted; then the original is shown, or taken away again.

An entry without a certain outcome, during which the process ended, may tell of a message that never left:
those are looked for in the error queue.
"""

import hashlib
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from postdate.clock import Clock
from postdate.core.error_selection import Selection
from postdate.engine.error_moves import Outcome
from postdate.engine.error_queue import HOLD_SECONDS, ErrorQueue
from postdate.engine.undo_file import Entry, UndoFile, UndoWriter
from postdate.errors import DestinationNotFound
from postdate.model.names import dispatch_address
from postdate.model.returning import with_payload_name
from postdate.ports import Backend, Receipt


class UndoOutcome(StrEnum):
    """What undoing came to, for one message."""

    #: It was discarded, and is in the error queue again.
    RESTORED = "restored"
    #: Its copy was withdrawn before anybody received it, and it is in the error queue again.
    WITHDRAWN = "withdrawn"
    #: Its copy was received, or is gone: it can't be undone.
    TOO_LATE = "too late"
    #: It never left the error queue.
    STILL_THERE = "still there"
    #: Nothing was done to it that could be undone.
    NOTHING = "nothing to undo"
    #: It left the error queue, and whether its copy was sent is not known.
    UNSURE = "unsure"
    #: By an earlier `undo`.
    BEFORE = "undone before"


#: Those after which nobody has to look.
UNDONE = frozenset(
    {
        UndoOutcome.RESTORED,
        UndoOutcome.WITHDRAWN,
        UndoOutcome.STILL_THERE,
        UndoOutcome.NOTHING,
        UndoOutcome.BEFORE,
    }
)
#: Outcomes that leave open whether the message is still in the error queue.
_OPEN = (None, Outcome.UNKNOWN.value)


@dataclass(frozen=True, slots=True)
class Undone:
    """What undoing came to."""

    entry: Entry
    outcome: UndoOutcome


class ErrorUndo:
    """Undoes the entries of one file."""

    def __init__(
        self, backend: Backend, clock: Clock, file: UndoFile, queue: str, payload_retention: timedelta
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._file = file
        self._queue = queue
        self._payload_retention = payload_retention

    async def run(
        self, tell: Callable[[Undone], object], on_wait: Callable[[], object] = lambda: None
    ) -> None:
        """Undo one entry after the other; each one that is undone is noted in the file, and not done again.

        Args:
            tell: told of each entry.
            on_wait: told before it waits for messages that are hidden, as a killed process leaves them.

        Raises:
            UsageError: the file can't be written.
            StorageError: the service failed; the same call goes on.
        """
        unsure = frozenset(
            entry.native_id for entry in self._file.entries if entry.undone is None and entry.outcome in _OPEN
        )
        there = await self._in_queue(unsure, on_wait) if unsure else frozenset()
        writer = await UndoWriter.append(self._file)
        try:
            for entry in self._file.entries:
                outcome = await self._undo(entry, still_there=entry.native_id in there)
                if outcome in (UndoOutcome.RESTORED, UndoOutcome.WITHDRAWN):
                    await writer.undone(entry.number, outcome, self._clock.now())
                tell(Undone(entry, outcome))
        finally:
            await writer.close()

    async def _in_queue(self, native_ids: frozenset[str], on_wait: Callable[[], object]) -> frozenset[str]:
        """Those that are in the error queue, hidden ones among them."""
        queue = ErrorQueue(self._backend, self._clock, self._queue)
        look = await queue.look(Selection(ids=native_ids), limit=len(native_ids))
        if look.hidden and len(look.messages) < len(native_ids):
            on_wait()
            await self._clock.sleep(HOLD_SECONDS + 1)
            look = await queue.look(Selection(ids=native_ids), limit=len(native_ids))
        return frozenset(message.native_id for message in look.messages)

    async def _undo(self, entry: Entry, *, still_there: bool) -> UndoOutcome:
        if entry.undone is not None:
            return UndoOutcome.BEFORE
        if self._file.header.did == "discard":
            return await self._undo_discard(entry, still_there=still_there)
        return await self._undo_retry(entry, still_there=still_there)

    async def _undo_discard(self, entry: Entry, *, still_there: bool) -> UndoOutcome:
        if entry.outcome in _OPEN and still_there:
            return UndoOutcome.STILL_THERE
        if entry.outcome not in (Outcome.DISCARDED, *_OPEN):
            return UndoOutcome.NOTHING
        recorded = self._file.recorded(entry)
        text = recorded.text
        if recorded.payload is not None and recorded.payload_body is not None:
            # Under a name of its own: in place of the old one there is the mark that it is done with.
            name = f"{hashlib.sha256(recorded.payload_body).hexdigest()}-{uuid.uuid4().hex}"
            keep_until = self._clock.now() + self._payload_retention
            await self._backend.payloads.put(name, recorded.payload_body, keep_until=keep_until)
            text = with_payload_name(text, recorded.payload, name)
        await self._backend.sender.send(self._queue, text)
        return UndoOutcome.RESTORED

    async def _undo_retry(self, entry: Entry, *, still_there: bool) -> UndoOutcome:
        if entry.outcome not in (Outcome.RETRIED, *_OPEN):
            return UndoOutcome.NOTHING
        if entry.sent is None:
            return UndoOutcome.STILL_THERE if still_there else UndoOutcome.UNSURE
        sender = self._backend.sender
        destination = dispatch_address(entry.destination or "")
        if still_there:
            withdrawn = await self._withdrawn(destination, entry.sent)
            return UndoOutcome.WITHDRAWN if withdrawn else UndoOutcome.TOO_LATE
        text = self._file.recorded(entry).text
        back = await sender.send(self._queue, text, hidden_for=HOLD_SECONDS)
        if await self._withdrawn(destination, entry.sent):
            await sender.hide_again(self._queue, back, 0)
            return UndoOutcome.WITHDRAWN
        await sender.withdraw(self._queue, back)
        return UndoOutcome.TOO_LATE

    async def _withdrawn(self, destination: str, receipt: Receipt) -> bool:
        """Whether this call deleted the copy; never one that anybody received."""
        with suppress(DestinationNotFound):  # then it is gone with its queue
            return await self._backend.sender.withdraw(destination, receipt) is True
        return False
