"""Draining what is due already: how fast, at what cost, and with which requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.data.tables.aio import TableClient
from azure.storage.queue.aio import QueueClient

from postdate import Endpoint
from postdate.backends.azure_storage.clients import API_VERSION
from postdate.bench.account import Account
from postdate.bench.classic import Classic
from postdate.bench.classic_storage import LeanStorage, SdkStorage
from postdate.bench.figures import Drain
from postdate.bench.ground import Ground
from postdate.bench.observe import Recorder, rate
from postdate.bench.workload import Messages, classic_entity
from postdate.clock import SystemClock
from postdate.concurrency import for_each
from postdate.errors import StorageError
from postdate.events import Event, Removed
from postdate.model.envelope import wrap
from postdate.model.keys import RowKey
from postdate.model.requests import Counts, RequestCounter, by_operation
from postdate.settings import Settings

#: Nothing is put for so long: the rest is not coming.
QUIET_SECONDS = 60.0
#: Sends and deletes under way at once in the plain loop, as classic has.
LOOP_CONCURRENCY = 50
_ADD_CHUNK = 2_000


@dataclass(slots=True)
class Drained:
    """The figures of one drain, and what is behind them."""

    drain: Drain
    #: Requests while it ran, by operation and outcome.
    requests: dict[str, dict[str, int]]
    #: From the start of the contender until its last row was gone.
    seconds_in_all: float
    #: Seconds that classic waited for its pages, which the emulator scans all rows for.
    reading_s: float | None = None
    #: Puts beyond the first of a message.
    duplicated: int = 0
    notes: list[str] = field(default_factory=list)


class Meter:
    """Processor time of ours and of the service, and requests, from `start` on."""

    def __init__(self, ground: Ground, requests: RequestCounter) -> None:
        self._ground = ground
        self._requests = requests
        self._clock = SystemClock()
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self._counts: Counts = self._requests.counts()
        self._server = self._ground.server_cpu()
        self._began = self._clock.monotonic()
        self._cpu = time.process_time()

    def stop(self, recorder: Recorder) -> Drained:
        """What it took to put all that the recorder saw."""
        client = time.process_time() - self._cpu
        in_all = self._clock.monotonic() - self._began
        server = self._ground.server_cpu() - self._server
        before = self._counts
        made = {key: count - before.get(key, 0) for key, count in self._requests.counts().items()}
        made = {key: count for key, count in made.items() if count}
        instants = recorder.instants()
        count = len({put.number for put in recorder.observed()})
        drain = Drain(
            messages=count,
            seconds=instants[-1] - instants[0],
            per_s=rate(instants),
            client_cpu_us=client / count * 1e6,
            server_cpu_us=server / count * 1e6,
            requests_per_message=sum(made.values()) / count,
        )
        return Drained(drain, by_operation(made), in_all, duplicated=len(instants) - count)


class Removals:
    """Counts the rows that an endpoint removed; an observer."""

    def __init__(self) -> None:
        self.count = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        if isinstance(event, Removed):
            self.count += event.count + event.missed
            if self.count >= self._wanted:
                self._reached.set()

    async def until(self, count: int) -> None:
        """Wait until so many rows are gone.

        Raises:
            StorageError: the last ones are not for a minute.
        """
        self._wanted = count
        if self.count >= count:
            return
        self._reached.clear()
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                await self._reached.wait()
        except TimeoutError:
            raise StorageError(f"{count - self.count} rows of what was put are not removed") from None


async def drain_postdate(
    ground: Ground,
    settings: Settings,
    count: int,
    *,
    before: Callable[[Endpoint], Awaitable[object]] | None = None,
) -> Drained:
    """The product, driven through its public face.

    Args:
        ground: where.
        settings: of the endpoint.
        count: how many.
        before: called when the rows are there, and nothing runs yet.

    Raises:
        StorageError: it stopped before all was done.
    """
    recorder, removals = Recorder(SystemClock()), Removals()
    async with Endpoint(settings, observers=[removals], wrap_transport=recorder.wrap) as endpoint:
        messages = Messages(settings, SystemClock(), ground.queue).overdue(count)
        for start in range(0, count, _ADD_CHUNK):
            await endpoint.parts.backend.store.add(messages[start : start + _ADD_CHUNK])
        if before is not None:
            await before(endpoint)
        meter = Meter(ground, endpoint.parts.backend.requests)
        async with running(endpoint.run):
            await finished(recorder, count)
            await removals.until(count)
            drained = meter.stop(recorder)
    return drained


async def drain_classic(ground: Ground, variant: type[LeanStorage | SdkStorage], count: int) -> Drained:
    """The classic algorithm.

    Raises:
        StorageError: it stopped before all was done.
    """
    recorder, clock = Recorder(SystemClock()), SystemClock()
    async with Account(ground.settings, recorder) as account:
        messages = Messages(ground.settings, clock, ground.queue)
        await account.insert([classic_entity(message) for message in messages.overdue(count)])
        classic = Classic(variant(account), clock)
        meter = Meter(ground, account.requests)
        async with running(classic.run):
            await finished(recorder, count)
            patience = clock.monotonic() + QUIET_SECONDS
            while classic.handed_over < count:
                if clock.monotonic() > patience:
                    raise classic.failure or StorageError("rows of what was put are not removed")
                await clock.sleep(0.005)
            drained = meter.stop(recorder)
    drained.reading_s = classic.reading_s
    if classic.failure is not None:
        drained.notes.append(f"a row was tried again: {classic.failure}")
    return drained


async def drain_sdk_loop(ground: Ground, count: int, *, shared_session: bool) -> Drained:
    """One send and one delete for each message with the plain SDK: rows and messages are at hand before.

    Args:
        ground: where.
        count: how many.
        shared_session: on a session without the environment's proxies and `.netrc`; else the SDK's default.
    """
    recorder, counter = Recorder(SystemClock()), RequestCounter()
    async with Account(ground.settings) as account:
        messages = Messages(ground.settings, SystemClock(), ground.queue).overdue(count)
        entities = [classic_entity(message) for message in messages]
        etags = await account.insert(entities)
        texts = [wrap(message.message) for message in messages]

        # Without `shared_session` the clients make their own transports, as a program does that says nothing.
        # The recorder stands in between, or nothing would be known of the puts.
        def transport() -> Any:
            if not shared_session:
                return recorder.wrap(AioHttpTransport())
            return recorder.wrap(account.plain_transport())

        place = account.endpoints
        queue = QueueClient(
            place.queue.url,
            ground.queue,
            credential=account.credential,
            api_version=API_VERSION,
            transport=transport(),
        )
        table = TableClient(
            place.table.url,
            ground.settings.table_name,
            credential=account.credential,
            transport=transport(),
        )
        async with queue, table:

            async def one(item: tuple[str, RowKey]) -> None:
                text, key = item
                await queue.send_message(text, visibility_timeout=0, time_to_live=-1)
                await table.delete_entity(key.partition, key.row)

            meter = Meter(ground, counter)
            await for_each(zip(texts, etags, strict=True), LOOP_CONCURRENCY, one)
            drained = meter.stop(recorder)
    # Nothing counts them here; there are no others.
    drained.requests = {"queue put message": {"ok": count}, "table delete": {"ok": count}}
    drained.drain["requests_per_message"] = 2.0
    return drained


@asynccontextmanager
async def running(run: Callable[[asyncio.Event], Awaitable[None]]) -> Any:
    """Something that runs until it is told to stop; what it raises is raised."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(run(stop))
    try:
        yield task
    finally:
        stop.set()
        await task


async def finished(recorder: Recorder, count: int, *, quiet_s: float = QUIET_SECONDS) -> None:
    """Wait until so many puts were answered.

    Raises:
        StorageError: none came for `quiet_s`.
    """
    waiting = asyncio.ensure_future(recorder.until(count))
    try:
        while not waiting.done():
            before = recorder.count
            await asyncio.wait({waiting}, timeout=quiet_s)
            if not waiting.done() and recorder.count == before:
                raise StorageError(f"{before} of {count} were put, and no more for {quiet_s:.0f} s")
    finally:
        waiting.cancel()
