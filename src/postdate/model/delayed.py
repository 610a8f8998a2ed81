"""A delayed message, and the row that holds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from postdate.model.keys import RowKey, identity, row_key
from postdate.model.message import Message

#: What a stored property may hold.
RowValue = str | bytes | int | float | bool | datetime | None


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that waits for its due time."""

    message: Message
    #: `queue` or `queue@alias`, as the sender gave it.
    destination: str
    #: Aware; the message is never handed out before.
    due_at: datetime
    #: When it was scheduled; None where the row does not tell (.NET).
    scheduled_at: datetime | None = None
    #: Dispatches that failed so far.
    failure_count: int = 0
    #: Not tried before this instant; None means as soon as it is due.
    next_attempt_at: datetime | None = None
    #: Name of the blob that holds the body, where a claim check was used.
    payload_ref: str | None = None

    @property
    def key(self) -> RowKey:
        """Where our own row for this message stands."""
        return row_key(self.due_at, identity(self.message.message_id, self.destination))


@dataclass(frozen=True, slots=True)
class DelayedRow:
    """A stored delayed message. `etag` names the version that was read."""

    key: RowKey
    etag: str
    delayed: DelayedMessage


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A row that can't be understood; it goes to the error queue with the reason, and blocks nobody."""

    key: RowKey
    etag: str
    reason: str
    #: What can be saved of it: `MessageId`, `Destination`, `Headers` and `Body` go to the error queue.
    properties: Mapping[str, RowValue]
    #: From the key, so that it is still due in order; None: at once.
    due_at: datetime | None = None
    failure_count: int = 0
    next_attempt_at: datetime | None = None


Row = DelayedRow | UnreadableRow
