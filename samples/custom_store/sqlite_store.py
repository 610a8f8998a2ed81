"""A delayed store in one SQLite file: `postdate.ports.DelayedStore` with the standard library alone.

Any number of processes of one machine may share the file. Needs SQLite 3.37 (`sqlite3.sqlite_version`).

- Every write is one transaction that begins with `BEGIN IMMEDIATE`: all of a call is durable, or nothing is.
  Nobody writes in between, so of two callers one adds a row, and one removes it.
- A row is found by due time and key, which is also the order of the file: what is due is its beginning.
- An etag is made of chance, and never comes again.
- SQLite's calls block, so they run in a thread of the store's own, one after the other. A call whose caller
  is cancelled runs to its end there: never half of a transaction.
"""

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from postdate import Settings, StorageError
from postdate.errors import NotProvisioned, OutcomeUnknown, ServiceBusy, StorageUnreachable
from postdate.model.keys import EPOCH, due_time
from postdate.model.limits import PAGE_ROWS
from postdate.model.rowcodec import decode_row, encode_row
from postdate.ports import AddResult, DelayedMessage, Guard, LeaseLost, Row, RowKey

T = TypeVar("T")
Columns = tuple[Any, ...]

_SCHEMA = """
CREATE TABLE delayed_message (
  due_us INTEGER NOT NULL,
  row_key TEXT NOT NULL,
  version TEXT NOT NULL,
  message_id TEXT NOT NULL,
  destination TEXT NOT NULL,
  headers TEXT NOT NULL,
  body BLOB NOT NULL,
  payload_ref TEXT,
  scheduled_us INTEGER,
  failure_count INTEGER NOT NULL,
  next_attempt_us INTEGER,
  PRIMARY KEY (due_us, row_key)
) STRICT, WITHOUT ROWID
"""
_INSERT = """
INSERT INTO delayed_message VALUES (
  :due_us, :row_key, :version, :message_id, :destination, :headers, :body, :payload_ref, :scheduled_us,
  :failure_count, :next_attempt_us
) ON CONFLICT DO NOTHING
"""
_PAGE = """
SELECT * FROM delayed_message WHERE (due_us, row_key) > (?, ?) AND due_us <= ?
ORDER BY due_us, row_key LIMIT ?
"""
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US, _LAST_US = -(2**63), 2**63 - 1


