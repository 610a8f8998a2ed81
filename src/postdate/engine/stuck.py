"""Handlers that go on although their time is over: a thread can't be cancelled, and each keeps a place.

When they have all places, no message is handled any more and nothing in here can change that: it is critical,
so that the process is started anew. It ends all the same: their threads keep no process from ending.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from postdate.errors import HandlerTimeout
from postdate.events import Events, NoPlaceLeft

_TEXT = "No message is handled any more: each place is taken by a handler that goes on past its time"

#: Name, text and last failure of what is critical (`Breakers.critical`).
OnCritical = Callable[[str, str, Exception], None]


class Stuck:
    """Counts them; tells once when no place is left, until one of them ends."""

    def __init__(self, queue: str, places: int, events: Events, on_critical: OnCritical) -> None:
        self._queue = queue
        self._places = places
        self._events = events
        self._on_critical = on_critical
        self._handlers: dict[asyncio.Task[object] | None, str] = {}
        #: Called when one more is stuck.
        self.on_change: Callable[[], None] = _nothing

    def __len__(self) -> int:
        """How many places they have."""
        return len(self._handlers)

    def __contains__(self, task: object) -> bool:
        """Whether a task does nothing any more but wait for such a handler."""
        return task in self._handlers

    @contextmanager
    def holding(self, handler: str) -> Iterator[None]:
        """The current task waits for one of them for the length of a block."""
        task = asyncio.current_task()
        self._handlers[task] = handler
        if len(self._handlers) == self._places:
            handlers = ", ".join(sorted(set(self._handlers.values())))
            self._events.emit(NoPlaceLeft(self._queue, self._places, handlers))
            self._on_critical("handlers", _TEXT, HandlerTimeout(f"{self._places} times {handlers}"))
        self.on_change()
        try:
            yield
        finally:
            del self._handlers[task]


def _nothing() -> None:
    pass
