"""The protocols between the engine and a storage backend: the public contract for a store of your own.

Each has a conformance suite in `postdate.testing.conformance`, which the shipped backends pass. Any method
may raise `StorageError`; those that can find the table, container or queue missing raise `NotProvisioned` or
`DestinationNotFound`. Instants are aware, durations are seconds.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from postdate.errors import PostdateError
from postdate.model.added import AddResult, added_before, all_added
from postdate.model.delayed import DelayedMessage, DelayedRow, Row
from postdate.model.keys import RowKey
from postdate.model.requests import RequestCounter

#: Asked as late as a backend can, right before the request leaves; False stops it with `LeaseLost`.
Guard = Callable[[], bool]


class LeaseLost(Exception):
    """The guard said no: nothing was sent."""


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
    second for those of .NET endpoints.
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
        pages may be empty. A row that can't be read comes as `UnreadableRow`. Rows added or removed
        meanwhile may or may not be seen.
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


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """Who leads, as the leader itself published it."""

    holder: str
    term: int
    since: datetime
    #: Seconds before its due time that the leader may hand a message over.
    lookahead_s: float
    #: Whether the lease is held by anybody right now.
    leased: bool


class LeaseStore(Protocol):
    """The endpoint's lease. One instance belongs to one elector; it remembers the lease it holds.

    Anything unsure is an exception, and means follower.
    """

    async def create(self) -> bool:
        """Create what carries the lease, where it is missing; True if this call did."""
        ...

    async def acquire(self, holder: str, duration_s: int, lookahead_s: float) -> int | None:
        """Take the lease and publish who leads; the new term's number, or None: somebody else holds it.

        Term numbers grow by every acquire, over all processes.
        """
        ...

    async def renew(self, duration_s: int) -> bool:
        """Count the lease anew, for so long; False: it is lost (expired and taken, broken, or never held)."""
        ...

    async def release(self) -> None:
        """Give the lease back, if it is held; the next `acquire` of anybody succeeds at once."""
        ...

    async def break_lease(self) -> bool:
        """Take the lease away from whoever holds it, at once; False: nobody held it."""
        ...

    async def holder(self) -> LeaderRecord | None:
        """Who led last and whether the lease is held now; None: nobody ever published."""
        ...


@dataclass(frozen=True, slots=True)
class Receipt:
    """What can withdraw a message while it is hidden."""

    native_id: str
    pop_receipt: str


class QueueSender(Protocol):
    """Puts messages into queues. Destinations are addresses: `queue` or `queue@alias`."""

    async def send(
        self,
        destination: str,
        text: str,
        *,
        hidden_for: int = 0,
        time_to_live: int | None = None,
        guard: Guard | None = None,
    ) -> Receipt:
        """Append one message, hidden for whole seconds (0 to 604,800).

        Args:
            text: at most 65,536 bytes of UTF-8.
            hidden_for: seconds until consumers can see it.
            time_to_live: seconds from now until it vanishes; None: never.
            guard: asked right before the request leaves.

        Raises:
            DestinationNotFound: the queue is missing. Not retried, not cached.
            OutcomeUnknown: it may have been sent. Never retried in here: a retry can double it.
            LeaseLost: the guard said no.
        """
        ...

    async def withdraw(self, destination: str, receipt: Receipt) -> bool | None:
        """Delete a hidden message; True: done. False: too late (somebody received it). None: not there."""
        ...

    async def hide_again(self, destination: str, receipt: Receipt, hidden_for: int) -> Receipt | bool | None:
        """Change when a hidden message appears; the new receipt, or False / None as `withdraw`."""
        ...

    async def exists(self, destination: str) -> bool:
        """Whether the queue is there, asked of the service each time."""
        ...

    async def create(self, destination: str) -> bool:
        """Create the queue where it is missing; True if this call did."""
        ...

    async def delete(self, destination: str) -> bool:
        """Delete the queue with all it holds; False: it was not there."""
        ...

    async def names(self, alias: str = "") -> list[str]:
        """The names of all queues in an account."""
        ...

    async def approximate_count(self, destination: str) -> int:
        """Messages in the queue, hidden ones included."""
        ...


@dataclass(frozen=True, slots=True)
class Received:
    """One appearance of a message, as the service handed it out."""

    queue: str
    native_id: str
    pop_receipt: str
    text: str
    dequeue_count: int
    inserted_at: datetime
    #: Until when nobody else sees it, by the service's clock.
    hidden_until: datetime


class QueueReceiver(Protocol):
    """Takes messages out of queues."""

    async def receive(self, queue: str, *, count: int, visibility_s: int) -> list[Received]:
        """At most `count` (1 to 32) visible messages, hidden for `visibility_s` seconds."""
        ...

    async def ack(self, received: Received) -> bool:
        """Delete it; False: it became visible again meanwhile, and somebody else may have it."""
        ...

    async def nack(self, received: Received, delay_s: int = 0) -> bool:
        """Make it visible again after whole seconds; False as `ack`."""
        ...

    async def extend(self, received: Received, visibility_s: int) -> Received | None:
        """Keep it hidden for longer; the new appearance, or None as False of `ack`."""
        ...


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


class Backend(Protocol):
    """All ports of one storage account, opened and closed together."""

    @property
    def store(self) -> DelayedStore:
        """The endpoint's rows."""
        ...

    @property
    def lease(self) -> LeaseStore:
        """The endpoint's lease; each elector needs a backend, or a lease store, of its own."""
        ...

    @property
    def sender(self) -> QueueSender:
        """Queues of all accounts, to send to."""
        ...

    @property
    def receiver(self) -> QueueReceiver:
        """Queues of all accounts, to receive from."""
        ...

    @property
    def payloads(self) -> PayloadStore:
        """Large bodies."""
        ...

    @property
    def requests(self) -> RequestCounter:
        """Counts requests that left, repeats too; stays empty where no service is asked."""
        ...

    @property
    def description(self) -> Mapping[str, str]:
        """What this is and where, for people: never a secret."""
        ...

    async def reach(self) -> Mapping[str, PostdateError | None]:
        """One cheap request to each service, by its name; what went wrong, or None.

        A table, container or queue that is missing is an answer all the same. Nothing is raised.
        """
        ...

    async def close(self) -> None:
        """Close connections. Safe to call twice."""
        ...


__all__ = [
    "AddResult",
    "Backend",
    "DelayedRow",
    "DelayedStore",
    "Guard",
    "LeaderRecord",
    "LeaseLost",
    "LeaseStore",
    "PayloadStore",
    "QueueReceiver",
    "QueueSender",
    "Receipt",
    "Received",
    "added_before",
    "all_added",
    "note_removed",
    "removed_before",
]
