"""The job: reads rows, error queue and log in the order in which nothing can slip between them, and judges.

A message goes from the table to the log, never back. So rows are read first, then the error queue, and the
log last, after its writers had time to write what happened before: what is in none of them is lost.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from postdate.clock import Clock, SystemClock
from postdate.core.error_selection import Selection
from postdate.engine.error_queue import ErrorQueue
from postdate.engine.handover import know_the_time
from postdate.errors import DestinationNotFound, UsageError
from postdate.model.delivery_log import LogOutcome
from postdate.spark import tasks
from postdate.spark.auditing.lateness import lateness
from postdate.spark.auditing.reconcile import (
    DEFECTS,
    FAILURES,
    LOG_COLUMNS,
    Verdict,
    check_expected,
    reconcile,
)
from postdate.spark.auditing.report import page
from postdate.spark.auditing.result import Audited, Example
from postdate.spark.reference import SettingsReference
from postdate.spark.running import Progress, run_action
from postdate.spark.source.log import UNREADABLE
from postdate.spark.tasks import opened

T = TypeVar("T")
LATE_AFTER = timedelta(seconds=5)
#: Messages of the error queue that are read: the driver holds their ids.
ERRORS_READ = 100_000
_EXAMPLES = 10
_KEY = ("message_id", "destination", "due_time")
#: What a text with a zone ends with.
_ZONE = r"([Zz]|[+-]\d\d:?\d\d)\s*$"
_NOTHING = (
    "nothing is expected: the delivery log holds no scheduled message; set POSTDATE_DELIVERY_LOG=true where "
    "messages are scheduled and handed over, or give what was scheduled"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How an audit reads."""

    #: Records from before are not read; None: all.
    since: datetime | None = None
    #: More than this is late.
    late_after: timedelta = LATE_AFTER
    #: How long writers of the log are given to write what they hold; default: twice the settings' interval.
    settle: timedelta | None = None
    #: A folder for Spark: all verdicts are written there as Parquet.
    verdicts: str | None = None
    #: A file of this machine for the report.
    html: Path | None = None


def audit(
    session: SparkSession,
    settings: SettingsReference,
    expected: DataFrame | None = None,
    reading: Reading | None = None,
    *,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Audited:
    """Reconcile what was scheduled with the delivery log, the waiting rows and the error queue.

    Args:
        session: to run in; `postdate.spark.register` it.
        settings: where driver and tasks find the endpoint's settings.
        expected: `message_id`, `destination`, `due_time` of what was scheduled; default: what the log says
            that senders scheduled.
        reading: limits, and what to write.
        progress: told how many tasks have ended.
        clock: of this machine, for tests.

    Raises:
        UsageError: nothing is expected, or it can't be told what.
        StorageError: the service failed.
    """
    reading, clock = reading or Reading(), clock or SystemClock()
    if reading.html is not None and not reading.html.absolute().parent.is_dir():
        raise UsageError(f"{reading.html}: the report is a file in a folder that exists")
    began = clock.monotonic()

    def act(action: Callable[[], T]) -> T:
        return run_action(session, action, progress)

    given = None if expected is None else _checked(expected, act)
    with _kept() as keep:
        as_of = tasks.run(lambda: _service_time(settings))
        waiting = keep(_load(session, settings, "postdate").select(*_KEY))
        act(waiting.count)
        errors, complete = tasks.run(lambda: _errors(settings))
        tasks.run(lambda: clock.sleep(_settle(settings, reading)))
        log = keep(_log_since(_load(session, settings, "postdate.log"), reading.since))
        records, gaps, unreadable = act(lambda: _look_at(log))
        in_errors = session.createDataFrame([(one,) for one in errors], "message_id string")
        asked = _scheduled(log, as_of) if given is None else given
        verdicts = keep(reconcile(asked, log, waiting, in_errors, late_after=reading.late_after))
        counts = act(lambda: _counts(verdicts, as_of - reading.late_after))
        if not counts:
            raise UsageError(_NOTHING)
        if reading.verdicts is not None:
            folder = reading.verdicts
            act(lambda: verdicts.drop("pairs").write.mode("overwrite").parquet(folder))
        by_verdict = {verdict.value: counts.get(verdict.value, (0, 0))[0] for verdict in Verdict}
        result = Audited(
            ok=not any(by_verdict[verdict.value] for verdict in FAILURES),
            as_of=as_of,
            messages=sum(by_verdict.values()),
            verdicts=by_verdict,
            overdue=counts.get(Verdict.WAITING.value, (0, 0))[1],
            late_after_s=reading.late_after.total_seconds(),
            log_records=records,
            log_gaps=gaps,
            log_unreadable=unreadable,
            error_queue_complete=complete,
            lateness=tuple(act(lambda: lateness(verdicts))),
            examples=tuple(act(lambda: _examples(verdicts, by_verdict))),
            seconds=clock.monotonic() - began,
        )
    if reading.html is not None:
        reading.html.write_text(page(result, settings.load().endpoint), encoding="utf-8")
    return result


@contextmanager
def _kept() -> "Iterator[Callable[[DataFrame], DataFrame]]":
    """Frames that are read once, and kept on the executors' disks until the end."""
    frames: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist(StorageLevel.DISK_ONLY))
        return frames[-1]

    try:
        yield keep
    finally:
        for frame in reversed(frames):
            frame.unpersist()


