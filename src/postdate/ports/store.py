"""Rows of one endpoint, ordered by due time."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from postdate.model.added import AddResult
from postdate.model.delayed import DelayedMessage, Row
from postdate.model.keys import RowKey
from postdate.ports.guard import Guard

_REMOVED = "_postdate_removed"


def note_removed(error: BaseException, answers: Sequence[bool | None]) -> None:
    """Keep with an error of `DelayedStore.remove` what had been done; None: not tried, or unknown."""
    setattr(error, _REMOVED, list(answers))


def removed_before(error: BaseException) -> list[bool | None] | None:
    """What `DelayedStore.remove` had done when it failed, row for row; None: it can't have done anything.

    With at most once, a row that was removed must be dispatched although the rest of its page failed.
    """
    answers: list[bool | None] | None = getattr(error, _REMOVED, None)
    return answers


class DelayedStore(Protocol):
    """Rows of one endpoint, ordered by due time.

    Order, here and below, is by `due_at` to the resolution of the row key: microseconds for our rows, one
    second for those of .NET endpoints. The due time alone counts: a row that is held back until its next
    attempt is due, and is the next one, as any other.

    What a call wrote is seen by every call that begins later, in any process: a row whose removal was
    answered is never read again. An etag names one version for ever: a row that was removed and added
    again has another.
    """

    async def create(self) -> bool:
        """Create the table where it is missing; True if this call did. Safe in many processes at once."""
        ...

    async def add(self, messages: Sequence[DelayedMessage]) -> list[AddResult]:
        """Make each message durable, in batches; results in the order given.

        Idempotent: a message whose key is there is left as it is and answered `created=False`, with the
        etag that is there. Either a result is returned for all, or an error is raised and a repeat of
        the whole call is harmless. A row that the store refuses for what it holds keeps none of the others
        out, and what was stored when the service failed stays; the error, made by `all_added`, tells
        which (`added_before`).

        Raises:
            MessageTooLarge, MessageRefused: the store can't hold a row; the others are durable.
        """
        ...

    def due(self, until: datetime) -> AsyncIterator[Sequence[Row]]:
        """Pages of at most 1,000 rows due at or before `until`, in due order.

        Follows every continuation (an empty page with one is not the end) and holds one page at a time;
        pages may be empty. A row that can't be read comes as `UnreadableRow`, here and wherever rows are
        read. Rows added or removed meanwhile may or may not be seen.
        """
        ...

    async def next_due(self, after: datetime | None = None) -> datetime | None:
        """The earliest due time of all rows, or of those due later than `after`; None: no such row."""
        ...

    async def remove(self, rows: Sequence[Row], guard: Guard | None = None) -> list[bool]:
        """Delete rows, in batches; for each, whether *this call* removed it.

        A row that is gone, or whose etag has changed, answers False and keeps none of the others from
        being removed. Two callers never both hear True for one row. `OutcomeUnknown` where it can't be
        told; a repeat then answers False for rows that did go. Rows of one partition, at most 100, go all
        or nothing; an error over more of them can tell what was done (`removed_before`).
        """
        ...

    async def update(self, row: Row, *, failure_count: int, next_attempt_at: datetime | None) -> str | None:
        """Write attempts and next-try time of this version of the row; its new etag.

        None where the row is gone or was changed by somebody else.
        """
        ...

    async def get(self, key: RowKey) -> Row | None:
        """One row, or None."""
        ...

    def upcoming(self, *, start: datetime | None = None, end: datetime | None = None) -> AsyncIterator[Row]:
        """Rows with `start <= due < end` in due order, read page by page; None means open."""
        ...
