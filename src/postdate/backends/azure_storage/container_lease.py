"""The endpoint's lease, and the published word on who leads.

The lease is taken on the container named as the table, as .NET endpoints do, so that mixed fleets elect
one leader; or on the blob `leader.json` in it. A blob's lease guards only that blob and a container's
only its deletion (fact 18): neither stops a stale leader, the elector's trust window does.

`leader.json`, written with each acquire: {"holder", "term", "since", "lookahead_s"}. The term only grows,
because each write is conditional on the version that was read.
"""

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from azure.core import MatchConditions
from azure.storage.blob import BlobProperties, ContainerProperties
from azure.storage.blob.aio import BlobClient, BlobLeaseClient, ContainerClient

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, refusal, translate
from postdate.clock import StorageClock
from postdate.errors import PostdateError, ServiceBusy
from postdate.ports import LeaderRecord
from postdate.settings import LeaseTarget

LEADER_BLOB = "leader.json"
#: Seconds for one lease call, whatever hangs: a 15 s lease is trusted for less than that.
CALL_TIMEOUT_S = 3.0
#: How often a term is written anew when somebody else wrote meanwhile.
PUBLISH_TRIES = 4

#: No retries of the SDK: the elector tries again, and knows how long it may.
_LEASE_CALL: dict[str, Any] = {"retry_total": 0, "connection_timeout": 2, "read_timeout": 3}


@dataclass(frozen=True, slots=True)
class _Published:
    holder: str
    term: int
    since: datetime
    lookahead_s: float
    etag: str


