"""Legacy timeouts in the tables and the container that older endpoints use (`model.legacy_rows`).

The rows of a timeout lie in three partitions, so no transaction holds them together. Order does: the body
and the two rows that announce it first, the main row last; removing goes the other way round. What an
interruption leaves behind has no main row, so it is no timeout, and `clean_up` removes it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from postdate.backends.azure_storage.clients import AccountClients
from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
    Refusal,
    outcome_unknown,
    refusal,
    translate,
)
from postdate.backends.azure_storage.hot_calls import Token
from postdate.backends.azure_storage.rows import Entity, plain_value, properties_of, quoted
from postdate.backends.azure_storage.transport import calling
from postdate.concurrency import for_each
from postdate.errors import (
    MessageRefused,
    NotProvisioned,
    OutcomeUnknown,
    PoisonMessage,
    PostdateError,
    ServiceBusy,
    StorageError,
)
from postdate.model.date_patterns import partition_scope
from postdate.model.keys import RowKey
from postdate.model.legacy_rows import (
    FIRST_TIME,
    HIDDEN,
    OWNER,
    SAGA_ID,
    TIME,
    LegacyValue,
    Properties,
    decode_or_tell,
    decode_timeout,
    due_of,
    encode_timeout,
    is_hidden,
    is_key,
    is_time_row,
    main_key,
    rest_keys,
    state_address,
    timeout_id_of,
)
from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout, TimeoutPlaces, UnreadableTimeout
from postdate.model.limits import PAGE_ROWS
from postdate.model.rowcodec import instant_of

_KEYS = ["PartitionKey", "RowKey", SAGA_ID]
#: How often a removal is tried anew when somebody rewrote the main row meanwhile.
_TRIES = 4


class AzureTimeouts:
    """`ports.TimeoutStore`."""

    def __init__(self, account: AccountClients, places: TimeoutPlaces) -> None:
        self._places = places
        self._scope = partition_scope(places.partition_scope)
        self._table = account.table(places.table)
        self._manager = account.table(places.manager_table)
        self._states = account.container(places.container)
        self._hot = account.hot_table(places.table)
        self._table_place, self._blob_place = account.endpoints.table, account.endpoints.blob

    async def create(self) -> list[str]:
        """Create both tables and the container, where they are missing; which this call created."""
        created = [
            f"table {table.table_name}"
            for table in (self._table, self._manager)
            if await self._create(table.create_table, f"table {table.table_name}")
        ]
        if await self._create(self._states.create_container, f"container {self._places.container}"):
            created.append(f"container {self._places.container}")
        return created

    async def _create(self, call: Callable[[], Awaitable[Any]], what: str) -> bool:
        place = self._table_place if what.startswith("table") else self._blob_place
        try:
            await call()
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.EXISTS:
                return False
            raise translate(error, f"creating {what}", place) from error
        return True

    async def exists(self) -> bool:
        """Whether the table is there."""
        try:
            async for _ in self._pages("", select=["PartitionKey"], top=1):
                break
        except NotProvisioned:
            return False
        return True

    async def add(self, one: LegacyTimeout) -> None:
        """Keep a timeout; see `ports.TimeoutStore.add`. A repeat completes what an interruption left."""
        rows = encode_timeout(one, self._scope)
        before_main: list[Awaitable[None]] = [self._put_state(one), self._insert(rows.time)]
        if rows.saga is not None:
            before_main.append(self._insert(rows.saga))
        await for_each(before_main, len(before_main), lambda write: write)
        await self._insert(rows.main)

    async def _put_state(self, one: LegacyTimeout) -> None:
        what = f"storing the body of timeout {one.id}"
        try:
            await self._states.upload_blob(one.id, one.body, overwrite=False)
        except CALL_ERRORS as error:
            kind = refusal(error)
            if kind is Refusal.NOT_PROVISIONED:
                raise self._missing(f"container {self._places.container!r}") from error
            if kind is not Refusal.EXISTS:
                raise translate(error, what, self._blob_place) from error

    async def _insert(self, row: Properties) -> None:
        try:
            await self._table.create_entity(row, headers={"Prefer": "return-no-content"})
        except CALL_ERRORS as error:
            kind = refusal(error)
            if kind is Refusal.EXISTS:
                return
            if kind is Refusal.NOT_PROVISIONED:
                raise self._missing_table() from error
            told = translate(error, f"adding a timeout to table {self._places.table}", self._table_place)
            raise (MessageRefused(str(told)) if kind is Refusal.INVALID else told) from error

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
        async for rows in self._pages(" and ".join(conditions), select=[*_KEYS, TIME]):
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
        row = await self._main_row(timeout_id)
        if row is None:
            return None
        found, name = decode_timeout(row[0]), state_address(row[0])
        return found if name is None else replace(found, body=await self._state(timeout_id, name))

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

    async def remove(self, timeout_id: str) -> bool:
        """Remove the main row, and then the rest; see `ports.TimeoutStore.remove`."""
        unsure = False
        for _ in range(_TRIES):
            found = await self._main_row(timeout_id)
            if found is None:
                if unsure:
                    raise OutcomeUnknown(
                        f"removing timeout {timeout_id}: an answer was lost, and it is gone; whether this "
                        "call removed it can't be told"
                    )
                return False
            row, etag = found
            try:
                with calling(once=True):
                    await self._hot.delete({main_key(timeout_id): etag})
            except CALL_ERRORS as error:
                unsure = unsure or outcome_unknown(error)
                if not unsure and refusal(error) not in (Refusal.GONE, Refusal.CHANGED):
                    what = f"removing a timeout from table {self._places.table}"
                    raise translate(error, what, self._table_place) from error
            else:
                await self._drop_rest(row)
                return True
        raise ServiceBusy(f"removing timeout {timeout_id}: it was not possible in {_TRIES} tries")

    async def remove_of_saga(self, saga_id: str) -> int:
        """Remove those that have a saga row; see `ports.TimeoutStore.remove_of_saga`."""
        matching = f"PartitionKey eq {quoted(saga_id)} and {OWNER} eq {quoted(self._places.owner)}"
        with suppress(NotProvisioned):
            ids = [timeout_id_of(row) async for page in self._pages(matching, select=_KEYS) for row in page]
            return sum([await self.remove(one) for one in ids if one != saga_id])
        return 0

    async def clean_up(self, left: DueTimeout) -> bool:
        """Remove time row, saga row and body, if there is no main row; see `ports.TimeoutStore.clean_up`."""
        found = await self._row(RowKey(left.partition, left.id))
        if found is None or await self._main_row(left.id) is not None:
            return False
        await self._drop_rest(found[0])
        await self._drop_row(RowKey(left.partition, left.id))
        return True

    async def clear(self, one: LegacyTimeout) -> None:
        """Remove what an interrupted removal has left of it."""
        if await self._main_row(one.id) is None:
            await self._drop_rest(encode_timeout(one, self._scope).main)

    async def _drop_rest(self, row: Mapping[str, LegacyValue]) -> None:
        """Saga row, time row, body. Where that fails it is cleaned up later: the timeout itself is gone."""
        name = state_address(row)
        with suppress(StorageError):
            for key in rest_keys(row, self._scope):
                await self._drop_row(key)
            if name is not None:
                await self._drop_state(name)

    async def _drop_row(self, key: RowKey) -> None:
        try:
            # Unconditional, and silent where there is nothing.
            await self._table.delete_entity(key.partition, key.row)
        except CALL_ERRORS as error:
            raise translate(
                error, f"removing a row of table {self._places.table}", self._table_place
            ) from error

    async def _drop_state(self, name: str) -> None:
        try:
            await self._states.delete_blob(name)
        except CALL_ERRORS as error:
            if refusal(error) not in (Refusal.GONE, Refusal.NOT_PROVISIONED):
                what = f"removing blob {name} of container {self._places.container}"
                raise translate(error, what, self._blob_place) from error

    async def all(
        self, *, due_from: datetime | None = None, among: str = ""
    ) -> AsyncIterator[LegacyTimeout | UnreadableTimeout]:
        """Every timeout that has a time row; see `ports.TimeoutStore.all`.

        Args:
            due_from: as there.
            among: only those whose time row matches this filter too.
        """
        matching = f"{among} and {self._own_rows()}" if among else self._own_rows()
        with suppress(NotProvisioned):
            async for page in self._pages(matching):
                for row in filter(is_time_row, page):
                    timeout = decode_or_tell(row)
                    if due_from is None or timeout.due_at is None or timeout.due_at >= due_from:
                        yield timeout

    async def time_keys(self, due_from: datetime | None = None) -> AsyncIterator[RowKey]:
        """Keys of all time rows, in the table's order; nothing else of them is read."""
        with suppress(NotProvisioned):
            async for page in self._pages(self._own_rows(), select=[*_KEYS, TIME]):
                for row in filter(is_time_row, page):
                    due_at = instant_of(row.get(TIME))
                    if due_from is None or due_at is None or due_at >= due_from:
                        yield RowKey(str(row["PartitionKey"]), str(row["RowKey"]))

    async def count(self, limit: int | None = None) -> int:
        """How many time rows there are."""
        counted = 0
        with suppress(NotProvisioned):
            async for page in self._pages(self._own_rows(), select=_KEYS):
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
            async for page in self._pages(matching, select=[*_KEYS, OWNER]):
                counted += sum(is_hidden(row, self._places.owner) for row in page)
        return counted

    def _own_rows(self) -> str:
        return f"RowKey gt '' and {OWNER} eq {quoted(self._places.owner)}"

    async def _main_row(self, timeout_id: str) -> tuple[Entity, str] | None:
        return await self._row(main_key(timeout_id)) if is_key(timeout_id) else None

    async def _row(self, key: RowKey) -> tuple[Entity, str] | None:
        """A row and its etag."""
        try:
            entity = await self._table.get_entity(key.partition, key.row)
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.GONE, Refusal.NOT_PROVISIONED):
                return None
            what = f"reading a timeout of table {self._places.table}"
            raise translate(error, what, self._table_place, changes=False) from error
        plain = {name: plain_value(value) for name, value in entity.items()}
        return plain, str(entity.metadata.get("etag") or "")

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
