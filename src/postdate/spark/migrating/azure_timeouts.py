"""Timeouts in the tables of older endpoints. They are staged as blobs, and then removed, the main row first.

So an old manager finds them by no row any more, and the dispatcher, which asks for the main row, finds none.
"""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec

from postdate.backends.azure_storage.timeout_queries import MainRow
from postdate.backends.azure_storage.timeouts_in_bulk import AzureTimeoutsInBulk, WholeTimeout
from postdate.legacy.ground import BATCH
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.spark.migrating.documents import Documents
from postdate.spark.migrating.sources import AzureRange, AzureSource, Range
from postdate.spark.migrating.taking import Found, Staged
from postdate.spark.ranges import KeyRange


class AzureOldTimeouts:
    """`taking.OldTimeouts`."""

    def __init__(self, source: AzureSource, timeouts: AzureTimeoutsInBulk, documents: Documents) -> None:
        self._source = source
        self._timeouts = timeouts
        self._documents = documents
        #: Main rows of the batch that was read last.
        self._read: dict[str, MainRow] = {}

    async def read(self, within: Range, due_from: datetime | None) -> AsyncIterator[list[Found]]:
        """By the time rows of a range; those without a main row are none, and left out."""
        assert isinstance(within, AzureRange)
        among = KeyRange(within.first, within.last, within.row_from, within.row_until).filter()
        ids: list[str] = []
        async for key in self._timeouts.time_keys(due_from, among=among):
            ids.append(key.row)
            if len(ids) >= BATCH:
                yield await self._whole(ids)
                ids = []
        if ids:
            yield await self._whole(ids)

    async def _whole(self, ids: Sequence[str]) -> list[Found]:
        found = await self._timeouts.read_many(ids)
        self._read = {one.timeout.id: one.main for one in found if isinstance(one, WholeTimeout)}
        return [one.timeout if isinstance(one, WholeTimeout) else one for one in found]

    async def prepare(self) -> None:
        """Nothing: blobs need none."""

    async def resume(self, part: int) -> None:
        """Remove those whose blob is there, and who were not all removed."""
        async for name, timeouts in self._blobs(part):
            if await self._taken(name) is None:
                await self._remove(name, timeouts)

    async def take(self, part: int, timeouts: Sequence[LegacyTimeout]) -> None:
        """The blob first, so that they are kept; then the rows."""
        # Of two tasks at the same part each one has blobs of its own, unless they hold the same.
        ids = "\0".join(sorted(one.id for one in timeouts))
        name = f"{part}/{hashlib.sha256(ids.encode()).hexdigest()[:32]}"
        await self._documents.bulk.begin(self._documents.name(f"staged/{name}"), list(timeouts))
        await self._remove(name, timeouts)

    async def _remove(self, name: str, timeouts: Sequence[LegacyTimeout]) -> None:
        gone = await self._timeouts.remove_many(timeouts, self._read, keep_bodies=self._source.keep_bodies)
        await self._documents.bulk.put(self._documents.name(f"taken/{name}"), gone)

    async def staged(self, part: int) -> AsyncIterator[Staged]:
        """Each blob; a timeout that stands in two of them comes once."""
        seen: set[str] = set()
        async for name, timeouts in self._blobs(part):
            taken = await self._taken(name)
            gone = {one.id for one in timeouts} if taken is None else set(taken)
            fresh = [one for one in timeouts if one.id not in seen]
            seen.update(one.id for one in fresh)
            yield Staged(fresh, frozenset(gone), name)

    async def _blobs(self, part: int) -> AsyncIterator[tuple[str, list[LegacyTimeout]]]:
        before = self._documents.name("staged/")
        # Listed before any is deleted: a page of names is not the listing of one moment.
        for name in [name async for name in self._documents.bulk.names(f"{before}{part}/")]:
            text = await self._documents.bulk.get(name)
            if text is not None:
                yield name.removeprefix(before), msgspec.json.decode(text, type=list[LegacyTimeout])

    async def _taken(self, name: str) -> list[str] | None:
        text = await self._documents.bulk.get(self._documents.name(f"taken/{name}"))
        return None if text is None else msgspec.json.decode(text, type=list[str])

    async def give_back(self, part: int, timeouts: Sequence[LegacyTimeout]) -> None:  # noqa: ARG002 - of SQL
        """All rows and the body anew; what is still there, since nobody removed it yet, stays."""
        await self._timeouts.add_many(timeouts)

    async def drop(self, part: int, staged: Staged) -> None:  # noqa: ARG002 - of SQL
        """Delete its blob."""
        for kind in ("staged", "taken"):
            await self._documents.bulk.delete(self._documents.name(f"{kind}/{staged.name}"))

    async def finish(self) -> None:
        """Nothing is left."""

    def close(self) -> None:
        """The endpoint closes its clients."""