class ContainerLease:
    """`ports.LeaseStore` for one elector."""

    def __init__(
        self, container: ContainerClient, place: Place, clock: StorageClock, target: LeaseTarget
    ) -> None:
        self._container = container
        self._blob: BlobClient = container.get_blob_client(LEADER_BLOB)
        self._on_blob = target is LeaseTarget.BLOB
        self._place = place
        self._clock = clock
        self._name = container.container_name
        # Proposed at acquire. Kept until the service has answered, so that an acquire after one whose
        # answer was lost takes the very lease that the lost one may have taken.
        self._id = str(uuid.uuid4())
        self._held = False
        # What the service counts by, as of the last acquire.
        self._duration_s = 0
        # From the first word of an acquire until the service has told that we have no lease.
        self._may_hold = False

    async def create(self) -> bool:
        """Create the container, private, and for a blob's lease the blob; True if anything was missing."""
        created = await self._create_container()
        if self._on_blob:
            created = await self._create_blob() or created
        return created

    async def acquire(self, holder: str, duration_s: int, lookahead_s: float) -> int | None:
        """Take the lease, publish who leads, and answer the new term; None: somebody else holds it.

        Creates what carries the lease where it is missing, as .NET endpoints do.
        """
        self._may_hold = True
        try:
            taken = await self._take(duration_s)
        except CALL_ERRORS as error:
            if refusal(error) not in (Refusal.NOT_PROVISIONED, Refusal.GONE):
                raise self._translated(error, "acquiring") from error
            await self.create()
            with self._translating("acquiring"):
                taken = await self._take(duration_s)
        if not taken:
            self._forget()
            return None
        self._held = True
        try:
            term = await self._publish(holder, lookahead_s)
        except BaseException:
            # Nobody would know the term, and nobody else could lead: let go.
            await self._let_go()
            raise
        if term is None:
            self._forget()
        return term

    async def renew(self, duration_s: int) -> bool:
        """Count the lease anew, for so long; False: it is lost.

        A renewal keeps the duration; acquiring by the id that holds the lease changes it. That would also
        take a lease that was broken meanwhile, so renew first.
        """
        if not self._held:
            return False
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._lease().renew(**_LEASE_CALL)
            if duration_s != self._duration_s and not await self._take(duration_s):
                self._forget()
                return False
        except CALL_ERRORS as error:
            if _is_lost(error):
                self._forget()
                return False
            raise self._translated(error, "renewing") from error
        return True

    async def release(self) -> None:
        """Give the lease back, if it may be held; repeating does no harm.

        Also after an acquire whose outcome is unknown: it may have been taken.
        """
        if not self._may_hold:
            return
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._lease().release(**_LEASE_CALL)
        except CALL_ERRORS as error:
            if not _is_lost(error):
                raise self._translated(error, "releasing") from error
        self._forget()

    async def break_lease(self) -> bool:
        """End whoever's lease at once; False: there was none."""
        try:
            # Breaking a lease that is broken or expired succeeds too, so look first.
            if not await self._is_leased():
                return False
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._lease().break_lease(lease_break_period=0, **_LEASE_CALL)
        except CALL_ERRORS as error:
            if _is_lost(error):
                return False
            raise self._translated(error, "breaking") from error
        return True

    async def let_run_out(self) -> bool:
        """Break the lease without a break period: no renewal is granted, and it runs to its end."""
        try:
            if not await self._is_leased():
                return False
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._lease().break_lease(**_LEASE_CALL)
        except CALL_ERRORS as error:
            if _is_lost(error):
                return False
            raise self._translated(error, "breaking") from error
        return True

    @property
    def lease_id(self) -> str | None:
        """Of the lease that is held, as far as we know."""
        return self._id if self._held else None

    async def prove(self, lease_id: str) -> bool:
        """Read properties under the condition that this lease is active; a read changes nothing."""
        try:
            await self._properties(lease=lease_id)
        except CALL_ERRORS as error:
            if _is_lost(error):
                return False
            raise self._translated(error, "proving", changes=False) from error
        return True

    async def holder(self) -> LeaderRecord | None:
        """Who published last, and whether the lease is held now; None: nobody ever published.

        A .NET leader publishes nothing, so under one the record is that of our last leader.
        """
        published = await self._read()
        if published is None:
            return None
        with self._translating("looking at", changes=False):
            leased = await self._is_leased()
        return LeaderRecord(published.holder, published.term, published.since, published.lookahead_s, leased)

    async def _is_leased(self) -> bool:
        # While a lease is being broken it is locked still.
        return bool((await self._properties()).lease.status == "locked")

    async def _properties(self, lease: str | None = None) -> BlobProperties | ContainerProperties:
        condition: dict[str, Any] = {} if lease is None else {"lease": lease}
        async with asyncio.timeout(CALL_TIMEOUT_S):
            if self._on_blob:
                return await self._blob.get_blob_properties(**condition, **_LEASE_CALL)
            return await self._container.get_container_properties(**condition, **_LEASE_CALL)

    async def _take(self, duration_s: int) -> bool:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._lease().acquire(lease_duration=duration_s, **_LEASE_CALL)
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.LEASED, Refusal.LEASE_LOST):
                return False  # held, or being broken
            raise
        self._duration_s = duration_s
        return True

    async def _publish(self, holder: str, lookahead_s: float) -> int | None:
        """Write the next term; None: the lease was lost meanwhile."""
        for attempt in range(PUBLISH_TRIES):
            # After a conflict somebody else may lead: only who holds the lease may write over it.
            if attempt and not await self.renew(self._duration_s):
                return None
            known = await self._read()
            term = known.term + 1 if known else 1
            record = {
                "holder": holder,
                "term": term,
                "since": self._clock.now().isoformat(),
                "lookahead_s": lookahead_s,
            }
            if await self._write(json.dumps(record).encode(), known.etag if known else None):
                return term
        raise ServiceBusy(
            f"container {self._name}: {LEADER_BLOB} was changed by others {PUBLISH_TRIES} times while a new "
            "leader published its term"
        )

    async def _write(self, content: bytes, etag: str | None) -> bool:
        """Write leader.json over the version read, or where there was none; False: it was changed."""
        options: dict[str, Any] = {"overwrite": etag is not None}
        if etag is not None:
            options |= {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        if self._on_blob:
            options["lease"] = self._id
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._blob.upload_blob(content, **options, **_LEASE_CALL)
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.EXISTS, Refusal.CHANGED, Refusal.LEASE_LOST):
                return False
            raise self._translated(error, f"publishing the leader in {LEADER_BLOB} by") from error
        return True

    async def _read(self) -> _Published | None:
        """leader.json; None: there is none."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                stream = await self._blob.download_blob(**_LEASE_CALL)
                content = await stream.readall()
                etag = str(stream.properties.etag)
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.GONE, Refusal.NOT_PROVISIONED):
                return None
            raise self._translated(error, "reading", changes=False) from error
        return self._parse(content, etag)

    def _parse(self, content: bytes, etag: str) -> _Published:
        try:
            record = json.loads(content or b"{}")
            return _Published(
                str(record.get("holder", "")),
                int(record.get("term", 0)),
                datetime.fromisoformat(record["since"]) if "since" in record else self._clock.now(),
                float(record.get("lookahead_s", 0)),
                etag,
            )
        except (ValueError, TypeError, AttributeError):
            # Somebody spoilt it. Seconds since 1970 are more than any term that was counted.
            now = self._clock.now()
            return _Published("", int(now.timestamp()), now, 0.0, etag)

    async def _create_container(self) -> bool:
        try:
            await self._container.create_container()  # private: no public access is asked for
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.EXISTS:
                return False
            raise self._translated(error, "creating") from error
        return True

    async def _create_blob(self) -> bool:
        try:
            await self._blob.upload_blob(b"", overwrite=False)
        except CALL_ERRORS as error:
            # LEASE_LOST here is LeaseIdMissing: it is there, and somebody holds it.
            if refusal(error) in (Refusal.EXISTS, Refusal.LEASE_LOST):
                return False
            raise self._translated(error, f"creating {LEADER_BLOB} in") from error
        return True

    async def _let_go(self) -> None:
        """Release after a failure; a second failure adds nothing that people could use."""
        try:
            await asyncio.shield(self.release())
        except PostdateError:
            self._held = False

    def _forget(self) -> None:
        """The lease is over: the next one gets an id of its own, which late calls of this one can't touch."""
        self._held = self._may_hold = False
        self._id = str(uuid.uuid4())

    def _lease(self) -> BlobLeaseClient:
        """A new client each time: the SDK's loses its id at release."""
        return BlobLeaseClient(self._blob if self._on_blob else self._container, lease_id=self._id)

    def _translated(self, error: BaseException, doing: str, *, changes: bool = True) -> PostdateError:
        what = f"{doing} the lease of container {self._name}"
        return translate(error, what, self._place, changes=changes)

    @contextmanager
    def _translating(self, doing: str, *, changes: bool = True) -> Iterator[None]:
        try:
            yield
        except CALL_ERRORS as error:
            raise self._translated(error, doing, changes=changes) from error


def _is_lost(error: BaseException) -> bool:
    """Expired, taken, broken, or with its blob or container gone: for us all the same."""
    return refusal(error) in (
        Refusal.LEASED,
        Refusal.LEASE_LOST,
        Refusal.CHANGED,
        Refusal.GONE,
        Refusal.NOT_PROVISIONED,
    )
