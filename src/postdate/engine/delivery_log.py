"""Writing the delivery log: gathers records as an observer of events, and writes them in the background.

Records wait in memory until `interval` is over or there are many, then go out as one block, to a file that
only this process writes: one per hour, a further one when that is full. Nothing waits for it: a dispatch adds
a line to a list, no more. What a crash loses is the list: the log's last seconds, never a message.

While the log can't be written the list grows up to `LIMIT_BYTES`; what comes then is dropped, counted, told
by one event, and stands in the log as a record `gap` as soon as it can be written again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from postdate.clock import Clock, either, wait_for
from postdate.core.backoff import retry_wait
from postdate.errors import PostdateError, StorageError
from postdate.events import (
    Cancelled,
    DeliveryLogFailed,
    DeliveryLogLost,
    Event,
    Events,
    Expired,
    HandedOver,
    MovedToErrorQueue,
    Rescheduled,
    Scheduled,
)
from postdate.model.delivery_log import LogOutcome, LogRecord, blob_name, encode_record, hour_of
from postdate.model.limits import APPEND_BLOCKS
from postdate.ports import Backend, DeliveryLogStore, LogDisplaced
from postdate.settings import Settings

#: Bytes that wait, at most.
LIMIT_BYTES = 16 * 1024 * 1024
#: Bytes of one block: few enough that one that must be sent again is sent soon.
BLOCK_BYTES = 1024 * 1024
#: So many records are written before the interval is over.
MANY_RECORDS = 2_000
#: What a line takes in memory beside its bytes.
_LINE_BYTES = 60
#: Files of hours that may still be written to.
_OPEN_FILES = 2
#: Files that are begun for one block, where each turns out to be taken.
_TRIES = 5
_REASON_CHARACTERS = 200
_RETRY_BASE_SECONDS, _RETRY_MAXIMUM_SECONDS = 1.0, 60.0
#: What is left at the end may take so long.
_CLOSE_SECONDS = 5.0


@dataclass(slots=True)
class _File:
    """Where an hour's lines go."""

    part: int = 1
    length: int = 0
    blocks: int = 0

    def begin_another(self) -> None:
        """This one takes no more."""
        self.part, self.length, self.blocks = self.part + 1, 0, 0


@dataclass(frozen=True, slots=True)
class LogWriterSettings:
    """What the writer needs to know."""

    endpoint: str
    #: A name that no other process has, and no other opening of the endpoint in this one.
    process: str
    interval: timedelta
    limit_bytes: int = LIMIT_BYTES
    blocks_per_file: int = APPEND_BLOCKS