def _load(session: SparkSession, settings: SettingsReference, source: str) -> DataFrame:
    return session.read.format(source).options(**settings.options()).load()


def _settle(settings: SettingsReference, reading: Reading) -> float:
    wait = 2 * settings.load().delivery_log_interval if reading.settle is None else reading.settle
    return wait.total_seconds()


def _checked(expected: DataFrame, act: "Callable[[Callable[[], Row | None]], Row | None]") -> DataFrame:
    """What is expected, its due times as instants; refuses rows that say nothing of a message."""
    if dict(expected.dtypes).get("due_time") == "string":
        zoned = f.col("due_time").rlike(_ZONE)
        expected = expected.withColumn("due_time", f.when(zoned, f.try_to_timestamp(f.col("due_time"))))
    check_expected(expected)
    empty = f.exists(f.array(*(f.col(name).isNull() for name in _KEY)), lambda one: one)
    found = act(lambda: expected.agg(f.count_if(empty).alias("empty")).first())
    if found is not None and found["empty"]:
        raise UsageError(
            f"{found['empty']:,} rows of what is expected lack message_id, destination or due_time; a due "
            "time is a timestamp, or text with its zone like 2026-03-01T07:08:09Z"
        )
    return expected


def _log_since(log: DataFrame, since: datetime | None) -> DataFrame:
    kept = log if since is None else log.where(f.col("logged_at") >= f.lit(since))
    return kept.select(*LOG_COLUMNS)


def _scheduled(log: DataFrame, before: datetime) -> DataFrame:
    """What senders scheduled until the rows were looked at, by the log."""
    scheduled = f.col("outcome") == LogOutcome.SCHEDULED.value
    return log.where(scheduled & (f.col("logged_at") < f.lit(before)))


async def _service_time(settings: SettingsReference) -> datetime:
    async with opened(settings) as endpoint:
        await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
        return endpoint.parts.clock.now()


async def _errors(settings: SettingsReference) -> tuple[list[str], bool]:
    """Ids of what lies in the error queue, and whether those are all."""
    async with opened(settings) as endpoint:
        parts = endpoint.parts
        queue = ErrorQueue(parts.backend, parts.clock, endpoint.settings.error_queue)
        try:
            look = await queue.look(Selection(), limit=ERRORS_READ)
        except DestinationNotFound:
            return [], True
        return [message.message_id for message in look.messages], look.complete and not look.hidden


def _look_at(log: DataFrame) -> tuple[int, int, int]:
    """Records, those that are missing, and lines that are none."""
    outcome = f.col("outcome")
    row = log.agg(
        f.count("*").alias("records"),
        f.coalesce(f.sum(f.when(outcome == LogOutcome.GAP.value, f.col("count"))), f.lit(0)).alias("gaps"),
        f.count_if(outcome == UNREADABLE).alias("unreadable"),
    ).first()
    assert row is not None
    return row["records"], row["gaps"], row["unreadable"]


def _counts(verdicts: DataFrame, before: datetime) -> dict[str, tuple[int, int]]:
    """Of each verdict, how many, and how many of those were due before an instant."""
    due = f.count_if(f.col("due_time") < f.lit(before))
    rows = verdicts.groupBy("verdict").agg(f.count("*").alias("all"), due.alias("due")).collect()
    return {row["verdict"]: (row["all"], row["due"]) for row in rows}


def _examples(verdicts: DataFrame, counts: dict[str, int]) -> Iterable[Example]:
    found: list[Row] = []
    for verdict in DEFECTS:
        if counts[verdict.value]:
            found += verdicts.where(f.col("verdict") == verdict.value).limit(_EXAMPLES).collect()
    return [
        Example(
            row["verdict"],
            row["message_id"],
            row["destination"],
            _utc(row["due_time"]),
            _utc(row["visible_at"]),
            row["lateness_s"],
            row["deliveries"],
        )
        for row in found
    ]


def _utc(value: datetime | None) -> datetime | None:
    # Spark returns local time without a zone.
    return None if value is None else value.astimezone(UTC)
