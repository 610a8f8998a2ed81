"""Celery on Redis, with an ETA."""

from collections.abc import Sequence
from datetime import UTC, datetime

import celery

from bench.peers.wiring import Message, Recorder, Wiring

_wiring = Wiring.read()
_recorder = Recorder(_wiring)
app = celery.Celery("peer", broker=_wiring.url)
app.conf.update(
    task_ignore_result=True,
    # As the manual says for tasks that must not be lost with their worker.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True,
)


@app.task(name="note")
def note(number: int, due_ms: int) -> None:
    _recorder.note(number, due_ms)


def prepare() -> None:
    """Redis has no schema."""


def schedule(messages: Sequence[Message]) -> None:
    for number, due_ms in messages:
        note.apply_async((number, due_ms), eta=datetime.fromtimestamp(due_ms / 1000, UTC))
