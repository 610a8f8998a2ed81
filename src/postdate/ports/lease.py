"""The lease that elects one leader."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """Who leads, as the leader itself published it."""

    holder: str
    term: int
    since: datetime
    #: Seconds before its due time that the leader may hand a message over.
    lookahead_s: float
    #: Whether the lease is held by anybody right now.
    leased: bool


class LeaseStore(Protocol):
    """The endpoint's lease. One instance belongs to one elector; it remembers the lease it holds.

    Anything unsure is an exception, and means follower.
    """

    async def create(self) -> bool:
        """Create what carries the lease, where it is missing; True if this call did."""
        ...

    async def acquire(self, holder: str, duration_s: int, lookahead_s: float) -> int | None:
        """Take the lease and publish who leads; the new term's number, or None: somebody else holds it.

        Term numbers grow by every acquire, over all processes.
        """
        ...

    async def renew(self, duration_s: int) -> bool:
        """Count the lease anew, for so long; False: it is lost (expired and taken, broken, or never held)."""
        ...

    async def release(self) -> None:
        """Give the lease back, if it is held; the next `acquire` of anybody succeeds at once."""
        ...

    async def break_lease(self) -> bool:
        """Take the lease away from whoever holds it, at once; False: nobody held it."""
        ...

    async def let_run_out(self) -> bool:
        """Refuse whoever holds the lease any renewal, so that it ends when its time is over; False: nobody
        held it.

        Until then nobody else gets it: the holder has the time that it was promised, and stops by itself.
        """
        ...

    @property
    def lease_id(self) -> str | None:
        """What proves to the service that the lease is held; None: this store holds none, as far as it knows.

        Helpers in other processes prove with it, as long as the term lasts, that they may act.
        """
        ...

    async def prove(self, lease_id: str) -> bool:
        """Ask the service whether this is the lease that is held now; False: it ended, or is another's."""
        ...

    async def holder(self) -> LeaderRecord | None:
        """Who led last and whether the lease is held now; None: nobody ever published."""
        ...
