"""The job `restore`: rows of a snapshot back into the table, as they were.

A row whose key is there is left alone, so twice restored is once restored. What was handed over, cancelled or
moved since the snapshot is only known by a delivery log; without one it comes back, and is delivered again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postdate.backends.azure_storage.delayed_table import DelayedTable
from postdate.clock import SystemClock
from postdate.endpoint import Endpoint
from postdate.errors import UsageError
from postdate.model.delivery_log import LogOutcome
from postdate.model.keys import EPOCH, RowKey
from postdate.spark import tasks
from postdate.spark.failures import told_in_one_line, translated
from postdate.spark.forecasting.job import within
from postdate.spark.ranges import DueWindow
from postdate.spark.reference import SettingsReference
from postdate.spark.running import Progress, run_action
from postdate.spark.snapshots.entities import entity_json
from postdate.spark.snapshots.frames import KEYS, waiting
from postdate.spark.snapshots.manifests import chain_of, check_pieces, pieces_of, snapshots
from postdate.spark.tasks import azure_backend, opened

#: Rows inserted together: 10 full transactions.
CHUNK = 1_000
#: Outcomes after which a row is gone, whenever that was.
_DONE = (LogOutcome.HANDED_OVER, LogOutcome.MOVED_TO_ERROR_QUEUE, LogOutcome.EXPIRED)
#: After which the same message may have been scheduled again, and be in the snapshot by that.
_WITHDRAWN = (LogOutcome.CANCELLED, LogOutcome.RESCHEDULED)
_LOG = ("message_id", "destination", "due_time", "outcome")
_ANSWER = "restored bigint, already_there bigint, payloads bigint"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rows of a snapshot."""

    #: A condition in Spark's SQL on the columns of `postdate`, like `headers['tenant'] = 'a'`.
    where: str | None = None
    window: DueWindow = field(default_factory=DueWindow)
    destination: str | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    snapshot: str
    #: When the snapshot was begun.
    began_at: datetime
    #: Rows of the snapshot.
    rows: int
    #: Rows that are in the table by this call.
    restored: int
    #: Rows whose key was there, and which were left as they are; some by a task of this call that was killed.
    already_there: int
    #: Rows left out since the log tells that they were handed over, cancelled, moved or given up.
    left_out: int
    #: Large bodies that were stored, or found.
    payloads: int
    seconds: float


