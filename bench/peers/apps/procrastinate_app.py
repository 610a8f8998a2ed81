"""Procrastinate on PostgreSQL."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

import procrastinate

from bench.peers.wiring import Message, Recorder, Wiring

_BATCH = 1_000

_wiring = Wiring.read()
_recorder = Recorder(_wiring)
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=_wiring.url))


@app.task(name="note")
async def note(number: int, due_ms: int) -> None:
    _recorder.note(number, due_ms)


# The manual's way to bring back what a killed worker had begun, at the manual's interval.
@app.periodic(cron="*/10 * * * *")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context: procrastinate.JobContext, timestamp: int) -> None:  # noqa: ARG001 - handed over by name
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


def prepare() -> None:
    """Open the connection; a new database gets the schema."""
    app.open()
    if not app.check_connection():
        app.schema_manager.apply_schema()


def schedule(messages: Sequence[Message]) -> None:
    for due_ms, together in groupby(messages, key=itemgetter(1)):
        deferrer = note.configure(schedule_at=datetime.fromtimestamp(due_ms / 1000, UTC))
        jobs = [{"number": number, "due_ms": due_ms} for number, _ in together]
        for start in range(0, len(jobs), _BATCH):
            deferrer.batch_defer(*jobs[start : start + _BATCH])