class SqliteStore:
    """`DelayedStore` in one file. Use it as an async context manager."""

    def __init__(self, path: str | Path, *, busy_timeout: timedelta = timedelta(seconds=5)) -> None:
        """Nothing is opened yet.

        Args:
            path: of the file; one for each endpoint.
            busy_timeout: how long a call waits while another process writes; then it is `ServiceBusy`.
        """
        self._path = Path(path)
        self._timeout_s = busy_timeout.total_seconds()
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def __aenter__(self) -> Self:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-store")
        try:
            await self._run(self._open)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        await self._run(self._close)  # after all that is under way
        self._thread.shutdown()

    def _open(self) -> None:
        # No transactions but those that are asked for: isolation_level=None.
        connection = sqlite3.connect(
            self._path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            # What is committed survives a power failure too, not only a crash of the process.
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection

    def _close(self) -> None:
        self._sql.close()

    async def create(self) -> bool:
        """Make the table; True if this call did."""
        return await self._run(self._create)

    async def add(self, messages: Sequence[DelayedMessage]) -> list[AddResult]:
        """Insert what is not there, all in one transaction."""
        return await self._run(partial(self._add, messages))

    async def due(self, until: datetime) -> AsyncIterator[Sequence[Row]]:
        """Pages of rows due by then."""
        async for page in self._pages(_FIRST_US, _us(until)):
            yield page

    async def next_due(self, after: datetime | None = None) -> datetime | None:
        """The earliest due time, or the earliest after an instant."""
        return await self._run(partial(self._next_due, _FIRST_US if after is None else _us(after)))

    async def remove(self, rows: Sequence[Row], guard: Guard | None = None) -> list[bool]:
        """Delete the versions that were read, all in one transaction."""
        return await self._run(partial(self._remove, rows, guard))

    async def update(self, row: Row, *, failure_count: int, next_attempt_at: datetime | None) -> str | None:
        """Write attempts and next-try time of the version that was read; its new etag."""
        return await self._run(partial(self._update, row, failure_count, next_attempt_at))

    async def get(self, key: RowKey) -> Row | None:
        """One row, or None."""
        return await self._run(partial(self._get, key))

    async def upcoming(
        self, *, start: datetime | None = None, end: datetime | None = None
    ) -> AsyncIterator[Row]:
        """Rows with `start <= due < end`."""
        first_us = _FIRST_US if start is None else _us(start)
        last_us = _LAST_US if end is None else _us(end) - 1
        async for page in self._pages(first_us, last_us):
            for row in page:
                yield row

    async def _pages(self, first_us: int, last_us: int) -> AsyncIterator[list[Row]]:
        """Pages between two instants, both included; the next begins behind the last row of this one.

        Each is a query of its own: between two of them nothing is held open, and rows may come and go.
        """
        place = (first_us, "")
        while True:
            page = await self._run(partial(self._page, place, last_us))
            if page:
                yield [_row(columns) for columns in page]
            if len(page) < PAGE_ROWS:
                return
            place = (page[-1][0], page[-1][1])

    # --- in the thread ----------------------------------------------------------------------------

    async def _run(self, work: Callable[[], T]) -> T:
        """Do it in the thread; errors of SQLite come out as ours."""

        def told() -> T:
            try:
                return work()
            except sqlite3.Error as error:
                raise self._translated(error) from error

        if self._thread is None:
            raise RuntimeError("the store is not open; use `async with SqliteStore(...) as store:`")
        return await asyncio.get_running_loop().run_in_executor(self._thread, told)

    def _translated(self, error: sqlite3.Error) -> StorageError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the rest tells details
        if "no such table" in str(error):
            return NotProvisioned(
                f"{self._path} holds no delayed messages yet; prepare it with `postdate setup`"
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return ServiceBusy(f"{self._path} is busy: somebody has been writing for {self._timeout_s:g} s")
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB):
            return StorageUnreachable(f"{self._path} can't be opened: {error}; is it a file of this store?")
        if code == sqlite3.SQLITE_IOERR:
            return OutcomeUnknown(f"{self._path} could not be read or written: {error}")
        return StorageError(f"{self._path}: {error}; nothing was changed")

    @property
    def _sql(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction beside which nobody writes."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._sql.execute("COMMIT")
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise

    def _create(self) -> bool:
        # Readers and a writer don't wait for each other. It is kept in the file.
        self._sql.execute("PRAGMA journal_mode = WAL")
        with self._writing():
            there = self._sql.execute("SELECT 1 FROM sqlite_schema WHERE name = 'delayed_message'").fetchone()
            if there is None:
                self._sql.execute(_SCHEMA)
        return there is None

    def _add(self, messages: Sequence[DelayedMessage]) -> list[AddResult]:
        results = []
        with self._writing():
            for message in messages:
                columns = _columns(message)
                created = self._sql.execute(_INSERT, columns).rowcount == 1
                version = columns["version"] if created else self._version(message.key)
                results.append(AddResult(message.key, version, created))
        return results

    def _version(self, key: RowKey) -> str:
        found = self._sql.execute(
            "SELECT version FROM delayed_message WHERE due_us = ? AND row_key = ?", _place(key)
        )
        return str(found.fetchone()[0])

    def _page(self, place: tuple[int, str], last_us: int) -> list[Columns]:
        return self._sql.execute(_PAGE, (*place, last_us, PAGE_ROWS)).fetchall()

    def _next_due(self, after_us: int) -> datetime | None:
        (due_us,) = self._sql.execute(
            "SELECT min(due_us) FROM delayed_message WHERE due_us > ?", (after_us,)
        ).fetchone()
        return None if due_us is None else _at(due_us)

    def _get(self, key: RowKey) -> Row | None:
        columns = self._sql.execute(
            "SELECT * FROM delayed_message WHERE due_us = ? AND row_key = ?", _place(key)
        ).fetchone()
        return None if columns is None else _row(columns)

    def _remove(self, rows: Sequence[Row], guard: Guard | None) -> list[bool]:
        with self._writing():
            # Only now: it may have waited for its turn.
            if guard is not None and not guard():
                raise LeaseLost
            return [
                self._sql.execute(
                    "DELETE FROM delayed_message WHERE due_us = ? AND row_key = ? AND version = ?",
                    (*_place(row.key), row.etag),
                ).rowcount
                == 1
                for row in rows
            ]

    def _update(self, row: Row, failure_count: int, next_attempt_at: datetime | None) -> str | None:
        version = _new_version()
        next_attempt_us = None if next_attempt_at is None else _us(next_attempt_at)
        with self._writing():
            changed = self._sql.execute(
                "UPDATE delayed_message SET failure_count = ?, next_attempt_us = ?, version = ?"
                " WHERE due_us = ? AND row_key = ? AND version = ?",
                (failure_count, next_attempt_us, version, *_place(row.key), row.etag),
            ).rowcount
        return version if changed else None


def open_store(settings: Settings) -> SqliteStore:
    """For POSTDATE_STORE=sqlite_store:open_store: a file in the current folder, named as the table is."""
    return SqliteStore(f"{settings.table_name}.db")


# --- values ---------------------------------------------------------------------------------------


def _us(instant: datetime) -> int:
    return (instant - EPOCH) // _MICROSECOND


def _at(us: int) -> datetime:
    return EPOCH + us * _MICROSECOND


def _new_version() -> str:
    return uuid.uuid4().hex


def _place(key: RowKey) -> tuple[int | None, str]:
    """Where a row stands. A key of somebody else tells no due time, and NULL finds no row."""
    due_at = due_time(key)
    return (None if due_at is None else _us(due_at)), key.row


def _columns(message: DelayedMessage) -> dict[str, Any]:
    return {
        "due_us": _us(message.due_at),
        "row_key": message.key.row,
        "version": _new_version(),
        "message_id": message.message.message_id,
        "destination": message.destination,
        "headers": encode_row(message)["Headers"],
        "body": message.message.body,
        "payload_ref": message.payload_ref,
        "scheduled_us": None if message.scheduled_at is None else _us(message.scheduled_at),
        "failure_count": message.failure_count,
        "next_attempt_us": None if message.next_attempt_at is None else _us(message.next_attempt_at),
    }


def _row(columns: Columns) -> Row:
    """`decode_row` never raises: what it can't understand becomes an `UnreadableRow`."""
    due_us, row_key, version, message_id, destination, headers, body, payload_ref, *rest = columns
    scheduled_us, failure_count, next_attempt_us = rest
    properties = {
        "PartitionKey": row_key[:10],
        "RowKey": row_key,
        "MessageId": message_id,
        "Destination": destination,
        "Headers": headers,
        "Body": body,
        "BodyBlob": payload_ref,
        "DueTime": _at(due_us),
        "ScheduledTime": None if scheduled_us is None else _at(scheduled_us),
        "FailureCount": failure_count,
        "NextAttemptTime": None if next_attempt_us is None else _at(next_attempt_us),
    }
    return decode_row(properties, version)
