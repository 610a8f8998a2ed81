"""Of leaving the legacy timeout manager behind."""

import logging
from dataclasses import dataclass

from postdate.events.base import Event


@dataclass(frozen=True, slots=True)
class TimeoutsMoved(Event):
    """Legacy timeouts became rows of the delays table. `left` were taken by others, or can't be moved."""

    name = "timeouts_moved"
    level = logging.INFO
    run: str
    moved: int
    left: int
    moved_in_all: int


@dataclass(frozen=True, slots=True)
class TimeoutsPutBack(Event):
    """Rows of the delays table became legacy timeouts again. `doubtful` may be delivered as well."""

    name = "timeouts_put_back"
    level = logging.INFO
    back: int
    doubtful: int
    back_in_all: int


EVENTS: tuple[type[Event], ...] = (TimeoutsMoved, TimeoutsPutBack)
