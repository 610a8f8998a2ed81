"""A lease in memory that expires by the clock."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from postdate.clock import Clock
from postdate.ports import LeaderRecord


@dataclass
class LeaseSlot:
    """Who holds it until when, and what the last leader published."""

    lease_id: str | None = None
    until: float = 0.0
    term: int = 0
    holder: str | None = None
    since: datetime | None = None
    lookahead_s: float = 0.0
    #: It ends at `until`, whatever its holder wants.
    running_out: bool = False


class MemoryLease:
    """LeaseStore in memory."""

    def __init__(self, leases: dict[str, LeaseSlot], name: str, clock: Clock) -> None:
        self._leases = leases
        self._name = name
        self._clock = clock
        self._lease_id: str | None = None

    @property
    def _slot(self) -> LeaseSlot:
        return self._leases.setdefault(self._name, LeaseSlot())

    def _leased(self) -> bool:
        return self._slot.lease_id is not None and self._clock.monotonic() < self._slot.until

    async def create(self) -> bool:
        """Make the place that carries the lease."""
        created = self._name not in self._leases
        _ = self._slot
        return created

    async def acquire(self, holder: str, duration_s: int, lookahead_s: float) -> int | None:
        """Take it if it is free, expired or ours."""
        slot = self._slot
        if self._leased() and (slot.running_out or slot.lease_id != self._lease_id):
            return None
        slot.running_out = False
        self._lease_id = slot.lease_id = uuid.uuid4().hex
        slot.until = self._clock.monotonic() + duration_s
        slot.term += 1
        slot.holder, slot.since, slot.lookahead_s = holder, self._clock.now(), lookahead_s
        return slot.term

    async def renew(self, duration_s: int) -> bool:
        """Count anew; an expired lease that nobody took is still ours, as with the service."""
        slot = self._slot
        if self._lease_id is None or slot.running_out or slot.lease_id != self._lease_id:
            self._lease_id = None
            return False
        slot.until = self._clock.monotonic() + duration_s
        return True

    async def release(self) -> None:
        """Give it back."""
        if self._lease_id is not None and self._slot.lease_id == self._lease_id:
            self._free()
        self._lease_id = None

    async def break_lease(self) -> bool:
        """Take it away from whoever holds it."""
        held = self._leased()
        self._free()
        return held

    async def let_run_out(self) -> bool:
        """Refuse any renewal."""
        self._slot.running_out = self._slot.lease_id is not None
        return self._leased()

    @property
    def lease_id(self) -> str | None:
        """Of the lease that is held."""
        return self._lease_id

    async def prove(self, lease_id: str) -> bool:
        """Whether it is the one that is held now."""
        return self._leased() and self._slot.lease_id == lease_id

    def _free(self) -> None:
        self._slot.lease_id = None
        self._slot.running_out = False

    async def holder(self) -> LeaderRecord | None:
        """What the last leader published."""
        slot = self._slot
        if slot.holder is None or slot.since is None:
            return None
        return LeaderRecord(slot.holder, slot.term, slot.since, slot.lookahead_s, self._leased())
