"""What a record is, and who hears it."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all records. `name` is what logs and metrics call it; `level` is its logging level."""

    name: ClassVar[str] = ""
    level: ClassVar[int] = logging.DEBUG


Observer = Callable[[Event], None]

_log = logging.getLogger("postdate")


def log_event(event: Event) -> None:
    """The logging observer: `name key=value ...` under the logger `postdate.events`."""
    logger = _log.getChild("events")
    if logger.isEnabledFor(event.level):
        values = " ".join(f"{f.name}={_shown(getattr(event, f.name))}" for f in fields(event))
        logger.log(event.level, "%s %s", event.name, values, extra={"postdate_event": event})


def _shown(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return repr(value) if isinstance(value, str) else str(value)


class Events:
    """Hands each record to every observer."""

    def __init__(self, observers: Iterable[Observer] = (log_event,)) -> None:
        self._observers = list(observers)

    def observe(self, observer: Observer) -> None:
        """Add an observer."""
        self._observers.append(observer)

    @contextmanager
    def told_to(self, observer: Observer) -> Iterator[None]:
        """An observer for the length of a block."""
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)

    def emit(self, event: Event) -> None:
        """Tell everyone."""
        for observer in tuple(self._observers):
            try:
                observer(event)
            except Exception:  # noqa: BLE001 - whatever an observer raises, the others and the engine go on
                _log.exception("observer %r failed on %s", observer, event.name)