class DeliveryLogWriter:
    """Gathers and writes."""

    def __init__(
        self, store: DeliveryLogStore, clock: Clock, events: Events, settings: LogWriterSettings
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._settings = settings
        self._random = Random()
        self._lines: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._files: dict[str, _File] = {}
        self._dropped = 0
        self._dropped_since: datetime | None = None
        self._waiting_since = clock.now()
        #: A block that was sent, and may be written: its hour, how many lines, the bytes.
        self._sent: tuple[str, int, bytes] | None = None
        self._failing = False

    # --- gathering --------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        """The observer: keeps what an event says of a message."""
        now = self._clock.now()
        record = self._record(event, now)
        if record is None:
            return
        line = encode_record(record)
        if self._dropped or self._bytes + len(line) + _LINE_BYTES > self._settings.limit_bytes:
            self._dropped += 1
            self._dropped_since = self._dropped_since or now
            return
        self._keep(now, line)

    def _keep(self, now: datetime, line: bytes) -> None:
        if not self._lines:
            self._waiting_since = now
        self._lines.append((hour_of(now), line))
        self._bytes += len(line) + _LINE_BYTES
        self._some.set()
        if len(self._lines) >= MANY_RECORDS:
            self._many.set()

    def _fill_gap(self) -> tuple[int, datetime]:
        """Say in the log what is missing there; how many records, and since when."""
        settings, now = self._settings, self._clock.now()
        count, since = self._dropped, self._dropped_since or now
        self._dropped, self._dropped_since = 0, None
        gap = LogRecord(now, LogOutcome.GAP, settings.endpoint, settings.process, count=count)
        self._keep(now, encode_record(gap))
        return count, since

    def _record(self, event: Event, now: datetime) -> LogRecord | None:
        more: dict[str, object] = {}
        match event:
            case Scheduled(path=path):
                outcome = LogOutcome.SCHEDULED
                more = {"path": path, "visible_at": _shown(event, now)}
            case HandedOver(handed_over_at=at, term=term, attempts=attempts):
                outcome = LogOutcome.HANDED_OVER
                visible_at = at + timedelta(seconds=event.hidden_for)
                more = {"handed_over_at": at, "visible_at": visible_at, "term": term, "attempts": attempts}
            case MovedToErrorQueue(attempts=attempts, reason=reason):
                outcome = LogOutcome.MOVED_TO_ERROR_QUEUE
                more = {"attempts": attempts, "reason": reason[:_REASON_CHARACTERS]}
            case Expired():
                outcome = LogOutcome.EXPIRED
            case Cancelled():
                outcome = LogOutcome.CANCELLED
            case Rescheduled(was_due_at=was, path=path):
                outcome = LogOutcome.RESCHEDULED
                more = {"was_due_time": was, "path": path, "visible_at": _shown(event, now)}
            case _:
                return None
        settings = self._settings
        return LogRecord(
            now,
            outcome,
            settings.endpoint,
            settings.process,
            event.message_id,
            event.destination,
            None if isinstance(event, MovedToErrorQueue) else event.due_at,
            **more,  # type: ignore[arg-type] # each by its name, above
        )

    # --- writing ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is gathered, until cancelled."""
        failures = 0
        while True:
            await self._some.wait()
            if failures:
                wait = retry_wait(
                    failures,
                    base_s=_RETRY_BASE_SECONDS,
                    maximum_s=_RETRY_MAXIMUM_SECONDS,
                    random=self._random,
                )
                await self._clock.sleep(wait)
            else:
                await wait_for(self._many, self._settings.interval.total_seconds(), self._clock)
            failures = 0 if await self._try_to_write() else failures + 1

    async def _try_to_write(self) -> bool:
        try:
            await self.write()
        except PostdateError as error:
            if not self._failing:
                self._failing = True
                self._events.emit(DeliveryLogFailed(str(error)))
            return False
        self._failing = False
        if self._dropped:  # there is room again
            self._events.emit(DeliveryLogLost(*self._fill_gap()))
        return True

    async def write(self) -> None:
        """Write all that waits.

        Raises:
            StorageError: some of it is not written; it waits on.
        """
        self._many.clear()
        while self._lines:
            # A block whose answer was lost is sent again as it was: with other lines it could double some.
            self._sent = self._sent or self._next_block()
            hour, count, block = self._sent
            await self._append(hour, block)
            self._sent = None
            for _ in range(count):
                _, line = self._lines.popleft()
                self._bytes -= len(line) + _LINE_BYTES
        self._some.clear()

    def _next_block(self) -> tuple[str, int, bytes]:
        """The first lines of one hour; how many; together."""
        hour, size, lines = self._lines[0][0], 0, list[bytes]()
        for of, line in self._lines:
            if of != hour or (lines and size + len(line) > BLOCK_BYTES):
                break
            lines.append(line)
            size += len(line)
        return hour, len(lines), b"".join(lines)

    async def _append(self, hour: str, block: bytes) -> None:
        file = self._file(hour)
        for _ in range(_TRIES):
            name = blob_name(hour, self._settings.process, file.part)
            try:
                file.length = await self._store.append(name, block, at=file.length)
            except LogDisplaced:
                file.begin_another()
                continue
            file.blocks += 1
            if file.blocks >= self._settings.blocks_per_file:
                file.begin_another()
            return
        raise StorageError(f"the delivery log can't be continued: somebody else writes {name} too")

    def _file(self, hour: str) -> _File:
        # The service's clock is an estimate that may step back a little, over the end of an hour.
        file = self._files.setdefault(hour, _File())
        while len(self._files) > _OPEN_FILES:
            del self._files[next(iter(self._files))]
        return file

    async def close(self) -> None:
        """Write what is left, within some seconds; tell what could not be written."""
        lost, since = 0, self._waiting_since
        if self._dropped:
            lost, since = self._fill_gap()
        await either(self._try_to_write(), self._clock.sleep(_CLOSE_SECONDS))
        if self._lines:
            lost, since = lost + len(self._lines) - bool(lost), self._waiting_since
        if lost:
            self._events.emit(DeliveryLogLost(lost, since))


def _shown(event: Scheduled | Rescheduled, now: datetime) -> datetime | None:
    """When its queue shows what a sender has put there."""
    return None if event.path == "row" else now + timedelta(seconds=event.hidden_for)


@asynccontextmanager
async def keeping_log(
    settings: Settings, backend: Backend, clock: Clock, events: Events, process: str
) -> AsyncIterator[None]:
    """Keep the log for the length of a block, where the settings ask for it."""
    if not settings.delivery_log:
        yield
        return
    endpoint = settings.endpoint or settings.table_name
    keeps = LogWriterSettings(endpoint, process, settings.delivery_log_interval)
    writer = DeliveryLogWriter(backend.delivery_log, clock, events, keeps)
    with events.told_to(writer.hear):
        task = asyncio.create_task(writer.run(), name="postdate-delivery-log")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await writer.close()
