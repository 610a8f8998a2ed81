"""What tasks run: one piece of work on one part, with everything opened by the task for itself."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from postdate.engine.handover import know_the_time
from postdate.model.legacy_move import fingerprint
from postdate.spark.migrating.documents import MODULUS, Documents, PartDocument
from postdate.spark.migrating.fence import Fence
from postdate.spark.migrating.opening import old_timeouts
from postdate.spark.migrating.parts import Worker
from postdate.spark.migrating.sources import Chosen, Range, Source
from postdate.spark.reference import SettingsReference
from postdate.spark.tasks import azure_backend, opened

Work = Callable[[Worker, int, Range], Awaitable[PartDocument]]


@dataclass(frozen=True, slots=True)
class Place:
    """What a task has to know of a run."""

    settings: SettingsReference
    run: str
    source: Source
    chosen: Chosen
    #: Of the call; None: it changes nothing.
    term: int | None = None


@asynccontextmanager
async def on_run(place: Place) -> AsyncIterator[Worker]:
    """What works on a run, as long as the term stands.

    Raises:
        UsageError: it does not, or the source can't be opened.
    """
    async with opened(place.settings) as endpoint, AsyncExitStack() as held:
        await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
        documents = Documents(azure_backend(endpoint).bulk, place.run)
        fence = None
        if place.term is not None:
            fence = Fence(documents, place.term, endpoint.parts.clock)
            await held.enter_async_context(fence.held())
        old = await held.enter_async_context(old_timeouts(endpoint, place.source, documents, fence))
        yield Worker(endpoint.parts.migration.ground, old, documents, place.chosen, fence)


async def on_part(place: Place, work: Work, part: int, within: Range) -> PartDocument:
    """Do a piece of work on a part."""
    async with on_run(place) as worker:
        return await work(worker, part, within)


async def look(worker: Worker, part: int, within: Range) -> PartDocument:  # noqa: ARG001 - as `move`
    """Judge what `move` would take; nothing is written."""
    document = PartDocument()
    total = 0
    async for batch in worker.old.read(within, worker.chosen.due_from):
        for one in await worker.judged(batch, document):
            total += fingerprint(one.delayed)
            document.staged += 1
    document.staged_sum = f"{total % MODULUS:032x}"
    return document


async def move(worker: Worker, part: int, within: Range) -> PartDocument:
    """Bring a part to its end."""
    return await worker.migrate(part, within)


async def give_back(worker: Worker, part: int, within: Range) -> PartDocument:  # noqa: ARG001 - as `move`
    """Give back what of a part is staged."""
    return await worker.give_back(part)
