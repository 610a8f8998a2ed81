"""The job: the driver leads and plans, tasks hand over, and the lease's id ties both together.

    bulk/drain/<term>/task/<n>   what the attempts of a task claim, and what the one that ended did
    bulk/drain/<term>/stop       asks all tasks to stop

They lie in the endpoint's container for as long as the drain runs. What is still waiting is all that another
drain, or any leader, needs to know to go on.
"""

import signal
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from postdate.clock import SystemClock
from postdate.endpoint import Endpoint
from postdate.engine.handover import know_the_time
from postdate.engine.receiving import need_delays
from postdate.errors import ConfigurationError, PostdateError
from postdate.model.keys import RowKey
from postdate.model.rowcodec import DUE_TIME
from postdate.settings import Guarantee
from postdate.spark import tasks
from postdate.spark.draining.leading import Leading, leading
from postdate.spark.draining.order import DrainOptions, Order, folder, shares, stop_mark
from postdate.spark.draining.tally import DONE, STOPPED, Claim, Tally
from postdate.spark.draining.task import ANSWER, drain_share
from postdate.spark.ranges import DueWindow, KeyRange, cut, hours
from postdate.spark.reference import SettingsReference
from postdate.spark.running import Progress, run_action
from postdate.spark.source.columns import due_of
from postdate.spark.tasks import azure_backend, iterate, opened

