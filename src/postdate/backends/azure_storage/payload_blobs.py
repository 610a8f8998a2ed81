"""Large bodies as blobs under `payloads/` in the endpoint's container.

A blob is a body, or the mark that its message is done with: empty, with metadata `done`. Metadata
`keep_until` says when age may remove it, either of them. All instants are ISO 8601 in UTC.

Every write is conditional on the version that was read, so that a late `put` or `keep` can't bring a
body back to life, and none of the writers' words is lost.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core import MatchConditions
from azure.storage.blob import BlobProperties
from azure.storage.blob.aio import BlobClient, ContainerClient

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, refusal, translate, translating
from postdate.clock import StorageClock
from postdate.errors import PoisonMessage, ServiceBusy
from postdate.model.limits import EARLIEST_DUE

PREFIX = "payloads/"
#: A mark is kept no longer than this: longer than any queue hides the duplicate that it is there for.
MARK_KEPT = timedelta(days=8)
#: How often a write is tried anew when somebody else wrote meanwhile.
TRIES = 4

_KEEP_UNTIL = "keep_until"
_DONE = "done"


class PayloadBlobs:
    """`ports.PayloadStore`."""

    def __init__(self, container: ContainerClient, place: Place, clock: StorageClock) -> None:
        self._container = container
        self._place = place
        self._clock = clock

    async def put(self, name: str, body: bytes, *, keep_until: datetime) -> None:
        """Store a body; where one is, or the mark that it is done with, only its age may grow.

        Raises:
            NotProvisioned: the container is missing.
        """
        blob = self._blob(name)
        try:
            await blob.upload_blob(body, overwrite=False, metadata={_KEEP_UNTIL: _iso(keep_until)})
        except CALL_ERRORS as error:
            if refusal(error) is not Refusal.EXISTS:
                raise translate(error, f"storing payload {name}", self._place) from error
            await self.keep(name, keep_until=keep_until)

    async def keep(self, name: str, *, keep_until: datetime) -> None:
        """Keep a body longer; never shorter, and nothing where it is gone or done with."""
        blob = self._blob(name)

        async def extend(found: BlobProperties) -> None:
            metadata = dict(found.metadata or {})
            if _DONE not in metadata and _instant(metadata) < keep_until:
                await blob.set_blob_metadata({**metadata, _KEEP_UNTIL: _iso(keep_until)}, **_unchanged(found))

        await self._change(name, blob, extend, "keeping")

    async def get(self, name: str) -> bytes | None:
        """The body; None: its message is done with.

        Raises:
            PoisonMessage: nothing is under that name, and never was or is long past its age.
        """
        try:
            stream = await self._blob(name).download_blob()
            if _DONE in (stream.properties.metadata or {}):
                return None
            return await stream.readall()
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.GONE:
                raise PoisonMessage(
                    f"the body of this message is missing: there is no blob {PREFIX}{name} in container "
                    f"{self._container.container_name}"
                ) from error
            raise translate(error, f"reading payload {name}", self._place, changes=False) from error

    async def delete(self, name: str) -> None:
        """Put an empty mark in the body's place; nothing happens where there is nothing."""
        blob = self._blob(name)

        async def mark(found: BlobProperties) -> None:
            metadata = dict(found.metadata or {})
            if _DONE in metadata:
                return
            now = self._clock.now()
            until = min(_instant(metadata, missing=now + MARK_KEPT), now + MARK_KEPT)
            await blob.upload_blob(
                b"",
                overwrite=True,
                # Given anew: an upload without metadata erases it.
                metadata={_KEEP_UNTIL: _iso(until), _DONE: _iso(now)},
                **_unchanged(found),
            )

        await self._change(name, blob, mark, "deleting")

    async def sweep(self, now: datetime) -> int:
        """Remove what is past its `keep_until`, marks included; how many."""
        removed = 0
        async for page in self._pages():
            for found in page:
                if _instant(dict(found.metadata or {}), missing=now) < now:
                    removed += await self._remove(found)
        return removed

    async def _remove(self, found: BlobProperties) -> int:
        try:
            await self._container.delete_blob(found.name, **_unchanged(found))
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.GONE, Refusal.CHANGED):
                return 0  # kept longer, or removed by somebody else, meanwhile
            raise translate(error, f"removing payload {found.name}", self._place) from error
        return 1

    async def _pages(self) -> AsyncIterator[list[BlobProperties]]:
        pages = self._container.list_blobs(name_starts_with=PREFIX, include=["metadata"]).by_page()
        while True:
            with translating("listing payloads", self._place, changes=False):
                try:
                    page = [blob async for blob in await anext(pages)]
                except StopAsyncIteration:
                    return
            yield page

    async def _change(self, name: str, blob: BlobClient, write: Any, doing: str) -> None:
        """Read a blob's properties and write on top of that version; anew where it was changed."""
        for _ in range(TRIES):
            try:
                await write(await blob.get_blob_properties())
            except CALL_ERRORS as error:
                kind = refusal(error)
                if kind is Refusal.GONE:
                    return
                if kind is not Refusal.CHANGED:
                    raise translate(error, f"{doing} payload {name}", self._place) from error
            else:
                return
        raise ServiceBusy(f"{doing} payload {name}: it was changed by others {TRIES} times meanwhile")

    def _blob(self, name: str) -> BlobClient:
        return self._container.get_blob_client(PREFIX + name)


def _unchanged(found: BlobProperties) -> dict[str, Any]:
    return {"etag": found.etag, "match_condition": MatchConditions.IfNotModified}


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()


def _instant(metadata: dict[str, str], *, missing: datetime = EARLIEST_DUE) -> datetime:
    """The `keep_until` of a blob; `missing` where it has none that can be read (not of our making)."""
    try:
        return datetime.fromisoformat(metadata[_KEEP_UNTIL])
    except (KeyError, ValueError):
        return missing
