"""What the calls of a migration tell."""

from dataclasses import dataclass

from postdate.spark.migrating.documents import PartDocument, Phase


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a run did, or what a preview says it would do."""

    run: str
    phase: str
    #: Timeouts that were taken out of the old manager's sight, by this run.
    staged: int
    #: Of them, how many are rows now; a message that was there twice is one row.
    moved: int
    #: Of their rows, how many should wait now, and do; the others were delivered since.
    expected: int
    found: int
    delivered: int
    #: Sums over the content of the timeouts and of those rows, 32 hex digits.
    checksum_staged: str
    checksum_expected: str
    checksum_found: str
    #: By `abort`: back where they were; and left to a leader that may hold them.
    given_back: int
    kept: int
    #: These stay where they are: no row can be made of them; due so soon that the old manager may act.
    refused: int
    too_soon: int
    possible_duplicates: int
    #: Of refused and duplicated ones, a few: id and reason.
    examples: tuple[tuple[str, str], ...]
    parts: int
    parts_completed: int
    seconds: float

    @property
    def verified(self) -> bool:
        """Whether counts and checksums agree, from the old store to the rows."""
        same = (self.expected, self.checksum_expected) == (self.found, self.checksum_found)
        return same and (self.phase != Phase.COMPLETED or self.parts == self.parts_completed)


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """How far a run came."""

    run: str
    #: pending (in the middle, or stopped), completed, aborting or aborted.
    phase: str
    source: str
    due_from: str | None
    began_at: str
    parts: int
    parts_staged: int
    parts_completed: int
    parts_given_back: int
    total: PartDocument


def told(run: str, phase: Phase, total: PartDocument, parts: int, seconds: float) -> Migrated:
    """The sum of a run's parts as people get it."""
    return Migrated(
        run=run,
        phase=phase.value,
        staged=total.staged,
        moved=total.moved,
        expected=total.expected,
        found=total.found,
        delivered=total.delivered,
        checksum_staged=total.staged_sum,
        checksum_expected=total.expected_sum,
        checksum_found=total.found_sum,
        given_back=total.given_back,
        kept=total.kept,
        refused=total.refused,
        too_soon=total.too_soon,
        possible_duplicates=total.doubtful,
        examples=tuple(total.examples),
        parts=parts,
        parts_completed=total.parts_completed,
        seconds=round(seconds, 3),
    )
