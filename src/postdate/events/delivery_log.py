"""Of the delivery log: when it can't be written, and what it lacks then."""

import logging
from dataclasses import dataclass
from datetime import datetime

from postdate.events.base import Event


@dataclass(frozen=True, slots=True)
class DeliveryLogFailed(Event):
    """The log can't be written; its records are kept in memory, as far as there is room. Told once."""

    name = "delivery_log_failed"
    level = logging.WARNING
    error: str


@dataclass(frozen=True, slots=True)
class DeliveryLogLost(Event):
    """Records were dropped since `since`, because the log could not be written. Messages were not."""

    name = "delivery_log_lost"
    level = logging.WARNING
    records: int
    since: datetime


EVENTS: tuple[type[Event], ...] = (DeliveryLogFailed, DeliveryLogLost)
