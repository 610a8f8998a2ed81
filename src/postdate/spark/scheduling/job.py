"""The job: plans buckets, has them stored, and keeps a manifest by which a stopped run goes on.

    run.json        what is to be done: begun when, how many rows in how many buckets, the plan's fingerprint
    bucket/<n>      what became of the rows of a bucket; its task writes it when the last of them is stored
    manifest.json   the sum of all, written at the end

They lie under `bulk/schedule/<run>/` in the endpoint's container. A bucket without a document is stored
(again) by the next call with the same run: row keys depend on the messages alone, so nothing is there twice.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import chain

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from postdate.backends.azure_storage.bulk_blobs import BulkBlobs, check_run
from postdate.clock import SystemClock
from postdate.engine.handover import know_the_time
from postdate.engine.receiving import need_delays
from postdate.errors import PostdateError, UsageError
from postdate.spark import tasks
from postdate.spark.reference import SettingsReference
from postdate.spark.running import Progress, run_action
from postdate.spark.scheduling.buckets import (
    ROWS_PER_BUCKET,
    Plan,
    hour_column,
    identity_column,
    plan,
    with_buckets,
)
from postdate.spark.scheduling.messages import check_columns, message_column
from postdate.spark.scheduling.storing import Stored, judged, store
from postdate.spark.tasks import azure_backend, iterate, opened

_ANSWER = "bucket int, stored binary"
_MESSAGE, _BUCKET, _VERDICT = "message", "bucket", "_postdate"
REASON = "reason"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What a run did."""

    run: str
    #: Rows of the input.
    rows: int
    #: Messages that wait now, by this run.
    stored: int
    #: Of those, how many had a row before: an earlier call, or a task that ran twice.
    already_there: int
    #: Rows of the input that say again what another one says: same id, destination and due time.
    repeated: int
    refused: int
    #: Refused rows, a few of them: message id and reason.
    examples: tuple[tuple[str, str], ...]
    #: Of the row keys: the sum of their hashes, 32 hex digits.
    checksum: str
    buckets: int
    #: Buckets that an earlier call had stored.
    resumed: int
    seconds: float


class _Begun(msgspec.Struct):
    began_at: datetime
    plan: str


def schedule(
    frame: DataFrame,
    settings: SettingsReference,
    *,
    run: str,
    quarantine: str | None = None,
    rows_per_bucket: int = ROWS_PER_BUCKET,
    progress: Progress | None = None,
) -> Scheduled:
    """Make waiting rows of all messages of a frame, by the rules of `Endpoint.schedule`.

    A row that is refused keeps none of the others out. The same `run` again goes on where it was stopped, and
    tries again what was refused; where nothing is left, it tells what was done.

    Args:
        frame: columns as `postdate.spark.scheduling.messages` lists them; it is read twice, or three times.
        settings: where driver and tasks find the endpoint's settings.
        run: a name for this load, like `trial-expiry-2026-11`.
        quarantine: a path for Spark: refused rows are written there as Parquet, as they came, with `reason`;
            what is there is replaced.
        rows_per_bucket: about so many go to one task, and are stored again where one is killed.
        progress: told how many tasks have ended, of how many.

    Raises:
        UsageError: the frame can't hold messages, or is not the one that the run began with.
        StorageError: the service failed; the same call goes on.
    """
    check_columns(frame)
    clock = SystemClock()
    started = clock.monotonic()
    job = _Job(frame.sparkSession, settings, check_run(run), progress)
    begun = tasks.run(job.begun)
    messages = frame.select(message_column(frame, began_at=begun.began_at).alias(_MESSAGE))
    buckets = job.plan(messages, rows_per_bucket)
    earlier = tasks.run(partial(job.confirm, begun, buckets))
    later = job.store(messages, buckets, earlier) if len(earlier) < buckets.count else {}
    total = sum((*earlier.values(), *later.values()), Stored())
    if quarantine is not None and total.refused:
        refused = refused_rows(frame, settings, began_at=begun.began_at)
        run_action(job.session, partial(refused.write.mode("overwrite").parquet, quarantine), progress)
    result = Scheduled(
        run=run,
        rows=buckets.rows,
        stored=total.stored,
        already_there=total.already_there,
        repeated=total.repeated,
        refused=total.refused,
        examples=tuple(total.examples),
        checksum=total.checksum,
        buckets=buckets.count,
        resumed=len(earlier),
        seconds=round(clock.monotonic() - started, 3),
    )
    tasks.run(partial(job.finish, result))
    return result


def refused_rows(frame: DataFrame, settings: SettingsReference, *, began_at: datetime) -> DataFrame:
    """The rows of a frame that `schedule` refuses, as they came, with column `reason`; nothing is stored.

    Raises:
        UsageError: the frame can't hold messages at all.
    """
    check_columns(frame)
    names = frame.columns
    judged_frame = frame.withColumn(_VERDICT, message_column(frame, began_at=began_at))
    answer = StructType([*frame.schema.fields, StructField(REASON, StringType())])

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return iterate(lambda: _judge(settings, batches, names))

    return judged_frame.mapInArrow(judge, answer)