_KEYS = ("PartitionKey", "RowKey", DUE_TIME)


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain did. Counts are of messages."""

    #: The term in which it acted; 0: it did not come to lead before it was asked to stop.
    term: int
    #: `done`, `stopped` (it was asked to), or `lease lost`.
    end: str
    #: Due within the lookahead when it began.
    found: int
    handed_over: int
    #: Of those, how many went where.
    by_destination: Mapping[str, int]
    #: Dispatches that failed; the rows wait for their next attempt.
    failed: int
    moved_to_error_queue: int
    #: Dropped, because their `expires_after` was over.
    expired: int
    #: Found, and still there: left, failed, or in back-off.
    left: int
    #: Found and gone, and no task told: handed over by attempts that were killed, or removed by others.
    unheard: int
    #: May be there twice, at most.
    possible_duplicates: int
    tasks: int
    #: Attempts of tasks that ended without a word.
    killed_attempts: int
    #: From when it led.
    seconds: float


def drain(
    session: SparkSession,
    settings: SettingsReference,
    options: DrainOptions | None = None,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> Drained:
    """Hand over what is due, with all executors, as the endpoint's leader.

    Waits until it leads. Within a task the order is by due time. Ctrl-C and SIGTERM ask it to stop, and it
    returns what it did until then; a second one cuts it short. The same call again goes on.

    Args:
        session: whose executors do it; `local[2,4]` for two at once, and up to four attempts of each task.
        settings: where driver and tasks find the endpoint's settings.
        options: how to drain.
        stop: set it, from another thread, to end it cleanly: no task is amid a batch then.
        progress: told how many tasks have ended, of how many.

    Raises:
        UsageError: the options can't be.
        ConfigurationError: the endpoint's rows are not in a table.
        PostdateError: a task failed in all its attempts; what was handed over stays so.
    """
    options = options or DrainOptions()
    options.check()
    loaded = settings.load()
    need_delays(loaded)
    if loaded.store is not None:
        raise ConfigurationError(
            "drain reads the delays table by ranges of its keys, and POSTDATE_STORE names a store of your own"
        )
    asked = stop or threading.Event()
    with _interrupts(asked), leading(settings, asked, take_over=options.take_over) as led:
        if led is None:
            return _told(0, Tally(end=STOPPED), found=0, left=0, tasks=0, batch=0, seconds=0.0)
        return _Drain(session, settings, options, led, asked).run(progress)


class _Drain:
    """One drain, led."""

    def __init__(
        self,
        session: SparkSession,
        settings: SettingsReference,
        options: DrainOptions,
        led: Leading,
        asked: threading.Event,
    ) -> None:
        self._session = session
        self._settings = settings
        self._options = options
        self._led = led
        self._run = str(led.term)
        self._asked = asked
        self._marked = False
        self._found = 0

    def run(self, progress: Progress | None) -> Drained:
        """Plan, have it done, and tell."""
        clock = SystemClock()
        began = clock.monotonic()
        until = tasks.run(self._begin)
        order = self._order(list(cut(self._counted(until), self._options.rows_per_range)))
        tally = self._tally(order, progress) if order.shares else Tally()
        if self._asked.is_set() and tally.end == DONE and not order.shares:
            tally.end = STOPPED
        left = sum(map(len, iterate(partial(self._keys, until))))
        tasks.run(partial(self._clear, ""))
        loaded = self._settings.load()
        batch = 0 if loaded.guarantee is Guarantee.AT_MOST_ONCE else loaded.unremoved_limit
        return _told(
            self._led.term,
            tally,
            found=self._found,
            left=left,
            tasks=len(order.shares),
            batch=batch,
            seconds=round(clock.monotonic() - began, 3),
        )

    def _order(self, ranges: list[KeyRange]) -> Order:
        slots = self._session.sparkContext.defaultParallelism
        # A rate is divided by the tasks that run at once: there are no more of them than slots.
        most = slots if self._options.rates else None
        divided = shares(ranges, most) if ranges else []
        rates = {name.lower(): rate / max(1, len(divided)) for name, rate in self._options.rates.items()}
        return Order(self._run, self._led.term, self._led.lease_id, divided, rates)

    def _tally(self, order: Order, progress: Progress | None) -> Tally:
        settings = self._settings

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return drain_share(settings, order, batches)

        def look(done: int, total: int) -> None:
            self._pass_on()
            if progress is not None:
                progress(done, total)

        count = len(order.shares)
        frame = self._session.range(0, count, 1, count).mapInArrow(task, ANSWER)
        try:
            rows = run_action(self._session, frame.collect, look)
        except BaseException:
            with suppress(PostdateError):
                tasks.run(self._mark)  # tasks that still run end between two batches
            raise
        told = [Claim.read(bytes(row["told"])).told for row in rows]
        return sum((one for one in told if one is not None), Tally())

    def _pass_on(self) -> None:
        """Tell the tasks to stop, once we were asked to."""
        if self._asked.is_set() and not self._marked:
            tasks.run(self._mark)
            self._marked = True

    # --- what is asked of the service -------------------------------------------------------------

    async def _begin(self) -> datetime:
        """Clear what drains that were killed left behind; until when rows are due."""
        await self._clear("drain/")
        async with opened(self._settings) as endpoint:
            parts = endpoint.parts
            await know_the_time(parts.clock, parts.backend)
            return parts.clock.now() + parts.settings.lookahead

    def _counted(self, until: datetime) -> Iterator[RowKey]:
        for keys in iterate(partial(self._keys, until)):
            self._found += len(keys)
            yield from keys

    async def _keys(self, until: datetime) -> AsyncGenerator[list[RowKey], None]:
        """Page by page: a turn of the loop for each would take longer than reading it."""
        window = DueWindow(end=until)
        async with opened(self._settings) as endpoint:
            async for page in azure_backend(endpoint).scan().pages(hours(window).filter(), _KEYS):
                yield [one.key for one in page if window.holds(due_of(one))]

    async def _mark(self) -> None:
        async with opened(self._settings) as endpoint:
            await azure_backend(endpoint).bulk.put(stop_mark(self._run), {})

    async def _clear(self, under: str) -> None:
        async with opened(self._settings) as endpoint:
            await _delete_all(endpoint, under or folder(self._run))


async def _delete_all(endpoint: Endpoint, under: str) -> None:
    bulk = azure_backend(endpoint).bulk
    for name in [name async for name in bulk.names(under)]:
        with suppress(PostdateError):  # somebody who was killed claims it yet; a later drain clears it
            await bulk.delete(name)


@contextmanager
def _interrupts(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM ask to stop; a second one does what it did. Only the main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watched = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in watched}

    def asked(number: int, _frame: object) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop.set()

    for number in watched:
        signal.signal(number, asked)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(
    term: int, tally: Tally, *, found: int, left: int, tasks: int, batch: int, seconds: float
) -> Drained:
    known = tally.removed + tally.missed if batch else tally.sent + tally.moved + tally.expired
    return Drained(
        term=term,
        end=tally.end,
        found=found,
        handed_over=tally.sent,
        by_destination=dict(sorted(tally.handed_over.items())),
        failed=tally.failed,
        moved_to_error_queue=tally.moved,
        expired=tally.expired,
        left=left,
        unheard=max(0, found - left - known),
        possible_duplicates=tally.doubtful(batch) if batch else 0,
        tasks=tasks,
        killed_attempts=tally.unheard,
        seconds=seconds,
    )
