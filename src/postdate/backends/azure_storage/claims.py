"""A document of a bulk run that only one process at a time may write, for as long as it says that it lives.

The claim is a lease on the document's blob. Who is killed stops renewing it, and the next one gets it when it
is over; who was frozen finds its lease gone.
"""

import uuid

from azure.storage.blob.aio import BlobClient, BlobLeaseClient, ContainerClient

from postdate.backends.azure_storage.bulk_blobs import PREFIX
from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, refusal, translate, translating

#: Seconds that a claim lasts without being prolonged: the least that the service grants.
CLAIM_SECONDS = 15
_HELD = (Refusal.LEASED, Refusal.LEASE_LOST)
_LOST = (*_HELD, Refusal.GONE, Refusal.NOT_PROVISIONED)


class ClaimedBlob:
    """One document, seen by one process that wants to write it."""

    def __init__(self, container: ContainerClient, place: Place, name: str) -> None:
        self._blob: BlobClient = container.get_blob_client(PREFIX + name)
        self._place = place
        self._name = PREFIX + name
        self._id = str(uuid.uuid4())

    async def take(self) -> bytes | None:
        """Claim the document for `CLAIM_SECONDS`: what it says, empty if it is new; None: it is claimed.

        Raises:
            StorageError: it may be claimed.
        """
        try:
            return await self._take()
        except CALL_ERRORS as error:
            if refusal(error) in _HELD:
                return None
            if refusal(error) is not Refusal.GONE:
                raise translate(error, f"claiming {self._name}", self._place) from error
        await self._create()
        return await self.take()

    async def _take(self) -> bytes:
        await self._lease().acquire(lease_duration=CLAIM_SECONDS)
        stream = await self._blob.download_blob()
        return await stream.readall()

    async def _create(self) -> None:
        try:
            await self._blob.upload_blob(b"", overwrite=False)
        except CALL_ERRORS as error:
            # Somebody else just made it, and perhaps claimed it.
            if refusal(error) not in (Refusal.EXISTS, *_HELD):
                raise translate(error, f"writing {self._name}", self._place) from error

    async def prolong(self) -> bool:
        """Count the claim's seconds anew; False: it is over."""
        try:
            await self._lease().renew()
        except CALL_ERRORS as error:
            if refusal(error) in _LOST:
                return False
            raise translate(error, f"renewing the claim of {self._name}", self._place) from error
        return True

    async def write(self, content: bytes) -> None:
        """Write the document.

        Raises:
            StorageError: it may not be written; the claim may be over.
        """
        with translating(f"writing {self._name}", self._place):
            await self._blob.upload_blob(content, overwrite=True, lease=self._lease())

    async def give_back(self) -> None:
        """End the claim, if there is one."""
        try:
            await self._lease().release()
        except CALL_ERRORS as error:
            if refusal(error) not in _LOST:
                raise translate(error, f"releasing {self._name}", self._place) from error

    def _lease(self) -> BlobLeaseClient:
        """A new client each time: the SDK's loses its id at release."""
        return BlobLeaseClient(self._blob, lease_id=self._id)
