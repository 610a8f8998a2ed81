"""What happened, as records; observers listen.

Logs and metrics are observers like any other: they hear the same records as the tests. An observer is a
plain callable; it runs on the engine's loop, must be quick, and what it raises is logged and ignored.

The records are the whole vocabulary: `docs/reference/events.md` is checked against `EVENTS`.
"""

from postdate.events import delivery
from postdate.events.base import Event, Events, Observer, log_event
from postdate.events.delivery import (
    Cancelled,
    ClockUnsure,
    DispatchFailed,
    DuplicateDropped,
    ErrorQueueRefused,
    Expired,
    HandedOver,
    LeaseFailed,
    LeaseReleased,
    MovedToErrorQueue,
    PassFailed,
    PassFinished,
    PayloadsSwept,
    PoisonMoved,
    RemoveFailed,
    Removed,
    RequestsCounted,
    Rescheduled,
    Scheduled,
    TermBegan,
    TermEnded,
    TermLost,
    Throttled,
)

EVENTS: tuple[type[Event], ...] = delivery.EVENTS

__all__ = [
    "EVENTS",
    "Cancelled",
    "ClockUnsure",
    "DispatchFailed",
    "DuplicateDropped",
    "ErrorQueueRefused",
    "Event",
    "Events",
    "Expired",
    "HandedOver",
    "LeaseFailed",
    "LeaseReleased",
    "MovedToErrorQueue",
    "Observer",
    "PassFailed",
    "PassFinished",
    "PayloadsSwept",
    "PoisonMoved",
    "RemoveFailed",
    "Removed",
    "RequestsCounted",
    "Rescheduled",
    "Scheduled",
    "TermBegan",
    "TermEnded",
    "TermLost",
    "Throttled",
    "log_event",
]
