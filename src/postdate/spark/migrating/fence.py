"""Whether the call that a task works for is still the one that works on the run.

Each call that changes something takes the run's next term; then all terms before are over. Neither tables
nor databases check it, so a task asks before each batch, and twice a second while it works. No request
leaves, and no transaction begins, when the last answer is older than `TRUST_SECONDS`, as in a process that
was frozen. Who takes a term waits for as long, and then nobody of an earlier term does anything more.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from postdate.backends.azure_storage.transport import calling
from postdate.clock import Clock
from postdate.errors import StorageError, UsageError
from postdate.ports import LeaseLost
from postdate.spark.migrating.documents import Documents

#: Seconds for which an answer is good, from when it was asked for. A busy service answers the question no
#: sooner than the requests before it; whoever takes a term waits for as long.
TRUST_SECONDS = 10.0
_PROOF_SECONDS = 0.5


class Fence:
    """One term, as a task or the driver of a call sees it."""

    def __init__(self, documents: Documents, term: int, clock: Clock) -> None:
        self._documents = documents
        self._term = term
        self._clock = clock
        self._trusted_until = float("-inf")

    def may_act(self) -> bool:
        """Whether the term surely stands."""
        return self._clock.monotonic() < self._trusted_until

    async def check(self) -> None:
        """Ask whether the term still stands.

        Raises:
            UsageError: another call works on the run by now.
            StorageError: there was no answer.
        """
        began = self._clock.monotonic()
        with calling(guard=_always):
            found = await self._documents.term()
        if found != self._term:
            self._trusted_until = float("-inf")
            raise self._over()
        self._trusted_until = began + TRUST_SECONDS

    @asynccontextmanager
    async def held(self) -> AsyncIterator["Fence"]:
        """What is requested inside leaves only while the term stands.

        Raises:
            UsageError: it does not stand any more.
        """
        await self.check()
        watching = asyncio.create_task(self._watch())
        try:
            with calling(guard=self.may_act):
                yield self
        except LeaseLost:
            raise self._over() from None
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(_PROOF_SECONDS)
            with suppress(StorageError, UsageError):  # whoever works hears it at the next request
                await self.check()

    def _over(self) -> UsageError:
        return UsageError(
            f"run {self._documents.run!r}: another call works on it by now, or this one was held up for too "
            "long; nothing more was changed. Look with `postdate spark migrate status`"
        )


def _always() -> bool:
    return True
