"""Small JSON documents of bulk runs, under `bulk/` in the endpoint's container.

The driver and the executors of a run share them, wherever each of them runs. Each is written whole; a
document of one name has one writer at a time, or all of its writers write the same.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from azure.core import MatchConditions
from azure.storage.blob.aio import ContainerClient

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, refusal, translate, translating
from postdate.errors import UsageError

PREFIX = "bulk/"


class BulkBlobs:
    """Documents by name, as `schedule/nightly/run.json`."""

    def __init__(self, container: ContainerClient, place: Place) -> None:
        self._container = container
        self._place = place

    async def put(self, name: str, document: object) -> None:
        """Write a document; one of that name is replaced.

        Raises:
            StorageError: it may not be there.
        """
        with translating(f"writing {PREFIX}{name}", self._place):
            await self._container.upload_blob(PREFIX + name, msgspec.json.encode(document), overwrite=True)

    async def begin(self, name: str, document: object) -> bool:
        """Write a document unless there is one of that name; False: there is."""
        try:
            await self._container.upload_blob(PREFIX + name, msgspec.json.encode(document), overwrite=False)
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.EXISTS:
                return False
            raise translate(error, f"writing {PREFIX}{name}", self._place) from error
        return True

    async def get(self, name: str) -> bytes | None:
        """A document's JSON; None: there is none of that name."""
        found = await self.read(name)
        return None if found is None else found[0]

    async def read(self, name: str) -> tuple[bytes, str] | None:
        """A document's JSON and its version; None: there is none of that name."""
        try:
            stream = await self._container.download_blob(PREFIX + name)
            return await stream.readall(), str(stream.properties.etag)
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.GONE:
                return None
            raise translate(error, f"reading {PREFIX}{name}", self._place, changes=False) from error

    async def replace(self, name: str, document: object, version: str | None) -> str | None:
        """Write a document over the version that was read, or where there was none; the new version.

        None: somebody else wrote, or an answer was lost and this very call did.
        """
        options: dict[str, Any] = {"overwrite": version is not None}
        if version is not None:
            options |= {"etag": version, "match_condition": MatchConditions.IfNotModified}
        try:
            blob = self._container.get_blob_client(PREFIX + name)
            answer = await blob.upload_blob(msgspec.json.encode(document), **options)
            return str(answer["etag"])
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.EXISTS, Refusal.CHANGED, Refusal.GONE):
                return None
            raise translate(error, f"writing {PREFIX}{name}", self._place) from error

    async def names(self, under: str) -> AsyncIterator[str]:
        """Names that begin with `under`, in order."""
        with translating(f"listing {PREFIX}{under}", self._place, changes=False):
            async for name in self._container.list_blob_names(name_starts_with=PREFIX + under):
                yield name.removeprefix(PREFIX)

    async def delete(self, name: str) -> None:
        """Delete a document; nothing happens where there is none."""
        try:
            await self._container.delete_blob(PREFIX + name)
        except CALL_ERRORS as error:
            if refusal(error) is not Refusal.GONE:
                raise translate(error, f"deleting {PREFIX}{name}", self._place) from error


def check_run(run: str) -> str:
    """A name for a run: it becomes a part of blob names.

    Raises:
        UsageError: it holds something else than letters, digits, dots, dashes and underscores.
    """
    if not run or len(run) > 100 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in run):
        raise UsageError(f"run {run!r}: write letters, digits, . _ and -, at most 100 of them")
    return run