def restore(
    session: SparkSession,
    settings: SettingsReference,
    folder: str,
    *,
    snapshot: str | None = None,
    chosen: Chosen | None = None,
    log: DataFrame | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Insert a snapshot's rows where they are missing. The same call again changes nothing.

    Args:
        session: any session.
        settings: where driver and tasks find the settings of the endpoint whose table takes the rows.
        folder: of `snapshot`.
        snapshot: its name; None: the newest.
        chosen: which rows; None: all.
        log: the delivery log, as `postdate.log` reads it: what it says is gone is left out. Of another
            frame the columns `message_id`, `destination`, `due_time` and `outcome` are needed; `logged_at`
            and `was_due_time` are used where they are there.
        progress: told how many tasks have ended, of how many.

    Raises:
        UsageError: there is no such snapshot, its files are damaged, or the condition makes no sense.
        StorageError: the service failed; the same call goes on.
    """
    folder = folder.rstrip("/")
    clock = SystemClock()
    started = clock.monotonic()
    chain = chain_of(snapshots(session, folder), snapshot, folder)
    run_action(session, partial(check_pieces, session, folder, chain), progress)
    pieces = pieces_of(session, folder, [one.snapshot for one in chain])
    rows = filtered(waiting(pieces, several=len(chain) > 1), chosen or Chosen())
    left_out = 0
    if log is not None:
        ended = gone(rows, log, chain[-1].began_at)
        left_out = run_action(session, ended.count, progress)
        rows = rows.join(ended.select(*KEYS), list(KEYS), "left_anti")
    ordered = (
        rows.select(*KEYS, "due_time", "entity", "body", "body_blob", "payload")
        .repartitionByRange(*KEYS)
        .sortWithinPartitions(*KEYS)
    )

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield tasks.run(partial(_insert, settings, batches))

    answer = ordered.mapInArrow(task, _ANSWER).groupBy().sum()
    with told_in_one_line():
        [total] = run_action(session, answer.collect, progress)
    return Restored(
        snapshot=chain[-1].snapshot,
        began_at=chain[-1].began_at,
        rows=chain[-1].rows,
        restored=total[0] or 0,
        already_there=total[1] or 0,
        left_out=left_out,
        payloads=total[2] or 0,
        seconds=round(clock.monotonic() - started, 3),
    )


def filtered(rows: DataFrame, chosen: Chosen) -> DataFrame:
    """The rows that are chosen.

    Raises:
        UsageError: the condition can't be understood.
    """
    rows = within(rows, chosen.window)
    if chosen.destination is not None:
        rows = rows.where(f.lower("destination") == chosen.destination.lower())
    if chosen.where is None:
        return rows
    try:
        return rows.where(chosen.where)
    except PySparkException as error:
        reason = translated(str(error))
        raise UsageError(f"condition {chosen.where!r}: {reason}") from error


def gone(rows: DataFrame, log: DataFrame, taken_at: datetime) -> DataFrame:
    """Rows of a snapshot that the log tells of as gone: same message id, destination and due time.

    The due time, since a retry has its own. What moved to the error queue is told without one: then it is any
    that was over. A message that was withdrawn before the snapshot was taken has been scheduled again since.

    Raises:
        UsageError: the log lacks a column.
    """
    for name in _LOG:
        if name not in log.columns:
            raise UsageError(f"the log has no column {name}; there are {', '.join(log.columns)}")
    for name in ("logged_at", "was_due_time"):
        if name not in log.columns:
            log = log.withColumn(name, f.lit(None).cast("timestamp"))
    outcome, logged_at = f.col("outcome"), f.col("logged_at")
    since = logged_at.isNull() | (logged_at >= f.lit(taken_at))
    told = log.where(outcome.isin(*_values(_DONE)) | (outcome.isin(*_values(_WITHDRAWN)) & since)).select(
        f.col("message_id").alias("_id"),
        f.lower("destination").alias("_to"),
        f.when(outcome == LogOutcome.RESCHEDULED.value, f.col("was_due_time"))
        .otherwise(f.col("due_time"))
        .alias("_due"),
        f.when(outcome == LogOutcome.MOVED_TO_ERROR_QUEUE.value, logged_at).alias("_moved_at"),
    )
    due = f.col("due_time")
    same = (
        (f.col("message_id") == f.col("_id"))
        & (f.lower("destination") == f.col("_to"))
        & ((due == f.col("_due")) | (f.col("_due").isNull() & (due <= f.col("_moved_at"))))
    )
    return rows.join(told, same, "left_semi")


def _values(outcomes: Iterable[LogOutcome]) -> list[str]:
    return [outcome.value for outcome in outcomes]


async def _insert(settings: SettingsReference, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """The whole of a task: its rows become rows of the table."""
    restored = there = payloads = 0
    async with opened(settings) as endpoint:
        store = azure_backend(endpoint).store
        for batch in batches:
            for start in range(0, batch.num_rows, CHUNK):
                piece = batch.slice(start, CHUNK)
                payloads += await _put_payloads(endpoint, piece)
                made = await _insert_rows(store, piece)
                restored += made
                there += piece.num_rows - made
    arrays = [pa.array([value], pa.int64()) for value in (restored, there, payloads)]
    return pa.RecordBatch.from_arrays(arrays, names=["restored", "already_there", "payloads"])


async def _insert_rows(store: DelayedTable, piece: pa.RecordBatch) -> int:
    entities = {}
    for row in piece.select(["partition_key", "row_key", "entity", "body"]).to_pylist():
        entities[RowKey(row["partition_key"], row["row_key"])] = entity_json(row["entity"], row["body"])
    outcomes = await store.add_entities(entities)
    return sum(one.created for one in outcomes)


async def _put_payloads(endpoint: Endpoint, piece: pa.RecordBatch) -> int:
    """Large bodies first, so that no row names a blob that is not there."""
    column = piece.column("payload")
    picked = piece.filter(column.is_valid())
    due = picked.column("due_time").cast(pa.int64())
    for name, body, micros in zip(picked.column("body_blob"), picked.column("payload"), due, strict=True):
        keep_until = _keep_until(endpoint, micros.as_py())
        await endpoint.parts.backend.payloads.put(name.as_py(), body.as_py(), keep_until=keep_until)
    return int(picked.num_rows)


def _keep_until(endpoint: Endpoint, due_micros: int | None) -> datetime:
    due_at = endpoint.parts.clock.now() if due_micros is None else EPOCH + timedelta(microseconds=due_micros)
    try:
        return due_at + endpoint.settings.payload_retention
    except OverflowError:  # due when all years are over
        return due_at
