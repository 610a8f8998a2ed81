"""The reading half of legacy timeouts in the tables and the container that older endpoints use."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from postdate.backends.azure_storage.clients import AccountClients
from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
    Refusal,
    refusal,
    translate,
)
from postdate.backends.azure_storage.hot_calls import Token
from postdate.backends.azure_storage.rows import Entity, properties_of, quoted
from postdate.errors import (
    NotProvisioned,
    PoisonMessage,
    PostdateError,
)
from postdate.model.date_patterns import partition_scope
from postdate.model.keys import RowKey
from postdate.model.legacy_rows import (
    FIRST_TIME,
    HIDDEN,
    OWNER,
    SAGA_ID,
    TIME,
    decode_or_tell,
    decode_timeout,
    due_of,
    is_hidden,
    is_key,
    is_time_row,
    main_key,
    state_address,
)
from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout, TimeoutPlaces, UnreadableTimeout
from postdate.model.limits import PAGE_ROWS
from postdate.model.rowcodec import instant_of

KEYS = ["PartitionKey", "RowKey", SAGA_ID]
#: A main row's properties, and its etag.
MainRow = tuple[Entity, str]


class TimeoutQueries:
    """Finds timeouts, and reads them."""

    def __init__(self, account: AccountClients, places: TimeoutPlaces) -> None:
        self._places = places
        self._scope = partition_scope(places.partition_scope)
        self._table = account.table(places.table)
        self._manager = account.table(places.manager_table)
        self._states = account.container(places.container)
        self._hot = account.hot_table(places.table)
        self._table_place, self._blob_place = account.endpoints.table, account.endpoints.blob

    async def exists(self) -> bool:
        """Whether the table is there."""
        try:
            async for _ in self._pages("", select=["PartitionKey"], top=1):
                break
        except NotProvisioned:
            return False
        return True

    async def due(self, until: datetime, *, everywhere: bool = False) -> AsyncIterator[Sequence[DueTimeout]]:
        """One partition after the other, each in due order; see `ports.TimeoutStore.due`."""
        instant = f"datetime'{until.astimezone(UTC).isoformat(timespec='microseconds')[:-6]}Z'"
        conditions = [f"{OWNER} eq {quoted(self._places.owner)}", f"{TIME} le {instant}"]
        if everywhere:
            conditions.append("RowKey gt ''")
        else:
            first, last = (quoted(self._scope.of(one)) for one in (FIRST_TIME, until))
            conditions = [f"PartitionKey ge {first}", f"PartitionKey le {last}", *conditions]
        partition: list[DueTimeout] = []
        async for rows in self._pages(" and ".join(conditions), select=[*KEYS, TIME]):
            for found in filter(None, map(due_of, rows)):
                if found.due_at > until:  # Azurite compares milliseconds
                    continue
                if partition and partition[0].partition != found.partition:
                    yield sorted(partition, key=lambda due: (due.due_at, due.id))
                    partition = []
                partition.append(found)
        if partition:
            yield sorted(partition, key=lambda due: (due.due_at, due.id))

    async def get(self, timeout_id: str) -> LegacyTimeout | None:
        """One timeout, by its main row; see `ports.TimeoutStore.get`."""
        row = await self.main_row(timeout_id)
        if row is None:
            return None
        found, name = decode_timeout(row[0]), state_address(row[0])
        if name is None:
            return found
        try:
            return replace(found, body=await self._state(timeout_id, name))
        except PoisonMessage:
            # Somebody may have removed it between the two reads: its row went first, and its body then.
            if await self.main_row(timeout_id) is None:
                return None
            raise

    async def _state(self, timeout_id: str, name: str) -> bytes:
        try:
            stream = await self._states.download_blob(name)
            return await stream.readall()
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.GONE, Refusal.NOT_PROVISIONED):
                raise PoisonMessage(
                    f"the body of timeout {timeout_id!r} is missing: there is no blob {name!r} in container "
                    f"{self._places.container!r}"
                ) from error
            what = f"reading the body of timeout {timeout_id}"
            raise translate(error, what, self._blob_place, changes=False) from error

    async def all(
        self, *, due_from: datetime | None = None
    ) -> AsyncIterator[LegacyTimeout | UnreadableTimeout]:
        """Every timeout that has a time row; see `ports.TimeoutStore.all`."""
        with suppress(NotProvisioned):
            async for page in self._pages(self._own_rows()):
                for row in filter(is_time_row, page):
                    timeout = decode_or_tell(row)
                    if due_from is None or timeout.due_at is None or timeout.due_at >= due_from:
                        yield timeout

    async def time_keys(self, due_from: datetime | None = None, *, among: str = "") -> AsyncIterator[RowKey]:
        """Keys of time rows, in the table's order; nothing else of them is read.

        Args:
            due_from: only those due at or after this instant, or whose time can't be read.
            among: only those that match this filter too.
        """
        matching = f"{among} and {self._own_rows()}" if among else self._own_rows()
        with suppress(NotProvisioned):
            async for page in self._pages(matching, select=[*KEYS, TIME]):
                for row in filter(is_time_row, page):
                    due_at = instant_of(row.get(TIME))
                    if due_from is None or due_at is None or due_at >= due_from:
                        yield RowKey(str(row["PartitionKey"]), str(row["RowKey"]))

    async def count(self, limit: int | None = None) -> int:
        """How many time rows there are."""
        counted = 0
        with suppress(NotProvisioned):
            async for page in self._pages(self._own_rows(), select=KEYS):
                counted += sum(map(is_time_row, page))
                if limit is not None and counted >= limit:
                    return limit
        return counted

    async def hidden(self) -> int:
        """How many time rows have a hidden owner."""
        first, end = quoted(HIDDEN), quoted(HIDDEN[:-1] + chr(ord(HIDDEN[-1]) + 1))
        matching = f"RowKey gt '' and {OWNER} ge {first} and {OWNER} lt {end}"
        counted = 0
        with suppress(NotProvisioned):
            async for page in self._pages(matching, select=[*KEYS, OWNER]):
                counted += sum(is_hidden(row, self._places.owner) for row in page)
        return counted

    def _own_rows(self) -> str:
        return f"RowKey gt '' and {OWNER} eq {quoted(self._places.owner)}"

    async def main_row(self, timeout_id: str) -> MainRow | None:
        """The main row and its etag; None: there is none."""
        return await self._row(main_key(timeout_id)) if is_key(timeout_id) else None

    async def _row(self, key: RowKey) -> MainRow | None:
        try:
            return properties_of(await self._hot.row(key))
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.GONE, Refusal.NOT_PROVISIONED):
                return None
            what = f"reading a timeout of table {self._places.table}"
            raise translate(error, what, self._table_place, changes=False) from error

    async def _pages(
        self, matching: str, *, select: Sequence[str] = (), top: int = PAGE_ROWS
    ) -> AsyncIterator[list[Entity]]:
        """Rows page by page. Only a missing continuation is the end (fact 16)."""
        token: Token | None = None
        while True:
            try:
                page = await self._hot.page(matching, top=top, select=select, token=token)
            except CALL_ERRORS as error:
                if refusal(error) is Refusal.NOT_PROVISIONED:
                    raise self._missing_table() from error
                what = f"reading timeouts of table {self._places.table}"
                raise translate(error, what, self._table_place, changes=False) from error
            yield [properties_of(entry)[0] for entry in page.rows]
            token = page.token
            if token is None:
                return

    def _missing_table(self) -> PostdateError:
        return self._missing(f"table {self._places.table!r}")

    def _missing(self, what: str) -> PostdateError:
        return NotProvisioned(
            f"{what} of legacy timeouts does not exist; create it with `postdate setup --timeout-manager`"
        )

    async def close(self) -> None:
        """Close the clients. Safe to call twice."""
        for client in (self._table, self._manager, self._states):
            await client.close()
