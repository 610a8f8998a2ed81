"""The job `snapshot`: what waits, to Parquet; after the first time only what changed.

A snapshot is no transaction: rows are read one after the other while the endpoint works on, and each is as it
was at some instant between the manifest's `began_at` and `ended_at`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postdate.engine.handover import know_the_time
from postdate.errors import UsageError
from postdate.spark import tasks
from postdate.spark.failures import told_in_one_line
from postdate.spark.reference import SettingsReference
from postdate.spark.running import Progress, run_action
from postdate.spark.snapshots.entities import ENTITIES, PAYLOAD, EntitiesSource
from postdate.spark.snapshots.frames import DAY, GONE, KEYS, changed, checksum, due_day, gone, waiting
from postdate.spark.snapshots.manifests import (
    SCHEMA,
    Manifest,
    chain_of,
    pieces_of,
    snapshots,
    write_manifest,
)
from postdate.spark.tasks import opened
from postdate.spark.waiting import read_waiting

#: A row that changed since is written later than this before the base began: clocks of the service's
#: partitions may differ.
_MARGIN = timedelta(minutes=15)
_STEP = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Present:
    endpoint: str
    table: str
    now: datetime


def snapshot(
    session: SparkSession,
    settings: SettingsReference,
    folder: str,
    *,
    payloads: bool = False,
    whole: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Write what waits to a folder. The table is only read.

    Args:
        session: any session; our data sources are made known to it.
        settings: where driver and tasks find the endpoint's settings.
        folder: a path for Spark; one folder is for one endpoint.
        payloads: large bodies too, out of their blobs.
        whole: all rows, also where the folder has a snapshot.
        progress: told how many tasks have ended, of how many.

    Raises:
        UsageError: the folder is another endpoint's.
        StorageError: the table can't be read. What was written counts for nothing, and the next call is new.
    """
    folder = folder.rstrip("/")
    session.dataSource.register(EntitiesSource)
    present = tasks.run(partial(_present, settings))
    found = snapshots(session, folder)
    for one in found:
        if one.table != present.table:
            raise UsageError(
                f"{folder} holds snapshots of table {one.table} (endpoint {one.endpoint}); give table "
                f"{present.table} a folder of its own"
            )
    base = found[-1] if found and not whole else None
    began_at = max(present.now, found[-1].began_at + _STEP) if found else present.now
    name = f"{began_at:%Y%m%dT%H%M%S%fZ}"
    job = _Job(session, settings, folder, name, progress)
    if base is not None:
        before = job.before(chain_of(found, base.snapshot, folder))
        # Keys first: a message that is moved meanwhile is then here twice; the other way round, not at all.
        job.write(gone(before, read_waiting(session, settings, KEYS)))
        rows = job.read(payloads=payloads).where(f.col("written_time") >= f.lit(base.began_at - _MARGIN))
        job.write(changed(rows, before))
    else:
        job.write(job.read(payloads=payloads).withColumn(GONE, f.lit(False)))
    manifest = job.manifest(present, base, began_at, tasks.run(partial(_present, settings)).now)
    with told_in_one_line():
        write_manifest(session, folder, manifest)
    return manifest


async def _present(settings: SettingsReference) -> _Present:
    async with opened(settings) as endpoint:
        await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
        own = endpoint.settings
        return _Present(own.endpoint, own.table_name, endpoint.parts.clock.now())


class _Job:
    """One snapshot on its way."""

    def __init__(
        self,
        session: SparkSession,
        settings: SettingsReference,
        folder: str,
        name: str,
        progress: Progress | None,
    ) -> None:
        self._session = session
        self._settings = settings
        self._folder = folder
        self._name = name
        self._progress = progress

    def read(self, *, payloads: bool) -> DataFrame:
        """What waits, whole. Without their column nobody fetches payloads."""
        columns = [name for name in ENTITIES.names if payloads or name != PAYLOAD]
        rows = read_waiting(
            self._session, self._settings, columns, source=EntitiesSource.name(), schema=ENTITIES
        )
        return rows if payloads else rows.withColumn(PAYLOAD, f.lit(None).cast("binary"))

    def before(self, chain: list[Manifest]) -> DataFrame:
        """Keys, etags and due times of what waited then."""
        pieces = pieces_of(self._session, self._folder, [one.snapshot for one in chain])
        keys = pieces.select(*KEYS, "etag", "due_time", GONE, "snapshot")
        return waiting(keys, several=len(chain) > 1).select(*KEYS, "etag", "due_time")

    def write(self, pieces: DataFrame) -> None:
        """Add to the snapshot's files."""
        writer = pieces.withColumn(DAY, due_day()).write.mode("append").partitionBy(DAY)
        path = f"{self._folder}/rows/snapshot={self._name}"
        run_action(self._session, partial(writer.parquet, path), self._progress)

    def manifest(
        self, present: _Present, base: Manifest | None, began: datetime, ended: datetime
    ) -> Manifest:
        """From what lies in the files now."""
        pieces = pieces_of(self._session, self._folder, [self._name])
        there = ~f.col(GONE)
        sums = pieces.agg(
            f.count_if(there).alias("written"),
            f.count_if(f.col(GONE)).alias("removed"),
            f.count_if(f.col("unreadable").isNotNull()).alias("unreadable"),
            f.count_if(f.col("body_blob").isNotNull()).alias("large_bodies"),
            f.count_if(f.col(PAYLOAD).isNotNull()).alias("payloads"),
            checksum().alias("checksum"),
        )
        [row] = run_action(self._session, sums.collect, self._progress)
        chain = chain_of(snapshots(self._session, self._folder), base.snapshot, self._folder) if base else []
        names = [*(one.snapshot for one in chain), self._name]
        state = waiting(
            pieces_of(self._session, self._folder, names).select(*KEYS, GONE, "snapshot"), several=bool(base)
        )
        return Manifest(
            schema=SCHEMA,
            snapshot=self._name,
            base=base.snapshot if base else None,
            endpoint=present.endpoint,
            table=present.table,
            began_at=began,
            ended_at=max(began, ended),
            rows=run_action(self._session, state.count, self._progress),
            **row.asDict(),
        )
