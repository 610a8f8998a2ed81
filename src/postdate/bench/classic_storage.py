"""The classic algorithm's account, twice: through our lean pipeline, and through the plain SDK's clients.

The first is to be fair to the algorithm: it then differs from ours in what it does, not in what a request
costs. The second is what a program of today would be, on a shared session without the proxy look-ups.
"""

from collections.abc import Sequence
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError

from postdate.backends.azure_storage.rows import properties_of, row_of
from postdate.bench.account import Account, give_back, renew_lease, take_lease
from postdate.bench.classic import LEASE_SECONDS, PAGE_ROWS, ClassicRow
from postdate.errors import StorageError
from postdate.model.delayed import Row, UnreadableRow
from postdate.model.envelope import wrap
from postdate.model.rowcodec import decode_row


class _Leasing:
    def __init__(self, account: Account) -> None:
        self._container = account.container()
        self._lease: Any | None = None

    async def lock(self) -> bool:
        """Take the lease or renew it; see `ClassicStorage.lock`."""
        try:
            if self._lease is None:
                self._lease = await take_lease(self._container, LEASE_SECONDS)
            elif not await renew_lease(self._lease):
                self._lease = None
        except AzureError as error:
            raise _failed("the lease", error) from error
        return self._lease is not None

    async def release(self) -> None:
        """Give it back."""
        lease, self._lease = self._lease, None
        if lease is not None:
            await give_back(lease)


class LeanStorage(_Leasing):
    """Through the lean pipeline."""

    name = "lean"

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._table = account.one_by_one()
        self._queues = account.hot_queues()

    async def page(self, matching: str) -> Sequence[ClassicRow]:
        """See `ClassicStorage.page`."""
        try:
            page = await self._table.page(matching, top=PAGE_ROWS, token=None)
        except AzureError as error:
            raise _failed("reading a page", error) from error
        return [_classic(decode_row(*properties_of(entry))) for entry in page.rows]

    async def send(self, row: ClassicRow) -> None:
        """See `ClassicStorage.send`."""
        try:
            await self._queues.put(row.destination, wrap(row.message), hidden_for=0, time_to_live=-1)
        except AzureError as error:
            raise _failed("a put", error) from error

    async def delete(self, row: ClassicRow) -> None:
        """See `ClassicStorage.delete`."""
        try:
            await self._table.delete_one(row.key, row.etag)
        except AzureError as error:
            raise _failed("a delete", error) from error


class SdkStorage(_Leasing):
    """Through the SDK's clients."""

    name = "sdk"

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._account = account
        self._table = account.table()
        self._queues: dict[str, Any] = {}

    async def page(self, matching: str) -> Sequence[ClassicRow]:
        """See `ClassicStorage.page`."""
        pages = self._table.query_entities(matching, results_per_page=PAGE_ROWS).by_page()
        try:
            page = await anext(pages, None)
            return [] if page is None else [_classic(row_of(entity)) async for entity in page]
        except AzureError as error:
            raise _failed("reading a page", error) from error

    async def send(self, row: ClassicRow) -> None:
        """See `ClassicStorage.send`."""
        queue = self._queues.get(row.destination)
        if queue is None:
            queue = self._queues[row.destination] = self._account.queue(row.destination)
        try:
            await queue.send_message(wrap(row.message), visibility_timeout=0, time_to_live=-1)
        except AzureError as error:
            raise _failed("a put", error) from error

    async def delete(self, row: ClassicRow) -> None:
        """See `ClassicStorage.delete`."""
        try:
            await self._table.delete_entity(
                row.key.partition,
                row.key.row,
                etag=row.etag,
                match_condition=MatchConditions.IfNotModified,
            )
        except AzureError as error:
            raise _failed("a delete", error) from error


def _classic(row: Row) -> ClassicRow:
    if isinstance(row, UnreadableRow):
        raise StorageError(f"a row of the benchmark can't be read: {row.reason}")
    return ClassicRow(row.key, row.etag, row.delayed.destination, row.delayed.message)


def _failed(what: str, error: AzureError) -> StorageError:
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return StorageError(f"{what} failed: {type(error).__name__}, status {status}")
