"""Of breakers: a part of the engine that has failed for long."""

import logging
from dataclasses import dataclass
from datetime import datetime

from postdate.events.base import Event


@dataclass(frozen=True, slots=True)
class BreakerArmed(Event):
    """Something failed that did not fail before: if that goes on for the breaker's window, it triggers."""

    name = "breaker_armed"
    level = logging.INFO
    breaker: str
    error: str


@dataclass(frozen=True, slots=True)
class BreakerTriggered(Event):
    """It failed for so long that it is critical: `run` ends, unless `on_critical_error` says otherwise."""

    name = "breaker_triggered"
    level = logging.ERROR
    breaker: str
    text: str
    error: str
    since: datetime


@dataclass(frozen=True, slots=True)
class BreakerDisarmed(Event):
    """It works again; `triggered`: it had been critical."""

    name = "breaker_disarmed"
    level = logging.INFO
    breaker: str
    triggered: bool


EVENTS: tuple[type[Event], ...] = (BreakerArmed, BreakerTriggered, BreakerDisarmed)
