"""The delivery log as append blobs in the endpoint's container: `log/<yyyyMMdd>/<HH>-<process>.jsonl`.

Every block carries the length that the blob must have (append position). So a block whose answer was lost can
be sent again, by us or by the SDK: where it is there already the service refuses it, and the blob's length
tells that it is ours. That holds because a blob has one writer.
"""

from collections.abc import AsyncIterator
from datetime import date, timedelta

from azure.core import MatchConditions
from azure.storage.blob.aio import BlobClient, ContainerClient

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
    Refusal,
    code_of,
    refusal,
    translate,
    translating,
)
from postdate.errors import StorageError
from postdate.model.delivery_log import PREFIX, hour_in
from postdate.ports import LogDisplaced, LogFile

#: The blob has taken as many blocks as it can.
_FULL = "BlockCountExceedsLimit"
#: A span of at most so many days is listed day by day; a longer one with all that is there.
_DAYS = 31
_DAY_FORMAT = "%Y%m%d"


class LogBlobs:
    """`ports.DeliveryLogStore`."""

    def __init__(self, container: ContainerClient, place: Place) -> None:
        self._container = container
        self._place = place

    async def append(self, name: str, block: bytes, *, at: int) -> int:
        """Append a block; one that is there already is not appended again."""
        blob = self._container.get_blob_client(name)
        what = f"writing {name}"
        if not at:
            await self._create(blob, what)
        try:
            await blob.append_block(block, length=len(block), appendpos_condition=at)
        except CALL_ERRORS as error:
            if code_of(error) == _FULL:
                raise LogDisplaced(f"{name} takes no more blocks") from error
            if refusal(error) not in (Refusal.CHANGED, Refusal.GONE):
                raise translate(error, what, self._place) from error
            if await self._length(blob, what) != at + len(block):
                raise LogDisplaced(f"{name} has another length than {at}") from error
        return at + len(block)

    async def _create(self, blob: BlobClient, what: str) -> None:
        try:
            await blob.create_append_blob(match_condition=MatchConditions.IfMissing)
        except CALL_ERRORS as error:
            # Made before, by a call whose answer was lost: its length tells whether it is empty.
            if refusal(error) not in (Refusal.EXISTS, Refusal.CHANGED):
                raise translate(error, what, self._place) from error

    async def _length(self, blob: BlobClient, what: str) -> int | None:
        """None: somebody deleted it."""
        try:
            return int((await blob.get_blob_properties()).size)
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.GONE:
                return None
            raise translate(error, what, self._place, changes=False) from error

    async def files(self, first: str | None = None, last: str | None = None) -> AsyncIterator[LogFile]:
        """Files of a span of hours, by name."""
        for prefix in _prefixes(first, last):
            with translating("listing the delivery log", self._place, changes=False):
                async for found in self._container.list_blobs(name_starts_with=prefix):
                    hour = hour_in(found.name)
                    if hour is None or (first and hour < first) or (last and hour > last):
                        continue
                    yield LogFile(found.name, int(found.size))

    async def read(self, name: str, start: int, end: int) -> bytes:
        """A part of a file."""
        if end <= start:
            return b""
        try:
            stream = await self._container.download_blob(name, offset=start, length=end - start)
            return bytes(await stream.readall())
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.GONE:
                raise StorageError(
                    f"blob {name} of the delivery log is gone: it was deleted after it was listed"
                ) from error
            raise translate(error, f"reading {name}", self._place, changes=False) from error


def _prefixes(first: str | None, last: str | None) -> list[str]:
    """What names begin with, in order."""
    if first is None or last is None:
        return [PREFIX]
    start, end = (date.fromisoformat(hour[:8]) for hour in (first, last))
    days = (end - start).days + 1
    if days > _DAYS:
        return [PREFIX]
    return [f"{PREFIX}{(start + timedelta(days=n)).strftime(_DAY_FORMAT)}/" for n in range(days)]
