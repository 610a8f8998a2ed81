"""Changing one's mind: cancel and reschedule.

**When a row may be withdrawn.** The leader reads a row at `due - lookahead` by the service's clock at the
earliest (its own estimate is never ahead). A row deleted before that instant can't have been read, so it is
cancelled for sure; from that instant on the leader may hold a copy, so the answer is "too late" and the row
stays. The deletion itself is conditional, so of two callers exactly one removes the row. Which lookahead
counts: the larger of our own and the one that the leader published.

**Moving a row** must never lose it: the new row is written first, held back by its next-attempt time; then
the old one is deleted, which decides who wins; then the new one is let go. A crash in between leaves the
message in the old row, in the held one, or in both (then it may be delivered twice).
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from postdate.clock import Clock
from postdate.core.plan import hidden_seconds
from postdate.engine.acceptance import Delay, due_time
from postdate.engine.handover import HandOverTo, know_the_time
from postdate.engine.intake import DirectHandles
from postdate.errors import OutcomeUnknown, StorageError, UsageError
from postdate.events import Cancelled, Events, Rescheduled
from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage, DelayedRow, Row
from postdate.model.handles import QueueHandle, RowHandle, format_handle, parse_handle
from postdate.model.keys import due_time as due_time_of
from postdate.model.limits import MAX_HIDDEN_SECONDS
from postdate.ports import AddResult, Backend, Receipt, note_removed, removed_before

#: The deletion has this long to reach the service before the leader may read the row.
_MARGIN = timedelta(seconds=1)
#: A moved row is held back for so long while its old row is removed.
_HOLD = timedelta(seconds=60)
#: How often a row that changes under our hands is read again.
_TRIES = 5


class CancelOutcome(StrEnum):
    """What became of a cancellation."""

    CANCELLED = "cancelled"
    TOO_LATE = "too late"
    UNKNOWN = "unknown"


class RescheduleOutcome(StrEnum):
    """What became of a move."""

    MOVED = "moved"
    TOO_LATE = "too late"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RescheduleResult:
    """The outcome and, where it moved, the new handle and due time (the old handle is used up)."""

    outcome: RescheduleOutcome
    handle: str | None = None
    due_at: datetime | None = None


class Changes:
    """Cancel and reschedule by handle."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        hand_over: HandOverTo,
        *,
        direct: DirectHandles,
        lookahead: timedelta,
        direct_within: timedelta,
        payload_retention: timedelta,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._events = events
        self._hand_over = hand_over
        self._direct = direct
        self._lookahead = lookahead
        self._direct_within = direct_within
        self._retention = payload_retention

    async def cancel(self, handle: str) -> CancelOutcome:
        """Withdraw a message.

        Raises:
            InvalidHandle: the text is not a handle.
            OutcomeUnknown: the service did not answer in time to tell; ask again.
        """
        parsed = parse_handle(handle)
        if isinstance(parsed, QueueHandle):
            return await self._cancel_in_queue(parsed)
        answer = await self._take(parsed)
        if isinstance(answer, CancelOutcome):
            return answer
        if isinstance(answer, DelayedRow) and answer.delayed.payload_ref:
            await self._backend.payloads.delete(answer.delayed.payload_ref)
        known = answer.delayed if isinstance(answer, DelayedRow) else None
        message_id = known.message.message_id if known else None
        self._events.emit(Cancelled(message_id, _due(answer, parsed), known.destination if known else None))
        return CancelOutcome.CANCELLED

    async def reschedule(
        self,
        handle: str,
        *,
        at: datetime | None = None,
        delay: Delay | None = None,
    ) -> RescheduleResult:
        """Give a message another due time.

        Raises:
            InvalidHandle, InvalidDueTime: nothing was changed.
            OutcomeUnknown: the service did not answer in time to tell; the message is not lost.
        """
        parsed = parse_handle(handle)

        def due() -> datetime:
            return due_time(self._clock, at=at, delay=delay)

        due()  # refuses what is wrong, before anything is asked of the service
        if isinstance(parsed, QueueHandle):
            await know_the_time(self._clock, self._backend)
            return await self._move_in_queue(parsed, due())
        row = await self._read(parsed)
        if row is None:
            return RescheduleResult(RescheduleOutcome(await self._gone(parsed)))
        # Anew: a delay counts by the service's clock, which the first answer tells.
        return await self._move_row(parsed, row, due())

    # --- rows -------------------------------------------------------------------------------------

    async def _read(self, handle: RowHandle) -> Row | None:
        row = await self._backend.store.get(handle.key)
        await know_the_time(self._clock, self._backend)  # which a store of the user's own does not tell
        return row

    async def reach(self) -> timedelta:
        """How long before its due time a leader may hold a copy of a row, at most."""
        record = await self._backend.lease.holder()
        published = timedelta(seconds=record.lookahead_s) if record is not None else timedelta(0)
        return max(self._lookahead, published)

    async def _window_opens(self, due_at: datetime) -> datetime:
        """From when on a leader may hold a copy of a row that is due then."""
        return due_at - await self.reach()

    async def _gone(self, handle: RowHandle) -> CancelOutcome:
        """What to answer for a row that is not there."""
        due_at = due_time_of(handle.key)
        if due_at is None:
            return CancelOutcome.UNKNOWN
        late = self._clock.latest() >= await self._window_opens(due_at)
        return CancelOutcome.TOO_LATE if late else CancelOutcome.UNKNOWN

    async def _take(self, handle: RowHandle) -> Row | CancelOutcome:
        """Remove a row that no leader can have read; the row, or why not."""
        for _ in range(_TRIES):
            row = await self._read(handle)
            if row is None:
                return await self._gone(handle)
            opens = await self._window_opens(_due(row, handle))
            if self._clock.latest() + _MARGIN >= opens:
                return CancelOutcome.TOO_LATE
            if await self._remove(row):
                # Asked again: a leader with a larger lookahead may have come, and read the row, meanwhile.
                if self._clock.latest() >= min(opens, await self._window_opens(_due(row, handle))):
                    raise OutcomeUnknown(
                        "the row was removed so late that the leader may have read it; the message is "
                        "either cancelled or delivered"
                    )
                return row
        raise OutcomeUnknown("the row keeps changing; try again")

    async def _remove(self, row: Row) -> bool:
        try:
            return (await self._backend.store.remove([row]))[0]
        except OutcomeUnknown as error:
            note_removed(error, [None])
            raise

    async def _move_row(self, handle: RowHandle, row: Row, due_at: datetime) -> RescheduleResult:
        if not isinstance(row, DelayedRow):
            raise UsageError(f"the row can't be read ({row.reason}), so it can't be moved; cancel it instead")
        if row.delayed.due_at == due_at:
            return RescheduleResult(RescheduleOutcome.MOVED, format_handle(handle), due_at)
        if self._clock.latest() + _MARGIN >= await self._window_opens(row.delayed.due_at):
            return RescheduleResult(RescheduleOutcome.TOO_LATE)
        moved = _moved(row.delayed, due_at)
        if moved.payload_ref is not None:
            await self._backend.payloads.keep(moved.payload_ref, keep_until=due_at + self._retention)
        held = replace(moved, next_attempt_at=max(due_at, self._clock.now()) + _HOLD)
        try:
            added = (await self._backend.store.add([held]))[0]
            answer = await self._take(handle)
        except StorageError as error:
            # A removal without an answer may be applied yet, after any look: then the held row must stay.
            if not isinstance(error, OutcomeUnknown) or removed_before(error) is None:
                with suppress(StorageError):
                    await self._undo(handle, held)
            raise
        new_row = DelayedRow(added.key, added.etag, held)
        if isinstance(answer, CancelOutcome):
            if added.created:  # ours; a row that somebody else moved there stays
                await self._backend.store.remove([new_row])
            return RescheduleResult(RescheduleOutcome(answer))
        return await self._let_go(row.delayed, moved, new_row, added)

    async def _undo(self, handle: RowHandle, held: DelayedMessage) -> None:
        """Take the held row back, if the old one is surely there still."""
        new = await self._backend.store.get(held.key)
        ours = isinstance(new, DelayedRow) and new.delayed.next_attempt_at == held.next_attempt_at
        if new is not None and ours and await self._read(handle) is not None:
            await self._backend.store.remove([new])

    async def _let_go(
        self, was: DelayedMessage, moved: DelayedMessage, held: DelayedRow, added: AddResult
    ) -> RescheduleResult:
        """The old row is gone: release the new one, or hand it over where it is due soon."""
        store = self._backend.store
        message_id, destination = moved.message.message_id, moved.destination
        if moved.due_at - self._clock.now() <= self._direct_within:
            receipt, hidden_for = await self._hand_over.send(moved)
            self._events.emit(
                Rescheduled(message_id, was.due_at, moved.due_at, destination, "queue", hidden_for)
            )
            await store.remove([held])
            handle = QueueHandle(
                moved.destination, receipt.native_id, receipt.pop_receipt, moved.due_at, moved.payload_ref
            )
            return RescheduleResult(RescheduleOutcome.MOVED, format_handle(handle), moved.due_at)
        if await store.update(held, failure_count=0, next_attempt_at=None) is None:
            # Another caller moved the same message to the same time, lost, and took the row with it.
            await store.add([moved])
        self._events.emit(Rescheduled(message_id, was.due_at, moved.due_at, destination))
        return RescheduleResult(RescheduleOutcome.MOVED, format_handle(RowHandle(added.key)), moved.due_at)

    # --- hidden messages --------------------------------------------------------------------------

    async def _cancel_in_queue(self, handle: QueueHandle) -> CancelOutcome:
        receipt = Receipt(handle.native_id, handle.pop_receipt)
        self._direct.forget(handle)  # whatever the answer, and if there is none
        done = await self._backend.sender.withdraw(handle.destination, receipt)
        if done is None:
            return self._gone_from_queue(handle)
        if not done:
            return CancelOutcome.TOO_LATE
        if handle.payload_ref is not None:
            await self._backend.payloads.delete(handle.payload_ref)
        self._events.emit(Cancelled(None, handle.due_at, handle.destination))
        return CancelOutcome.CANCELLED

    def _gone_from_queue(self, handle: QueueHandle) -> CancelOutcome:
        late = self._clock.latest() >= handle.due_at
        return CancelOutcome.TOO_LATE if late else CancelOutcome.UNKNOWN

    async def _move_in_queue(self, handle: QueueHandle, due_at: datetime) -> RescheduleResult:
        hidden_for = hidden_seconds(due_at, self._clock.now())
        if (due_at - self._clock.now()).total_seconds() > MAX_HIDDEN_SECONDS:
            raise UsageError(
                "the message already lies in its queue, where it can be moved by at most 7 days; cancel it "
                "and schedule a new one"
            )
        receipt = Receipt(handle.native_id, handle.pop_receipt)
        self._direct.forget(handle)
        again = await self._backend.sender.hide_again(handle.destination, receipt, hidden_for)
        if again is None:
            return RescheduleResult(RescheduleOutcome(self._gone_from_queue(handle)))
        if not isinstance(again, Receipt):
            return RescheduleResult(RescheduleOutcome.TOO_LATE)
        if handle.payload_ref is not None:
            await self._backend.payloads.keep(handle.payload_ref, keep_until=due_at + self._retention)
        self._events.emit(Rescheduled(None, handle.due_at, due_at, handle.destination, "hidden", hidden_for))
        moved = replace(handle, native_id=again.native_id, pop_receipt=again.pop_receipt, due_at=due_at)
        return RescheduleResult(RescheduleOutcome.MOVED, format_handle(moved), due_at)


def _due(row: Row, handle: RowHandle) -> datetime:
    due_at = row.delayed.due_at if isinstance(row, DelayedRow) else row.due_at
    if due_at is None:
        due_at = due_time_of(handle.key)
    if due_at is None:
        raise UsageError(f"row {handle.key.row!r} has no due time; it goes to the error queue by itself")
    return due_at


def _moved(delayed: DelayedMessage, due_at: datetime) -> DelayedMessage:
    message = delayed.message
    headers = {**message.headers, h.DELIVER_AT: h.format_instant(due_at)}
    return replace(
        delayed,
        message=replace(message, headers=headers),
        due_at=due_at,
        failure_count=0,
        next_attempt_at=None,
    )
