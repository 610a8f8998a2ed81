"""Many legacy timeouts at once, with few requests: read whole, removed, added.

Main rows go one by one, since each of them is a timeout, and each has a partition of its own. What else
belongs to them goes together, rows of one partition in one transaction. Several requests are under way at
once, and a bounded number.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from postdate.backends.azure_storage.failures import CALL_ERRORS
from postdate.backends.azure_storage.rows import check_transaction, chunks, json_of, wire_bytes
from postdate.backends.azure_storage.timeout_queries import MainRow
from postdate.backends.azure_storage.timeouts import AzureTimeouts
from postdate.concurrency import for_each
from postdate.errors import PoisonMessage, StorageError
from postdate.model.keys import RowKey
from postdate.model.legacy_rows import (
    TIME,
    LegacyValue,
    Properties,
    decode_timeout,
    encode_timeout,
    rest_keys,
    state_address,
)
from postdate.model.legacy_timeout import LegacyTimeout, UnreadableTimeout
from postdate.model.rowcodec import instant_of

#: Requests under way at once, each for one timeout; and such that are for many.
AT_ONCE = 16
_TRANSACTIONS = 8


@dataclass(frozen=True, slots=True)
class WholeTimeout:
    """A timeout with its body, and the version of its main row that it was read from."""

    timeout: LegacyTimeout
    main: MainRow


class AzureTimeoutsInBulk(AzureTimeouts):
    """`ports.TimeoutStore`, and the same for many."""

    async def read_many(self, ids: Sequence[str]) -> list[WholeTimeout | UnreadableTimeout]:
        """The timeouts with their bodies, in the order given; those without a main row are left out."""
        found: dict[str, WholeTimeout | UnreadableTimeout] = {}

        async def read(timeout_id: str) -> None:
            main = await self.main_row(timeout_id)
            if main is None:
                return
            try:
                timeout, name = decode_timeout(main[0]), state_address(main[0])
                if name is not None:
                    timeout = replace(timeout, body=await self._state(timeout_id, name))
            except PoisonMessage as error:
                found[timeout_id] = UnreadableTimeout(timeout_id, str(error), instant_of(main[0].get(TIME)))
            else:
                found[timeout_id] = WholeTimeout(timeout, main)

        await for_each(ids, AT_ONCE, read)
        return [found[timeout_id] for timeout_id in ids if timeout_id in found]

    async def remove_many(
        self, timeouts: Sequence[LegacyTimeout], read: Mapping[str, MainRow], *, keep_bodies: bool = False
    ) -> list[str]:
        """Remove timeouts with all that belongs to them, all main rows first; ids of those that were gone.

        Of these too is removed what an interrupted removal has left. A repeat goes on.

        Args:
            timeouts: which.
            read: main rows that were read already, by id: each saves a request.
            keep_bodies: leave them in the container, where nothing points to them any more.

        Raises:
            OutcomeUnknown: as `ports.TimeoutStore.remove`.
        """
        rows: list[Mapping[str, LegacyValue]] = []
        gone: list[str] = []

        async def remove(one: LegacyTimeout) -> None:
            row = await self.remove_main(one.id, read.get(one.id))
            if row is None:
                gone.append(one.id)
            rows.append(row or encode_timeout(one, self._scope).main)

        try:
            await for_each(timeouts, AT_ONCE, remove)
        finally:
            await self._drop_rests(rows, keep_bodies=keep_bodies)
        return gone

    async def _drop_rests(self, rows: Sequence[Mapping[str, LegacyValue]], *, keep_bodies: bool) -> None:
        """Saga rows, time rows, bodies. Where that fails they are cleaned up later: the timeouts are gone."""
        keys = dict.fromkeys(key for row in rows for key in rest_keys(row, self._scope))
        names = [name for row in rows if not keep_bodies and (name := state_address(row)) is not None]
        sized = ((key, key.partition, wire_bytes()) for key in keys)
        with suppress(StorageError):
            await for_each(chunks(sized), _TRANSACTIONS, self._drop_rows)
            await for_each(names, AT_ONCE, self._drop_state)

    async def _drop_rows(self, keys: Sequence[RowKey]) -> None:
        if len(keys) > 1:
            check_transaction(keys, len(keys) * wire_bytes())
            try:
                await self._hot.delete(dict.fromkeys(keys, "*"))
            except CALL_ERRORS:
                pass  # one of them is not there, or nobody knows: each for itself
            else:
                return
        await for_each(keys, AT_ONCE, self._drop_row)

    async def add_many(self, timeouts: Sequence[LegacyTimeout]) -> None:
        """Keep timeouts, all main rows last; see `ports.TimeoutStore.add`, also for what it raises."""
        rows = [encode_timeout(one, self._scope) for one in timeouts]
        await for_each(timeouts, AT_ONCE, self._put_state)
        announcing = [row for each in rows for row in (each.time, each.saga) if row is not None]
        sized = ((row, str(row["PartitionKey"]), wire_bytes(json_of(row))) for row in announcing)
        await for_each(chunks(sized), _TRANSACTIONS, self._insert_rows)
        await for_each((each.main for each in rows), AT_ONCE, self._insert)

    async def _insert_rows(self, rows: Sequence[Properties]) -> None:
        if len(rows) > 1:
            try:
                await self._hot.insert([json_of(row) for row in rows])
            except CALL_ERRORS:
                pass  # one of them is there already, or can't be stored: each for itself
            else:
                return
        await for_each(rows, AT_ONCE, self._insert)
