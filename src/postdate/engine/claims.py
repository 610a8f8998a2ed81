"""A claim that this process holds on a message, prolonged for as long as its handler works.

Every write is conditional on the version that this claim wrote last. So it does not matter how long the
process was frozen, or what it believes of the time: once somebody else has taken the message over, nothing
of this claim can be kept any more.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from postdate.clock import Clock
from postdate.engine.tasks import to_the_end
from postdate.errors import PostdateError
from postdate.events import Events, InboxCallFailed, InboxClaimLost
from postdate.ports import InboxClaim, InboxStore

#: A claim is prolonged so often while it lasts.
_BEATS = 3
#: Seconds for giving a claim back; without an answer it ends by itself.
_RELEASE_SECONDS = 5.0


class HeldClaim:
    """A claim, from the moment that it was granted until it is completed or given back."""

    def __init__(
        self, store: InboxStore, claim: InboxClaim, clock: Clock, events: Events, length: timedelta
    ) -> None:
        self._store = store
        self._claim = claim
        self._clock = clock
        self._events = events
        self._length = length
        #: Held during each write, since each has to know the version that the one before made.
        self._writing = asyncio.Lock()
        self._lost = False
        self._prolonging = asyncio.create_task(self._prolong(), name="postdate-claim")

    @property
    def attempt(self) -> int:
        """The how-many-th claim of the message it is."""
        return self._claim.attempt

    @property
    def lost(self) -> bool:
        """Whether it is known that somebody else has taken the message over."""
        return self._lost

    async def complete(self, outcome: bytes, records: Mapping[str, bytes]) -> None:
        """Write that the message is done with; see `InboxStore.complete`."""
        async with self._writing:
            await self._end()
            await self._store.complete(self._claim, outcome, records)

    async def release(self) -> None:
        """Give the claim back, as far as that is possible; cancellation can't cut this short."""
        await to_the_end(asyncio.create_task(self._release(), name="postdate-release"))

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(_RELEASE_SECONDS), self._writing:
                await self._end()
                await self._store.release(self._claim)
        except (PostdateError, TimeoutError) as error:
            self._tell("giving a claim back", error)
        finally:
            await self._end()

    async def _end(self) -> None:
        """No write follows by itself. With `_writing` held, none is under way either."""
        self._prolonging.cancel()
        await asyncio.gather(self._prolonging, return_exceptions=True)

    async def _prolong(self) -> None:
        while not self._lost:
            await self._clock.sleep(self._length.total_seconds() / _BEATS)
            async with self._writing:
                try:
                    claim = await self._store.prolong(self._claim, self._clock.now() + self._length)
                except PostdateError as error:
                    self._tell("prolonging a claim", error)  # and try again: it may last yet
                    continue
                if claim is not None:
                    self._claim = claim
                    continue
                self._lost = True
                key = self._claim.key
                self._events.emit(InboxClaimLost(key.consumer, key.message_id, self.attempt))

    def _tell(self, doing: str, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        self._events.emit(InboxCallFailed(self._claim.key.consumer, doing, reason))
