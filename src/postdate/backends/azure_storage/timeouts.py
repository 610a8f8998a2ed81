"""Legacy timeouts in the tables and the container that older endpoints use (`model.legacy_rows`).

The rows of a timeout lie in three partitions, so no transaction holds them together. Order does: the body
and the two rows that announce it first, the main row last; removing goes the other way round. What an
interruption leaves behind has no main row, so it is no timeout, and `clean_up` removes it.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
    Refusal,
    outcome_unknown,
    refusal,
    translate,
)
from postdate.backends.azure_storage.rows import Entity, quoted
from postdate.backends.azure_storage.timeout_queries import KEYS, MainRow, TimeoutQueries
from postdate.backends.azure_storage.transport import calling
from postdate.concurrency import for_each
from postdate.errors import (
    MessageRefused,
    NotProvisioned,
    OutcomeUnknown,
    ServiceBusy,
    StorageError,
)
from postdate.model.keys import RowKey
from postdate.model.legacy_rows import (
    OWNER,
    LegacyValue,
    Properties,
    encode_timeout,
    main_key,
    rest_keys,
    state_address,
    timeout_id_of,
)
from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout

#: How often a removal is tried anew when somebody rewrote the main row meanwhile.
_TRIES = 4


class AzureTimeouts(TimeoutQueries):
    """`ports.TimeoutStore`."""

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

    async def remove(self, timeout_id: str) -> bool:
        """Remove the main row, and then the rest; see `ports.TimeoutStore.remove`."""
        row = await self.remove_main(timeout_id)
        if row is not None:
            await self._drop_rest(row)
        return row is not None

    async def remove_main(self, timeout_id: str, read: MainRow | None = None) -> Entity | None:
        """Remove the main row and nothing else: what it held; None: it was gone. Raises as `remove`.

        Args:
            timeout_id: as there.
            read: the row, where it was read already.
        """
        unsure = False
        for _ in range(_TRIES):
            found = read or await self.main_row(timeout_id)
            read = None
            if found is None:
                if unsure:
                    raise OutcomeUnknown(
                        f"removing timeout {timeout_id}: an answer was lost, and it is gone; whether this "
                        "call removed it can't be told"
                    )
                return None
            row, etag = found
            try:
                with calling(once=True):
                    await self._hot.delete_row(main_key(timeout_id), etag)
            except CALL_ERRORS as error:
                unsure = unsure or outcome_unknown(error)
                if not unsure and refusal(error) not in (Refusal.GONE, Refusal.CHANGED):
                    what = f"removing a timeout from table {self._places.table}"
                    raise translate(error, what, self._table_place) from error
            else:
                return row
        raise ServiceBusy(f"removing timeout {timeout_id}: it was not possible in {_TRIES} tries")

    async def remove_of_saga(self, saga_id: str) -> int:
        """Remove those that have a saga row; see `ports.TimeoutStore.remove_of_saga`."""
        matching = f"PartitionKey eq {quoted(saga_id)} and {OWNER} eq {quoted(self._places.owner)}"
        with suppress(NotProvisioned):
            ids = [timeout_id_of(row) async for page in self._pages(matching, select=KEYS) for row in page]
            return sum([await self.remove(one) for one in ids if one != saga_id])
        return 0

    async def clean_up(self, left: DueTimeout) -> bool:
        """Remove time row, saga row and body, if there is no main row; see `ports.TimeoutStore.clean_up`."""
        found = await self._row(RowKey(left.partition, left.id))
        if found is None or await self.main_row(left.id) is not None:
            return False
        await self._drop_rest(found[0])
        await self._drop_row(RowKey(left.partition, left.id))
        return True

    async def clear(self, one: LegacyTimeout) -> None:
        """Remove what an interrupted removal has left of it."""
        if await self.main_row(one.id) is None:
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
