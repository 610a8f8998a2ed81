"""Of the legacy timeout manager: what older endpoints left, and what became of it."""

import logging
from dataclasses import dataclass
from datetime import datetime

from postdate.events.base import Event


@dataclass(frozen=True, slots=True)
class TimeoutStored(Event):
    """A message of the timeouts queue was put into the store, until it is due."""

    name = "timeout_stored"
    timeout_id: str
    destination: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class TimeoutsCleared(Event):
    """A saga took back its timeouts; `count` of them were there."""

    name = "timeouts_cleared"
    saga_id: str
    count: int


@dataclass(frozen=True, slots=True)
class TimeoutTakenElsewhere(Event):
    """A timeout was gone when we had sent it; unless our copy was `withdrawn` it may come twice."""

    name = "timeout_taken_elsewhere"
    level = logging.WARNING
    timeout_id: str
    destination: str
    withdrawn: bool


@dataclass(frozen=True, slots=True)
class TimeoutFailed(Event):
    """Handing over a timeout failed. `counted`: it counts as an attempt (else the service was busy)."""

    name = "timeout_failed"
    level = logging.WARNING
    timeout_id: str
    destination: str
    attempts: int
    counted: bool
    error: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class TimeoutUnreadable(Event):
    """A timeout can't be read: it stays in the store, and is looked at again much later."""

    name = "timeout_unreadable"
    level = logging.ERROR
    timeout_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TimeoutLeftoversRemoved(Event):
    """Rows of a timeout whose removal, or whose storing, was interrupted long ago were removed."""

    name = "timeout_leftovers_removed"
    level = logging.INFO
    timeout_id: str


@dataclass(frozen=True, slots=True)
class TimeoutMessageFailed(Event):
    """A message to the timeout manager could not be handled; it comes again."""

    name = "timeout_message_failed"
    level = logging.WARNING
    message_id: str
    queue: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class TimeoutLookFailed(Event):
    """Looking for timeouts, or into the manager's queues, failed; tried again after `retry_in_s` seconds."""

    name = "timeout_look_failed"
    level = logging.WARNING
    error: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class TimeoutManagerFailing(Event):
    """Looking for timeouts has failed for `failing_s` seconds, at least as long as the setting allows."""

    name = "timeout_manager_failing"
    level = logging.ERROR
    failing_s: float
    error: str


@dataclass(frozen=True, slots=True)
class TimeoutStoreMissing(Event):
    """There is a timeouts queue and no store for what comes in: its messages are left where they are."""

    name = "timeout_store_missing"
    level = logging.WARNING
    queue: str
    way_out: str


@dataclass(frozen=True, slots=True)
class TimeoutManagerDrained(Event):
    """Store and queues are empty: the timeout manager can be switched off, and the queues can be deleted."""

    name = "timeout_manager_drained"
    level = logging.INFO
    queues: tuple[str, ...]
    way_out: str


EVENTS: tuple[type[Event], ...] = (
    TimeoutStored,
    TimeoutsCleared,
    TimeoutTakenElsewhere,
    TimeoutFailed,
    TimeoutUnreadable,
    TimeoutLeftoversRemoved,
    TimeoutMessageFailed,
    TimeoutLookFailed,
    TimeoutManagerFailing,
    TimeoutStoreMissing,
    TimeoutManagerDrained,
)
