"""Dramatiq on Redis, with a delay."""

from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.wiring import Message, Recorder, Wiring
from postdate.clock import SystemClock

_wiring = Wiring.read()
_recorder = Recorder(_wiring)
_clock = SystemClock()
dramatiq.set_broker(RedisBroker(url=_wiring.url))


@dramatiq.actor
def note(number: int, due_ms: int) -> None:
    _recorder.note(number, due_ms)


def prepare() -> None:
    """Redis has no schema."""


def schedule(messages: Sequence[Message]) -> None:
    for number, due_ms in messages:
        # Dramatiq adds the delay to its own clock, cut to milliseconds as here: so none is early by design.
        delay_ms = max(0, due_ms - int(_clock.now().timestamp() * 1000))
        note.send_with_options(args=(number, due_ms), delay=delay_ms)
