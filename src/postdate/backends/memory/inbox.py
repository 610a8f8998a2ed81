"""What consumers remember, in memory."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from postdate.clock import EPOCH, Clock
from postdate.errors import NotProvisioned
from postdate.model.inbox import InboxKey, consumer_of, old_partitions
from postdate.model.keys import RowKey
from postdate.ports.inbox import Busy, Done, Fresh, InboxAnswer, InboxClaim, claim_lost


@dataclass
class _Row:
    token: str
    attempt: int
    until: datetime
    written_at: datetime
    etag: str
    done: bool = False
    outcome: bytes = b""
    records: dict[str, bytes] = field(default_factory=dict)


@dataclass
class InboxSlot:
    """One inbox table's rows."""

    rows: dict[RowKey, _Row] = field(default_factory=dict)
    versions: "itertools.count[int]" = field(default_factory=itertools.count)


class MemoryInbox:
    """InboxStore in memory."""

    def __init__(self, inboxes: dict[str, InboxSlot], name: str, clock: Clock) -> None:
        self._inboxes = inboxes
        self._name = name
        self._clock = clock

    def _slot(self) -> InboxSlot:
        slot = self._inboxes.get(self._name)
        if slot is None:
            raise NotProvisioned(
                f"table {self._name!r} does not exist; create it with `postdate setup --inbox`"
            )
        return slot

    def _touch(self, row: _Row) -> str:
        row.etag = f"v{next(self._slot().versions)}"
        row.written_at = self._clock.now()
        return row.etag

    def _held(self, claim: InboxClaim) -> _Row | None:
        row = self._slot().rows.get(claim.key.place)
        return row if row is not None and row.etag == claim.etag else None

    async def create(self) -> bool:
        """Create the table where it is missing."""
        created = self._name not in self._inboxes
        self._inboxes.setdefault(self._name, InboxSlot())
        return created

    async def claim(self, key: InboxKey, token: str, until: datetime) -> InboxAnswer:
        """Insert a claim, or take over one that is past its time."""
        rows = self._slot().rows
        row = rows.get(key.place)
        if row is None:
            row = rows[key.place] = _Row(token, 0, until, self._clock.now(), "")
        elif row.done:
            return Done(row.outcome)
        elif row.token == token:
            return Fresh(InboxClaim(key, token, row.attempt, row.etag))
        elif row.until > self._clock.now():
            return Busy(row.until)
        row.token, row.until = token, until
        row.attempt += 1
        return Fresh(InboxClaim(key, token, row.attempt, self._touch(row)))

    async def prolong(self, claim: InboxClaim, until: datetime) -> InboxClaim | None:
        """Write a later end of the version that we wrote last."""
        row = self._held(claim)
        if row is None:
            return None
        row.until = until
        return InboxClaim(claim.key, claim.token, claim.attempt, self._touch(row))

    async def complete(self, claim: InboxClaim, outcome: bytes, records: Mapping[str, bytes]) -> None:
        """Make the claim a row that is done with."""
        row = self._slot().rows.get(claim.key.place)
        if row is not None and row.done and (row.token, row.attempt) == (claim.token, claim.attempt):
            return
        if row is None or row.etag != claim.etag:
            raise claim_lost(claim)
        row.done, row.outcome, row.records = True, outcome, dict(records)
        self._touch(row)

    async def release(self, claim: InboxClaim) -> bool:
        """End the claim now."""
        row = self._held(claim)
        if row is None:
            return False
        row.until = EPOCH
        self._touch(row)
        return True

    async def settle(self, key: InboxKey) -> None:
        """Drop the outcome."""
        row = self._slot().rows.get(key.place)
        if row is not None and row.done:
            row.outcome = b""
            self._touch(row)

    async def records(self, key: InboxKey) -> dict[str, bytes]:
        """The records of a row that is done with."""
        row = self._slot().rows.get(key.place)
        return dict(row.records) if row is not None and row.done else {}

    async def forget(self, consumer: str, before: datetime) -> int:
        """Drop old rows of old partitions."""
        rows = self._inboxes.get(self._name, InboxSlot()).rows
        first, end = old_partitions(consumer, before)
        old = [
            place for place, row in rows.items() if first <= place.partition < end and row.written_at < before
        ]
        for place in old:
            del rows[place]
        return len(old)

    async def consumers(self) -> list[str]:
        """The consumers of all partitions."""
        rows = self._inboxes.get(self._name, InboxSlot()).rows
        return sorted({consumer_of(place.partition) for place in rows})
