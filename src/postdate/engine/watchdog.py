"""Tells when a handler keeps the event loop from everything else.

Nothing that runs on the loop can tell that, so a thread asks the loop for an answer, again and again. While
the loop is blocked no lease is renewed and no message prolonged: another process takes over, and this one
does nothing in its old term. What blocks belongs into a plain function, which runs in a thread.
"""

import asyncio
import itertools
import logging
import sys
import threading
import traceback
from collections.abc import Iterable
from types import FrameType
from typing import Self

from postdate.events import Events, LoopBlocked

#: Seconds without an answer that count as blocked.
_LIMIT_SECONDS = 5.0
#: Seconds between two questions.
_PAUSE_SECONDS = 1.0
#: Lines of a stack that are told.
_FRAMES = 3

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

    def __enter__(self) -> Self:
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
    return _lines(traceback.walk_stack(frame)) if frame is not None else "unknown"


def where_waits(work: object) -> str:
    """The lines at which a coroutine waits, innermost first."""
    frames: list[tuple[FrameType, int]] = []
    while isinstance(frame := getattr(work, "cr_frame", None), FrameType):
        frames.insert(0, (frame, frame.f_lineno))
        work = getattr(work, "cr_await", None)
    return _lines(frames) if frames else "unknown"


def _lines(frames: Iterable[tuple[FrameType, int]]) -> str:
    inner = itertools.islice(frames, _FRAMES)
    return " < ".join(f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{line})" for frame, line in inner)
