"""In the elector's place in a task: proof, by the lease's id, that the driver's term still stands.

The service answers a read under the condition of a lease's id only while that lease is held. So a task acts
while such an answer is fresh: it is asked for before every page of 50 rows, and four times a second. When the
lease has ended, by the driver's own will, by its death, or because it was frozen for too long, the next
answer is no, and nothing more is sent in that term.

Several attempts of a task may run: Spark starts copies of slow ones, and takes an executor for dead that is
only out of reach. One of them works, the one that holds the claim on the task's document; another one waits
until that has ended, or has not prolonged its claim for 15 s.
"""

import asyncio
from collections.abc import Awaitable, Callable

from postdate.backends.azure_storage.claims import CLAIM_SECONDS, ClaimedBlob
from postdate.clock import Clock, wait_for
from postdate.core.term import Term, begin
from postdate.errors import StorageError, StorageUnreachable
from postdate.ports import LeaseStore

#: Seconds for which a proof is good, from when it was asked for.
TRUST_SECONDS = 2.0
#: Seconds between two proofs where no rows are read.
PROOF_SECONDS = 0.25
#: Seconds without any answer after which a task fails.
_PATIENCE_SECONDS = 30.0
#: Seconds between two looks whether the attempt that works has ended.
_TURN_SECONDS = 1.0


class Fence:
    """`engine.authority.Authority` for one task."""

    def __init__(
        self,
        term: int,
        lease_id: str,
        lease: LeaseStore,
        claim: ClaimedBlob,
        clock: Clock,
        stop_asked: Callable[[], Awaitable[bool]],
    ) -> None:
        self._term = term
        self._lease_id = lease_id
        self._lease = lease
        self._claim = claim
        self._clock = clock
        self._stop_asked = stop_asked
        self._proved_until = float("-inf")
        self._claimed: Term | None = None
        #: The driver's term is over.
        self.lost = False
        #: Another attempt has taken this task over.
        self.overtaken = False
        #: Whether anything was refused since somebody set it to False.
        self.refused = False
        #: Set when the driver asks to stop.
        self.stop = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether nothing may be done any more."""
        return self.lost or self.overtaken or self.stop.is_set()

    def may_act(self, number: int) -> bool:
        """Whether the term surely stands, and this attempt is the one that works."""
        now = self._clock.monotonic()
        allowed = (
            number == self._term
            and not self.lost
            and not self.overtaken
            and now < self._proved_until
            and self._claimed is not None
            and self._claimed.may_act(now)
        )
        self.refused = self.refused or not allowed
        return allowed

    async def prove(self) -> bool:
        """Ask the service; whether requests may leave now."""
        began = self._clock.monotonic()
        try:
            if await self._lease.prove(self._lease_id):
                self._proved_until = max(self._proved_until, began + TRUST_SECONDS)
            else:
                self.lost = True
        except StorageError:
            pass  # the last proof is good for a while yet
        return self.may_act(self._term)

    async def enter(self) -> bytes | None:
        """Wait for this attempt's turn: what the document says; None: there is nothing to be done any more.

        Raises:
            StorageError: the service failed.
        """
        while not self.ended:
            began = self._clock.monotonic()
            said = await self._claim.take()
            if said is not None:
                self._claimed = begin(self._term, attempted_at=began, lease_seconds=CLAIM_SECONDS)
                await self._look()
                return said
            await wait_for(self.stop, _TURN_SECONDS, self._clock)
            await self._look()
        return None

    async def watch(self) -> None:
        """Prove, prolong the claim and look whether to stop, until cancelled."""
        while True:
            await self._clock.sleep(PROOF_SECONDS)
            await self._look()

    async def sure(self) -> None:
        """Wait until requests may leave again, or nothing may be done any more.

        Raises:
            StorageUnreachable: there was no answer for 30 s.
        """
        gives_up = self._clock.monotonic() + _PATIENCE_SECONDS
        while not self.ended and not await self.prove():
            if self._clock.monotonic() >= gives_up:
                raise StorageUnreachable("the service does not tell whether the term still stands")
            await self._clock.sleep(PROOF_SECONDS)

    async def _look(self) -> None:
        await asyncio.gather(self.prove(), self._look_for_stop(), self._prolong())

    async def _look_for_stop(self) -> None:
        try:
            if await self._stop_asked():
                self.stop.set()
        except StorageError:
            pass

    async def _prolong(self) -> None:
        began = self._clock.monotonic()
        if self._claimed is None or began < self._claimed.renew_at:
            return
        if not self._claimed.may_act(began):
            # Frozen, or cut off: somebody else may have it, and the service would renew it all the same.
            self.overtaken = True
            return
        try:
            if await self._claim.prolong():
                self._claimed = begin(self._term, attempted_at=began, lease_seconds=CLAIM_SECONDS)
            else:
                self.overtaken = True
        except StorageError:
            pass  # it lasts a while yet
