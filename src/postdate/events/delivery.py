"""Of delayed messages: scheduling, the election, the leader's work, and what it costs."""

import logging
from dataclasses import dataclass
from datetime import datetime

from postdate.events.base import Event


@dataclass(frozen=True, slots=True)
class Scheduled(Event):
    """A message was accepted and is durable. `path`: row, queue (hidden there, `hidden_for` s) or now."""

    name = "scheduled"
    message_id: str
    destination: str
    due_at: datetime
    path: str
    hidden_for: int = 0


@dataclass(frozen=True, slots=True)
class Cancelled(Event):
    """A message was withdrawn before it was handed over."""

    name = "cancelled"
    level = logging.INFO
    message_id: str | None
    due_at: datetime
    destination: str | None = None


@dataclass(frozen=True, slots=True)
class Rescheduled(Event):
    """A message got another due time. `path`: row, queue (from its row), or hidden (it lay in its queue)."""

    name = "rescheduled"
    level = logging.INFO
    message_id: str | None
    was_due_at: datetime
    due_at: datetime
    destination: str | None = None
    path: str = "row"
    hidden_for: int = 0


@dataclass(frozen=True, slots=True)
class TermBegan(Event):
    """This process leads."""

    name = "term_began"
    level = logging.INFO
    term: int
    holder: str


@dataclass(frozen=True, slots=True)
class TermEnded(Event):
    """This process stopped leading because it was stopped."""

    name = "term_ended"
    level = logging.INFO
    term: int


@dataclass(frozen=True, slots=True)
class TermLost(Event):
    """This process leads no more, against its will. `reason`: lost (taken or broken) or expired."""

    name = "term_lost"
    level = logging.WARNING
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseReleased(Event):
    """The lease was given back; the next process can lead at once."""

    name = "lease_released"
    level = logging.INFO
    term: int


@dataclass(frozen=True, slots=True)
class LeaseFailed(Event):
    """A lease call failed; until one succeeds this process counts as a follower.

    Told of the first, second, fourth, eighth ... failure in a row.
    """

    name = "lease_failed"
    level = logging.WARNING
    error: str
    in_a_row: int


@dataclass(frozen=True, slots=True)
class ClockUnsure(Event):
    """The lease was free and not kept: the service's clock is not known well enough to judge what is due."""

    name = "clock_unsure"
    level = logging.ERROR
    uncertainty_s: float | None
    limit_s: float


@dataclass(frozen=True, slots=True)
class HandedOver(Event):
    """The leader put a message on its destination, hidden for `hidden_for` s, at attempt `attempts`."""

    name = "handed_over"
    message_id: str
    destination: str
    due_at: datetime
    handed_over_at: datetime
    hidden_for: int
    term: int
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class DispatchFailed(Event):
    """A dispatch failed. `counted`: it counts as an attempt (else the service was busy)."""

    name = "dispatch_failed"
    level = logging.WARNING
    message_id: str
    destination: str
    attempts: int
    counted: bool
    error: str
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True)
class MovedToErrorQueue(Event):
    """A message went to the error queue."""

    name = "moved_to_error_queue"
    level = logging.ERROR
    message_id: str
    destination: str
    error_queue: str
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class ErrorQueueRefused(Event):
    """The error queue did not take a message; it stays where it was, its row or its queue, backed off."""

    name = "error_queue_refused"
    level = logging.ERROR
    message_id: str
    error_queue: str
    error: str
    next_attempt_at: datetime | None


@dataclass(frozen=True, slots=True)
class Expired(Event):
    """A message was dropped because its `expires_after` was over before it could be handed over."""

    name = "expired"
    level = logging.WARNING
    message_id: str
    destination: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Removed(Event):
    """Rows of handed-over messages were deleted. `missed` were gone or changed: a copy may go out twice."""

    name = "removed"
    count: int
    missed: int


@dataclass(frozen=True, slots=True)
class RemoveFailed(Event):
    """Deleting rows failed; they are tried again, and may be delivered twice."""

    name = "remove_failed"
    level = logging.WARNING
    count: int
    error: str


@dataclass(frozen=True, slots=True)
class PassFinished(Event):
    """One pass over the due rows is done; `next_at` is when the next one has work, if that is known."""

    name = "pass_finished"
    term: int
    handed_over: int
    failed: int
    moved_to_error_queue: int
    waiting: int
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class PassFailed(Event):
    """A pass ended in an error; it is tried again after `retry_in_s` seconds."""

    name = "pass_failed"
    level = logging.WARNING
    error: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class Throttled(Event):
    """The service was busy; fewer sends run at once now."""

    name = "throttled"
    level = logging.WARNING
    concurrency: int
    error: str


@dataclass(frozen=True, slots=True)
class PayloadsSwept(Event):
    """Large bodies past their age were removed."""

    name = "payloads_swept"
    level = logging.INFO
    count: int


@dataclass(frozen=True, slots=True)
class DuplicateDropped(Event):
    """A delivery was acknowledged unseen: its large body was already received under the same id."""

    name = "duplicate_dropped"
    level = logging.INFO
    message_id: str
    queue: str


@dataclass(frozen=True, slots=True)
class PoisonMoved(Event):
    """A queue message that can't be read went to the error queue as it is."""

    name = "poison_moved"
    level = logging.ERROR
    native_id: str
    queue: str
    error_queue: str
    reason: str


@dataclass(frozen=True, slots=True)
class RequestsCounted(Event):
    """Requests of this process to its storage accounts since the last such record, and their list price.

    `counts`: by operation and outcome (ok, refused, throttled, failed). `unpriced`: operations that the
    table of prices lacks, so that `cost` is too low.
    """

    name = "requests_counted"
    level = logging.INFO
    covered_s: float
    requests: int
    counts: dict[str, dict[str, int]]
    handed_over: int
    cost: float
    currency: str
    unpriced: tuple[str, ...]


EVENTS: tuple[type[Event], ...] = (
    Scheduled,
    Cancelled,
    Rescheduled,
    TermBegan,
    TermEnded,
    TermLost,
    LeaseReleased,
    LeaseFailed,
    ClockUnsure,
    HandedOver,
    DispatchFailed,
    MovedToErrorQueue,
    ErrorQueueRefused,
    Expired,
    Removed,
    RemoveFailed,
    PassFinished,
    PassFailed,
    Throttled,
    PayloadsSwept,
    DuplicateDropped,
    PoisonMoved,
    RequestsCounted,
)
