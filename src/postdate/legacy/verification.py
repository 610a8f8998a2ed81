"""Is everything there that was moved? Asked of the delays table, by what the undo file says."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from postdate.legacy.ground import Ground
from postdate.legacy.judge import Movable
from postdate.legacy.undo_lines import Line, batches
from postdate.model.delayed import DelayedRow
from postdate.model.keys import RowKey
from postdate.model.legacy_move import Checksum, fingerprint
from postdate.model.legacy_timeout import LegacyTimeout

#: Timeouts that are looked for in one reading of a range of the table.
_CHUNK = 10_000
_SECOND = timedelta(seconds=1)


@dataclass(slots=True)
class Verified:
    """What a run should have left in the delays table, and what is there."""

    #: Rows by the undo file, without those that were delivered meanwhile; and rows that are there.
    expected: Checksum = field(default_factory=Checksum)
    found: Checksum = field(default_factory=Checksum)
    #: Not there any more, as they should not be: a leader took them.
    delivered: int = 0
    #: Not there, although no leader can have taken them: lost, cancelled or moved by somebody.
    missing: list[LegacyTimeout] = field(default_factory=list)
    #: There, with other content.
    changed: list[LegacyTimeout] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether counts and checksums are the same."""
        return (self.expected.count, self.expected.text) == (self.found.count, self.found.text)


async def verify(ground: Ground, lines: Iterable[Line], run: str) -> Verified:
    """Compare what a run moved with the rows that are there. Reads the table once, and nothing else."""
    verified = Verified()
    chunk: dict[RowKey, Movable] = {}
    for batch in batches(lines, run=run):
        for timeout_id in batch.moved:
            movable = ground.judge.weigh(batch.timeouts[timeout_id])
            if isinstance(movable, Movable):
                chunk[movable.delayed.key] = movable
            else:
                verified.missing.append(batch.timeouts[timeout_id])
        if len(chunk) >= _CHUNK:
            await _compare(ground, chunk, verified)
            chunk = {}
    if chunk:
        await _compare(ground, chunk, verified)
    return verified


async def _compare(ground: Ground, chunk: dict[RowKey, Movable], verified: Verified) -> None:
    instants = [one.delayed.due_at for one in chunk.values()]
    there: dict[RowKey, int | None] = {}
    async for row in ground.backend.store.upcoming(start=min(instants), end=max(instants) + _SECOND):
        if row.key in chunk:
            there[row.key] = fingerprint(row.delayed) if isinstance(row, DelayedRow) else None
    latest, reach = ground.clock.latest(), await ground.reach()
    for key, one in chunk.items():
        wanted = fingerprint(one.delayed)
        if key not in there and latest >= one.delayed.due_at - reach:
            verified.delivered += 1
            continue
        verified.expected.add(wanted)
        found = there.get(key)
        if found is not None:
            verified.found.add(found)
        if found != wanted:
            (verified.changed if key in there else verified.missing).append(one.timeout)
