"""Timeouts in a table of SQL persistence. They are staged in a table beside it, by one transaction each."""

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from postdate.errors import ConfigurationError, ServiceBusy, StorageError, StorageUnreachable, UsageError
from postdate.legacy.ground import BATCH
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.ports import LeaseLost
from postdate.spark.migrating.dialects import Statement, Texts
from postdate.spark.migrating.fence import Fence
from postdate.spark.migrating.sources import Range, SqlRange, SqlSource
from postdate.spark.migrating.sql_rows import key_of, page_key_of, timeout_of
from postdate.spark.migrating.taking import Found, Staged

_WAIT_SECONDS = 60
#: With these a name is as long as older versions of Oracle take, 30 characters.
_HASH_DIGITS = 8


class SqlOldTimeouts:
    """`taking.OldTimeouts`. Its calls block: a task has nothing else to do."""

    def __init__(self, source: SqlSource, endpoint: str, run: str, fence: Fence | None = None) -> None:
        """Opens the database.

        Args:
            source: where it is.
            endpoint: whose timeouts.
            run: what staging belongs to.
            fence: asked before each transaction that changes something; None: nobody is.

        Raises:
            UsageError: the source is not one that can be opened.
            StorageUnreachable: nobody answers.
        """
        self._owner = endpoint
        self._source = source
        self._fence = fence
        dialect = source.check().spoken
        self._texts = Texts(
            dialect,
            dialect.source_table(endpoint, source.prefix, source.schema),
            dialect.table(staging_name(endpoint, run), source.schema),
        )
        with self._told(opening=True):
            self._connection = _connect(source)

    def ranges(self, due_from: datetime | None, rows: int) -> Iterator[Range]:
        """By due time and id, so that rows of a range lie together; the first and the last are open."""
        start: tuple[str, str] | None = None
        for row in self._rows(self._texts.boundaries(due_from, rows)):
            end = key_of(row)
            yield SqlRange(start, end)
            start = end
        yield SqlRange(start, None)

    async def read(self, within: Range, due_from: datetime | None) -> AsyncIterator[list[Found]]:
        """Page by page, each from behind the last one: what was taken meanwhile is not missed."""
        assert isinstance(within, SqlRange)
        after = within.start
        while rows := self._rows(self._texts.page(after, within.end, due_from, BATCH)):
            yield [timeout_of(row, self._owner) for row in rows]
            after = page_key_of(rows[-1])

    async def prepare(self) -> None:
        """Make the staging table."""
        self._all([self._texts.create()])

    async def resume(self, part: int) -> None:
        """Nothing: a transaction is whole."""

    async def take(self, part: int, timeouts: Sequence[LegacyTimeout]) -> None:
        """Move rows from table to table."""
        self._move(self._texts.stage(part, [one.id for one in timeouts]))

    async def staged(self, part: int) -> AsyncIterator[Staged]:
        """Page by page."""
        after: tuple[str, str] | None = None
        while rows := self._rows(self._texts.staged_page(part, after, BATCH)):
            found = [timeout_of(row, self._owner) for row in rows]
            # Only what could be read was staged.
            yield Staged([one for one in found if isinstance(one, LegacyTimeout)])
            after = page_key_of(rows[-1])

    async def give_back(self, part: int, timeouts: Sequence[LegacyTimeout]) -> None:
        """Move rows back, every column as it was."""
        self._move(self._texts.give_back(part, [one.id for one in timeouts]))

    async def drop(self, part: int, staged: Staged) -> None:
        """Delete its rows; none, where they were given back."""
        if staged.timeouts:
            self._all([self._texts.drop_staged(part, [one.id for one in staged.timeouts])])

    async def finish(self) -> None:
        """Drop the staging table, if nothing is left in it."""
        with self._told(), self._transaction() as cursor:
            try:
                cursor.execute(*self._texts.staged_in_all())
            except Exception as error:
                if _is_database_error(error):  # dropped by an earlier call
                    self._connection.rollback()
                    return
                raise
            (count,) = cursor.fetchone()
        if not count:
            self._all([self._texts.drop()])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # --- the database -------------------------------------------------------------------------------

    def _rows(self, statement: Statement) -> list[Sequence[object]]:
        with self._told(), self._transaction() as cursor:
            cursor.execute(*statement)
            found: list[Sequence[object]] = cursor.fetchall()
            return found

    def _ask(self) -> None:
        if self._fence is not None and not self._fence.may_act():
            raise LeaseLost

    def _all(self, statements: Sequence[Statement]) -> None:
        self._ask()
        with self._told(), self._transaction() as cursor:
            for statement in statements:
                cursor.execute(*statement)

    def _move(self, both: tuple[Statement, Statement]) -> None:
        self._ask()
        with self._told(), self._transaction() as cursor:
            cursor.execute(*both[0])
            copied = cursor.rowcount
            cursor.execute(*both[1])
            if cursor.rowcount != copied:
                raise ServiceBusy(
                    f"{self._texts.source}: somebody else changed {copied - cursor.rowcount} of the timeouts "
                    "that were just moved, so nothing was; run the same command again"
                )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            yield cursor
        except BaseException:
            self._connection.rollback()
            raise
        else:
            self._connection.commit()
        finally:
            cursor.close()

    @contextmanager
    def _told(self, *, opening: bool = False) -> Iterator[None]:
        """Errors of drivers in one line of ours; drivers put no password into theirs."""
        try:
            yield
        except Exception as error:
            if not _is_database_error(error):
                raise
            text = str(error).strip().partition("\n")[0]
            kind = StorageUnreachable if opening else StorageError
            raise kind(f"{self._source.name}, table {self._texts.source}: {text}") from error


def staging_name(endpoint: str, run: str) -> str:
    """The table where a run of an endpoint stages; short enough for every database."""
    digits = sha256(f"{endpoint}\0{run}".encode()).hexdigest()[:_HASH_DIGITS]
    return f"TimeoutData_migration_{digits}"


def _is_database_error(error: BaseException) -> bool:
    """The Python Database API gives each driver an `Error`, above all of its others."""
    return any(kind.__name__ == "Error" for kind in type(error).__mro__)


def _connect(source: SqlSource) -> Any:
    if source.connect:
        module, colon, name = source.connect.partition(":")
        if not colon:
            raise ConfigurationError(f"connect {source.connect!r}: write module:function")
        try:
            return getattr(import_module(module), name)()
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(f"connect {source.connect!r}: {error}; write module:function") from None
    text = source.connection_text()
    if source.dialect == "sqlite":
        if not Path(text).is_file():
            raise UsageError(f"{text}: there is no such file")
        return sqlite3.connect(text, timeout=_WAIT_SECONDS, isolation_level="IMMEDIATE")
    try:
        import psycopg  # noqa: PLC0415 - of the extra `sql`
    except ImportError as error:
        raise ConfigurationError(f"PostgreSQL needs psycopg; pip install 'postdate[sql]' ({error})") from None
    return psycopg.connect(text)
