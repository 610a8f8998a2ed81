"""The job: old timeouts become rows of an endpoint, part by part; what is not completed can be given back."""

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from postdate.clock import SystemClock
from postdate.endpoint import Endpoint
from postdate.engine.handover import know_the_time
from postdate.engine.receiving import need_delays
from postdate.errors import UsageError
from postdate.legacy.ground import Selection
from postdate.spark import tasks
from postdate.spark.migrating.documents import Documents, Ending, PartDocument, Phase, RunDocument
from postdate.spark.migrating.fence import TRUST_SECONDS
from postdate.spark.migrating.opening import ranges
from postdate.spark.migrating.results import Migrated, MigrationStatus, told
from postdate.spark.migrating.sources import Chosen, Range, Source, SqlSource
from postdate.spark.migrating.working import Place, Work, give_back, look, move, on_part, on_run
from postdate.spark.reference import SettingsReference
from postdate.spark.running import Progress, run_action
from postdate.spark.tasks import azure_backend, opened

ROWS_PER_PART = 2_000
_ANSWER = "part bigint, done binary"
_PREVIEW = "preview"


def preview(
    session: SparkSession,
    settings: SettingsReference,
    source: Source,
    *,
    selection: Selection | None = None,
    rows_per_part: int = ROWS_PER_PART,
    progress: Progress | None = None,
) -> Migrated:
    """Judge every timeout as `migrate` would; nothing is written. `staged` tells what would be moved.

    Raises:
        UsageError: the source can't be used as it is described.
        StorageError: one of both ends did not answer.
    """
    job = _Job(session, settings, _PREVIEW, progress)
    chosen = Chosen.of(selection or Selection())
    found = list(ranges(settings, _checked(source), chosen.due_from, rows_per_part))
    done = job.on_parts(Place(settings, _PREVIEW, source, chosen), found, look)
    return job.told(Phase.PENDING, done, len(found))


def migrate(
    session: SparkSession,
    settings: SettingsReference,
    source: Source,
    *,
    run: str,
    selection: Selection | None = None,
    rows_per_part: int = ROWS_PER_PART,
    progress: Progress | None = None,
) -> Migrated:
    """Make rows of old timeouts. The same `run` again goes on, or tells what was done.

    Args:
        session: tasks work on it, one part each.
        settings: where driver and tasks find the endpoint's settings.
        source: where the timeouts are.
        run: a name for this migration.
        selection: which; what is due within its margin stays with the old manager.
        rows_per_part: about so many timeouts go to one task.
        progress: told how many tasks have ended, of how many.

    Raises:
        UsageError: other arguments than the run began with, or it was given up.
        PostdateError: counts or checksums differ; what is staged stays, the same call tries again.
        StorageError: the same call goes on.
    """
    job = _Job(session, settings, run, progress)
    chosen = Chosen.of(selection or Selection())
    begun = tasks.run(partial(job.begun, _checked(source), chosen))
    if begun is None:
        planned = tuple(ranges(settings, source, chosen.due_from, rows_per_part))
        begun = tasks.run(partial(job.begin, source, chosen, planned))
    ending = tasks.run(job.ending)
    if ending is not None:
        return job.told(ending.phase, ending.total, len(begun.parts))
    place = tasks.run(partial(job.lead, source, chosen))
    ending = tasks.run(partial(job.resumed, place))
    if ending is not None:
        return job.told(ending.phase, ending.total, len(begun.parts))
    total = job.on_parts(place, begun.parts, move)
    tasks.run(partial(job.end, place, Ending(Phase.COMPLETED, total)))
    return job.told(Phase.COMPLETED, total, len(begun.parts))


def abort(
    session: SparkSession, settings: SettingsReference, *, run: str, progress: Progress | None = None
) -> Migrated:
    """Give back what a run took and did not complete. Parts that are completed stay. Repeat it as you like.

    Raises:
        UsageError: there is no such run.
        StorageError: the same call goes on.
    """
    job = _Job(session, settings, run, progress)
    begun, ending = tasks.run(job.known), tasks.run(job.ending)
    if ending is not None and ending.phase is Phase.COMPLETED:
        return job.told(ending.phase, ending.total, len(begun.parts))
    place = tasks.run(partial(job.lead, begun.source, begun.chosen))
    ending = tasks.run(partial(job.given_up, place))
    if ending is not None:
        return job.told(ending.phase, ending.total, len(begun.parts))
    total = job.on_parts(place, begun.parts, give_back)
    tasks.run(partial(job.end, place, Ending(Phase.ABORTED, total)))
    return job.told(Phase.ABORTED, total, len(begun.parts))


def status(settings: SettingsReference, *, run: str) -> MigrationStatus:
    """How far a run came; needs no Spark session.

    Raises:
        UsageError: there is no such run.
    """
    return tasks.run(_Job(None, settings, run, None).status)


def _checked(source: Source) -> Source:
    return source.check() if isinstance(source, SqlSource) else source


