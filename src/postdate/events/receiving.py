"""Of received messages: handling, retries, and what ends in the error queue."""

import logging
from dataclasses import dataclass
from datetime import datetime

from postdate.events.base import Event


@dataclass(frozen=True, slots=True)
class Handled(Event):
    """A handler did its work, what it sent is out, and the message is gone. `attempts` counts in all."""

    name = "handled"
    message_id: str
    queue: str
    handler: str
    attempts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ImmediateRetryAsked(Event):
    """An attempt failed; the message is visible again. `attempts` counts in all."""

    name = "immediate_retry_asked"
    level = logging.INFO
    message_id: str
    queue: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class DelayedRetryAsked(Event):
    """An attempt failed; the message comes again after `delay_s` seconds. `retry` counts delayed retries."""

    name = "delayed_retry_asked"
    level = logging.WARNING
    message_id: str
    queue: str
    attempts: int
    retry: int
    delay_s: float
    due_at: datetime
    error: str


@dataclass(frozen=True, slots=True)
class MessageFailed(Event):
    """Handling was given up; the message lies in the error queue."""

    name = "message_failed"
    level = logging.ERROR
    message_id: str
    queue: str
    error_queue: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class MessageDiscarded(Event):
    """The policy dropped a message that could not be handled."""

    name = "message_discarded"
    level = logging.WARNING
    message_id: str
    queue: str
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class MessageReturned(Event):
    """A message went back into its queue, and nothing counts as failed. `reason` says why."""

    name = "message_returned"
    level = logging.INFO
    message_id: str
    queue: str
    delay_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class RecoveryFailed(Event):
    """A failed message could not be put back, off or away; it stays, and is tried after `retry_in_s`."""

    name = "recovery_failed"
    level = logging.ERROR
    message_id: str
    queue: str
    error: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class MessageLost(Event):
    """With at most once, a message could be put neither into the error queue nor back: it is gone."""

    name = "message_lost"
    level = logging.ERROR
    message_id: str
    queue: str
    error: str


@dataclass(frozen=True, slots=True)
class PolicyFailed(Event):
    """A recoverability policy, or a callable beside it, raised or made no sense; the default did its work."""

    name = "policy_failed"
    level = logging.ERROR
    message_id: str
    error: str


@dataclass(frozen=True, slots=True)
class HandlerSlow(Event):
    """A handler has worked for `seconds` and goes on; its message is kept hidden. `where`: at which line."""

    name = "handler_slow"
    level = logging.WARNING
    message_id: str
    handler: str
    seconds: float
    where: str


@dataclass(frozen=True, slots=True)
class HandlerAbandoned(Event):
    """A handler went on after it was cancelled; its message failed, and it holds a place until it ends."""

    name = "handler_abandoned"
    level = logging.ERROR
    message_id: str
    handler: str
    where: str


@dataclass(frozen=True, slots=True)
class NoPlaceLeft(Event):
    """All places are taken by handlers that go on past their time: no message is handled until one ends."""

    name = "no_place_left"
    level = logging.ERROR
    queue: str
    places: int
    handlers: str


@dataclass(frozen=True, slots=True)
class LoopBlocked(Event):
    """A handler kept the event loop from everything else for `seconds`. `where`: the line it was at."""

    name = "loop_blocked"
    level = logging.ERROR
    seconds: float
    where: str


@dataclass(frozen=True, slots=True)
class VisibilityLost(Event):
    """A message became visible while it was handled here: somebody else may handle it too."""

    name = "visibility_lost"
    level = logging.WARNING
    message_id: str
    queue: str


@dataclass(frozen=True, slots=True)
class AlreadyHandled(Event):
    """A message came again that was handled here and could not be acknowledged: it is gone now."""

    name = "already_handled"
    level = logging.INFO
    message_id: str
    queue: str


@dataclass(frozen=True, slots=True)
class ReceiveFailed(Event):
    """The queue could not be read; it is tried again after `retry_in_s` seconds."""

    name = "receive_failed"
    level = logging.WARNING
    queue: str
    error: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class SlowedDown(Event):
    """So many failures in a row that messages are taken one by one, with pauses."""

    name = "slowed_down"
    level = logging.WARNING
    queue: str
    failures: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class BackToSpeed(Event):
    """A message was handled: messages are taken at full speed again."""

    name = "back_to_speed"
    level = logging.INFO
    queue: str


EVENTS: tuple[type[Event], ...] = (
    Handled,
    ImmediateRetryAsked,
    DelayedRetryAsked,
    MessageFailed,
    MessageLost,
    MessageDiscarded,
    MessageReturned,
    RecoveryFailed,
    PolicyFailed,
    HandlerSlow,
    HandlerAbandoned,
    NoPlaceLeft,
    LoopBlocked,
    VisibilityLost,
    AlreadyHandled,
    ReceiveFailed,
    SlowedDown,
    BackToSpeed,
)
