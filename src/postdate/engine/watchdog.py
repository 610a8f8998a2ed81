"""Tells when a handler keeps the event loop from everything else.

Nothing that runs on the loop can tell that, so a thread asks the loop for an answer, again and again. While
the loop is blocked no lease is renewed and no message prolonged: another process takes over, and this one
does nothing in its old term. What blocks belongs into a plain function, which runs in a thread.
"""

import asyncio
import logging
import sys
import threading
import traceback

from postdate.events import Events, LoopBlocked

#: Seconds without an answer that count as blocked.
_LIMIT_SECONDS = 5.0
#: Seconds between two questions.
_PAUSE_SECONDS = 1.0

_log = logging.getLogger("postdate.receiver")


class Watchdog:
    """Watches the loop that it is entered on."""

    def __init__(
        self, events: Events, *, limit_s: float = _LIMIT_SECONDS, pause_s: float = _PAUSE_SECONDS
    ) -> None:
        self._events = events
        self._limit_s = limit_s
        self._pause_s = pause_s
        self._over = threading.Event()

    def __enter__(self) -> "Watchdog":
        self._over.clear()
        loop = asyncio.get_running_loop()
        watched = threading.get_ident()
        thread = threading.Thread(
            target=self._watch, args=(loop, watched), name="postdate-watchdog", daemon=True
        )
        thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, watched: int) -> None:
        while not self._over.wait(self._pause_s):
            answered = threading.Event()
            try:
                loop.call_soon_threadsafe(answered.set)
                if answered.wait(self._limit_s):
                    continue
                blocked_s = self._limit_s
                where = where_is(watched)
                _log.error("the event loop is blocked: %s; plain functions may block, async ones not", where)
                while not answered.wait(self._limit_s) and not self._over.is_set():
                    blocked_s += self._limit_s
                loop.call_soon_threadsafe(self._events.emit, LoopBlocked(blocked_s, where))
            except RuntimeError:  # the loop is closed
                return


def where_is(thread_id: int) -> str:
    """The line that a thread is at, and who called it, innermost first."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - there is no other way to ask
    if frame is None:
        return "unknown"
    return lines_of(traceback.extract_stack(frame, limit=_FRAMES))


_FRAMES = 3


def lines_of(stack: traceback.StackSummary) -> str:
    """A stack in one line, innermost first."""
    return " < ".join(f"{f.name} ({f.filename}:{f.lineno})" for f in reversed(stack))