class _Job:
    """One call: its documents, and what Spark does for it."""

    def __init__(
        self,
        session: SparkSession | None,
        settings: SettingsReference,
        run: str,
        progress: Progress | None,
    ) -> None:
        self._session = session
        self._settings = settings
        self._run = run
        self._progress = progress
        self._clock = SystemClock()
        self._started = self._clock.monotonic()

    def told(self, phase: Phase, total: PartDocument, parts: int) -> Migrated:
        """What the call answers."""
        return told(self._run, phase, total, parts, self._clock.monotonic() - self._started)

    def _documents(self, endpoint: Endpoint) -> Documents:
        return Documents(azure_backend(endpoint).bulk, self._run)

    async def begun(self, source: Source, chosen: Chosen) -> RunDocument | None:
        """How the run began; None: it did not.

        Raises:
            UsageError: with other arguments, or it was given up.
        """
        async with opened(self._settings) as endpoint:
            need_delays(endpoint.settings)
            await endpoint.parts.backend.store.next_due()  # is there a table?
            documents = self._documents(endpoint)
            found = await documents.begun()
            if found is None:
                return None
            if await documents.is_given_up():
                raise UsageError(f"run {self._run!r} was given up; take another name for the run")
            if (found.source, found.chosen) != (source, chosen):
                raise UsageError(
                    f"run {self._run!r} began with {found.source.name}, {found.chosen.shown}; not with "
                    f"{source.name}, {chosen.shown}: go on with the same, or take another name for the run"
                )
            return found

    async def begin(self, source: Source, chosen: Chosen, planned: tuple[Range, ...]) -> RunDocument:
        """Write down how it begins."""
        async with opened(self._settings) as endpoint:
            await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
            documents = self._documents(endpoint)
            document = RunDocument(source, chosen, endpoint.parts.clock.now(), planned)
            return await documents.begin(document)

    async def known(self) -> RunDocument:
        """How the run began.

        Raises:
            UsageError: it did not.
        """
        async with opened(self._settings) as endpoint:
            found = await self._documents(endpoint).begun()
            if found is None:
                raise UsageError(
                    f"endpoint {endpoint.settings.endpoint!r} has no migration run {self._run!r}"
                )
            return found

    async def ending(self) -> Ending | None:
        """How it ended."""
        async with opened(self._settings) as endpoint:
            return await self._documents(endpoint).ending()

    async def lead(self, source: Source, chosen: Chosen) -> Place:
        """Take the run's next term; when this returns, nobody of an earlier one changes anything more."""
        async with opened(self._settings) as endpoint:
            term = await self._documents(endpoint).take_term()
        if term > 1:
            await self._clock.sleep(TRUST_SECONDS)
        return Place(self._settings, self._run, source, chosen, term)

    async def resumed(self, place: Place) -> Ending | None:
        """Make ready to go on; or how it ended, before this term began.

        Raises:
            UsageError: it was given up.
        """
        async with on_run(place) as worker:
            ending = await worker.documents.ending()
            if ending is None:
                await worker.check_not_given_up()
                await worker.old.prepare()
            return ending

    async def given_up(self, place: Place) -> Ending | None:
        """From now on no task takes anything more; or how it was completed, before this term began."""
        async with on_run(place) as worker:
            ending = await worker.documents.ending()
            if ending is not None and ending.phase is Phase.COMPLETED:
                return ending
            await worker.documents.give_up()
            await worker.old.prepare()
            return None

    async def end(self, place: Place, ending: Ending) -> None:
        """Write how it ended, and drop the place for what was staged."""
        async with on_run(place) as worker:
            await worker.old.finish()
            await worker.documents.end(ending)

    async def status(self) -> MigrationStatus:
        """How far it came."""
        begun, ending = await self.known(), await self.ending()
        phases: list[Phase] = []
        total = PartDocument()
        async with opened(self._settings) as endpoint:
            documents = self._documents(endpoint)
            async for _, document in documents.parts():
                phases.append(document.phase)
                total.add(document)
            given_up = await documents.is_given_up()
        return MigrationStatus(
            run=self._run,
            phase=ending.phase if ending else Phase.ABORTING if given_up else Phase.PENDING,
            source=begun.source.name,
            due_from=begun.chosen.due_from.isoformat() if begun.chosen.due_from else None,
            began_at=begun.began_at.isoformat(),
            parts=len(begun.parts),
            parts_staged=phases.count(Phase.STAGED),
            parts_completed=phases.count(Phase.COMPLETED),
            parts_given_back=phases.count(Phase.GIVEN_BACK),
            total=total,
        )

    def on_parts(
        self,
        place: Place,
        parts: Sequence[Range],
        work: Work,
    ) -> PartDocument:
        """Have work done on each part, in tasks; the sum of what it tells."""
        total = PartDocument()
        if not parts:
            return total

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    done = tasks.run(partial(on_part, place, work, part, parts[part]))
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([part], pa.int64()), pa.array([msgspec.json.encode(done)], pa.binary())],
                        names=["part", "done"],
                    )

        assert self._session is not None
        frame = self._session.range(0, len(parts), 1, len(parts)).mapInArrow(task, _ANSWER)
        for row in run_action(self._session, frame.collect, self._progress):
            total.add(msgspec.json.decode(bytes(row["done"]), type=PartDocument))
        return total