async def _judge(
    settings: SettingsReference, batches: Iterable[pa.RecordBatch], names: Sequence[str]
) -> AsyncGenerator[pa.RecordBatch, None]:
    async with opened(settings) as endpoint:
        for batch in batches:
            rows = batch.column(_VERDICT).to_pylist(maps_as_pydicts="strict")
            verdicts = await judged(endpoint, rows)
            reasons = [str(one) if isinstance(one, PostdateError) else None for one in verdicts]
            picked = [n for n, reason in enumerate(reasons) if reason is not None]
            kept = batch.select(names).take(pa.array(picked, pa.int64()))
            yield kept.append_column(REASON, pa.array([reasons[n] for n in picked], pa.string()))


class _Job:
    """One call: its documents, and what Spark does for it."""

    def __init__(
        self, session: SparkSession, settings: SettingsReference, run: str, progress: Progress | None
    ) -> None:
        self.session = session
        self._settings = settings
        self._folder = f"schedule/{run}"
        self._progress = progress

    async def begun(self) -> _Begun:
        """How the run began: by an earlier call, or now by the service's clock."""
        async with opened(self._settings) as endpoint:
            need_delays(endpoint.settings)
            text = await azure_backend(endpoint).bulk.get(f"{self._folder}/run.json")
            if text is not None:
                return msgspec.json.decode(text, type=_Begun)
            await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
            return _Begun(endpoint.parts.clock.now(), "")

    def plan(self, messages: DataFrame, rows_per_bucket: int) -> Plan:
        """Buckets by the rows of each hour."""
        counts = messages.groupBy(hour_column(f.col(f"{_MESSAGE}.due_time")).alias("hour")).agg(
            f.count("*").alias("rows"), f.sum(identity_column(_MESSAGE)).alias("identities")
        )
        found = run_action(self.session, counts.orderBy("hour").collect, self._progress)
        return plan(
            ((row["hour"], row["rows"]) for row in found),
            rows_per_bucket=rows_per_bucket,
            identities=sum(row["identities"] for row in found),
        )

    async def confirm(self, begun: _Begun, buckets: Plan) -> dict[int, Stored]:
        """Write down how the run begins, or check that it goes on alike; buckets that are done.

        Raises:
            UsageError: the input is not what it was.
        """
        async with opened(self._settings) as endpoint:
            bulk, name = azure_backend(endpoint).bulk, f"{self._folder}/run.json"
            begins = await bulk.begin(name, _Begun(begun.began_at, buckets.fingerprint))
            if not begins and (begun.plan or await self._plan_of(bulk, name)) != buckets.fingerprint:
                raise UsageError(
                    f"run {self._folder.partition('/')[2]!r} began with other rows (by message id, "
                    "destination and due time) or rows_per_bucket; give the same input again, or another "
                    "name for the run"
                )
            done = {}
            async for found in bulk.names(f"{self._folder}/bucket/"):
                text = await bulk.get(found)
                stored = Stored.read(text) if text is not None else None
                # What was refused may be accepted by now.
                if stored is not None and not stored.refused:
                    done[int(found.rpartition("/")[2])] = stored
            return done

    async def _plan_of(self, bulk: BulkBlobs, name: str) -> str:
        text = await bulk.get(name)
        return "" if text is None else msgspec.json.decode(text, type=_Begun).plan

    def store(self, messages: DataFrame, buckets: Plan, done: Mapping[int, Stored]) -> dict[int, Stored]:
        """Have all buckets stored that are not done."""
        settings, folder = self._settings, self._folder
        rest = with_buckets(messages, self.session, buckets)
        if done:
            rest = rest.where(~f.col(_BUCKET).isin(list(done)))
        # One bucket in each partition; rows by hour, and the same message again right behind the first.
        ordered = rest.repartitionById(buckets.count, _BUCKET).sortWithinPartitions(
            f"{_MESSAGE}.due_time", f"{_MESSAGE}.message_id", f"{_MESSAGE}.destination"
        )

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return store_bucket(settings, folder, batches)

        answers = run_action(self.session, ordered.mapInArrow(task, _ANSWER).collect, self._progress)
        return {row[_BUCKET]: Stored.read(bytes(row["stored"])) for row in answers}

    async def finish(self, result: Scheduled) -> None:
        """Write the manifest."""
        async with opened(self._settings) as endpoint:
            await azure_backend(endpoint).bulk.put(f"{self._folder}/manifest.json", asdict(result))


def store_bucket(
    settings: SettingsReference, folder: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The whole of a task: the rows of one bucket become rows of the table, then its document is written."""
    first = next(batches, None)
    if first is None:
        return
    bucket = first.column(_BUCKET)[0].as_py()

    def messages() -> Iterator[pa.RecordBatch]:
        for batch in chain([first], batches):
            yield pa.RecordBatch.from_struct_array(batch.column(_MESSAGE))

    async def work() -> Stored:
        async with opened(settings) as endpoint:
            stored = await store(endpoint, messages())
            await azure_backend(endpoint).bulk.put(f"{folder}/bucket/{bucket}", asdict(stored))
            return stored

    stored = tasks.run(work)
    yield pa.RecordBatch.from_arrays(
        [pa.array([bucket], pa.int32()), pa.array([stored.json()], pa.binary())], names=[_BUCKET, "stored"]
    )
