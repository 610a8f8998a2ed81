"""APScheduler with its jobs on PostgreSQL."""

from collections.abc import Sequence
from datetime import UTC, datetime

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from bench.peers.wiring import Message, Recorder, Wiring

_wiring = Wiring.read()
_recorder = Recorder(_wiring)
scheduler = BackgroundScheduler(
    jobstores={"default": SQLAlchemyJobStore(url=_wiring.url)},
    # By default a job that is more than a second late is not run at all.
    job_defaults={"misfire_grace_time": None},
    timezone=UTC,
)


def note(number: int, due_ms: int) -> None:
    _recorder.note(number, due_ms)


def prepare() -> None:
    """Open the job store and run nothing: only one process may run a store's jobs."""
    scheduler.start(paused=True)


def schedule(messages: Sequence[Message]) -> None:
    for number, due_ms in messages:
        scheduler.add_job(
            "bench.peers.apps.apscheduler_app:note",
            "date",
            id=str(number),
            args=(number, due_ms),
            run_date=datetime.fromtimestamp(due_ms / 1000, UTC),
        )
