"""What a task does with one part: timeouts are staged, then become rows, or go back.

    pending -> staged      taken out of the old manager's sight, whole; counted and summed up
    staged -> completed    each has its row; the rows are read again, counted and summed up
    pending, staged -> given back

Killed anywhere, the next attempt goes on. Row keys depend on the timeouts alone, so no row is there twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from postdate.errors import PostdateError, UsageError
from postdate.legacy.ground import Ground, Selection
from postdate.legacy.judge import Movable, Refused
from postdate.legacy.placing import place
from postdate.model.delayed import DelayedRow, Row
from postdate.model.keys import RowKey
from postdate.model.legacy_move import fingerprint
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.spark.migrating.documents import MODULUS, Documents, PartDocument, Phase
from postdate.spark.migrating.fence import Fence
from postdate.spark.migrating.sources import Chosen, Range
from postdate.spark.migrating.taking import Found, OldTimeouts

_SECOND = timedelta(seconds=1)
#: Between the look at a row and its removal no leader may begin to hold it.
_MARGIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A row that should be there."""

    fingerprint: int
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Worker:
    """What a task works with, on one run."""

    ground: Ground
    old: OldTimeouts
    documents: Documents
    chosen: Chosen
    #: None: nothing is changed, or nobody else works on the run.
    fence: Fence | None = None

    async def migrate(self, part: int, within: Range) -> PartDocument:
        """Bring a part to its end, from wherever it is.

        Raises:
            UsageError: the run was given up, or settings are not those with which it began.
            PostdateError: rows are not there, or another timeout's; the same call tries again.
            StorageError: the same call goes on.
        """
        document = await self.documents.part(part)
        if document.phase is Phase.PENDING:
            document = await self.stage(part, within)
        if document.phase is Phase.STAGED:
            document = await self.complete(part)
        elif document.phase is Phase.COMPLETED:
            await self._clear(part)  # the task that completed it may have been killed before this
        return document

    # --- pending -> staged --------------------------------------------------------------------------

    async def stage(self, part: int, within: Range) -> PartDocument:
        """Take what is selected, and sum up what is staged."""
        document = PartDocument(Phase.STAGED)
        await self.old.resume(part)
        async for batch in self.old.read(within, self.chosen.due_from):
            movable = await self.judged(batch, document)
            await self.check_not_given_up()
            if movable:
                await self.old.take(part, [one.timeout for one in movable])
        await self._sum_up(part, document)
        await self._write(part, document)
        return document

    async def judged(self, batch: Sequence[Found], document: PartDocument) -> list[Movable]:
        """Those that can be moved; what became of the others is counted."""
        judge, selection = self.ground.judge, self.chosen.selection
        readable = [one for one in batch if isinstance(one, LegacyTimeout)]
        for one in batch:
            if not isinstance(one, LegacyTimeout):
                document.refused += 1
                document.tell(one.id, one.reason)
        latest, reach = self.ground.clock.latest(), await self.ground.reach()
        later = [one for one in readable if not selection.too_soon(one.due_at, latest=latest, reach=reach)]
        document.too_soon += len(readable) - len(later)
        movable: list[Movable] = []
        for verdict in await judge.judge(later):
            if isinstance(verdict, Refused):
                document.refused += 1
                document.tell(verdict.id, verdict.reason)
            else:
                movable.append(verdict)
        return movable

    async def _sum_up(self, part: int, document: PartDocument) -> None:
        total = 0
        latest, reach = self.ground.clock.latest(), await self.ground.reach()
        selection: Selection = self.chosen.selection
        async for staged in self.old.staged(part):
            for one in staged.timeouts:
                total += fingerprint(self.weighed(one).delayed)
                document.staged += 1
                gone = one.id in staged.gone
                if gone and selection.may_be_released(one.due_at, latest=latest, reach=reach):
                    document.doubtful += 1
                    document.tell(one.id, "may be delivered twice: the timeout manager may have released it")
        document.staged_sum = f"{total % MODULUS:032x}"

    def weighed(self, timeout: LegacyTimeout) -> Movable:
        """What takes the place of a timeout that is staged."""
        verdict = self.ground.judge.weigh(timeout)
        if isinstance(verdict, Refused):
            raise UsageError(
                f"timeout {timeout.id} is staged, and now: {verdict.reason}; go on with the settings of "
                "before, or abort the run"
            )
        return verdict

    async def check_not_given_up(self) -> None:
        """See that this call may go on.

        Raises:
            UsageError: the run was given up, or another call works on it.
        """
        if await self.documents.is_given_up():
            raise UsageError(f"run {self.documents.run!r} was given up; begin another one")
        await self._check()

    async def _check(self) -> None:
        if self.fence is not None:
            await self.fence.check()

    async def _write(self, part: int, document: PartDocument) -> None:
        await self._check()
        await self.documents.put_part(part, document)

    # --- staged -> completed ------------------------------------------------------------------------

    async def complete(self, part: int) -> PartDocument:
        """Make a row of each that is staged, and look whether all are there."""
        document = await self.documents.part(part)
        wanted: dict[RowKey, _Wanted] = {}
        moved: list[str] = []
        total = sum(int(one, 16) for one in document.returned.values())
        async for staged in self.old.staged(part):
            await self.check_not_given_up()
            again = [one for one in staged.timeouts if one.id in document.returned]
            if again:  # a task may have been killed before this
                await self.old.give_back(part, again)
            movable = [self.weighed(one) for one in staged.timeouts if one.id not in document.returned]
            total += sum(fingerprint(one.delayed) for one in movable)
            refused = await place(self.ground, movable)
            await self._return(part, document, movable, refused)
            placed = [one for one in movable if one.timeout.id not in refused]
            moved += [one.timeout.id for one in placed]
            for one in placed:
                wanted[one.delayed.key] = _Wanted(fingerprint(one.delayed), one.delayed.due_at)
        if f"{total % MODULUS:032x}" != document.staged_sum:
            raise PostdateError(
                f"part {part}: what is staged is not what was staged before; somebody changed it, or two "
                "calls work on this run: run the same command again when no other runs"
            )
        await self._check()
        await self._check_rows(part, document, wanted)
        document.moved, document.phase = len(moved), Phase.COMPLETED
        await self.documents.put_moved(part, [*moved, *document.returned])
        await self._write(part, document)
        await self._clear(part)
        return document

    async def _clear(self, part: int) -> None:
        """Drop what is staged for a part that is completed; what came to it later goes back."""
        moved = set(await self.documents.moved(part))
        async for staged in self.old.staged(part):
            await self._check()
            strangers = [one for one in staged.timeouts if one.id not in moved]
            if strangers:
                await self.old.give_back(part, strangers)
            await self.old.drop(part, staged)
        await self.documents.drop_moved(part)

    async def _return(
        self, part: int, document: PartDocument, movable: Iterable[Movable], refused: Mapping[str, str]
    ) -> None:
        """Give back those that can't have a row; first written down, so that the sums stay right."""
        back = [one for one in movable if one.timeout.id in refused]
        if not back:
            return
        for one in back:
            document.returned[one.timeout.id] = f"{fingerprint(one.delayed):032x}"
            document.tell(one.timeout.id, refused[one.timeout.id])
        document.refused += len(back)
        await self._write(part, document)
        await self.old.give_back(part, [one.timeout for one in back])

    async def _check_rows(self, part: int, document: PartDocument, wanted: Mapping[RowKey, _Wanted]) -> None:
        there = await self._rows(wanted)
        latest, reach = self.ground.clock.latest(), await self.ground.reach()
        expected = found = missing = 0
        document.expected = document.found = document.delivered = 0
        for key, one in wanted.items():
            row = there.get(key)
            if row is None and latest >= one.due_at - reach:
                document.delivered += 1
                continue
            document.expected += 1
            expected += one.fingerprint
            if row is not None:
                document.found += 1
                found += _of_row(row)
            missing += row is None or _of_row(row) != one.fingerprint
        document.expected_sum = f"{expected % MODULUS:032x}"
        document.found_sum = f"{found % MODULUS:032x}"
        if missing:
            raise PostdateError(
                f"part {part}: {missing:,} of {len(wanted):,} rows are not there, or hold something else, "
                "though they were just written: somebody removed or changed them; what is staged stays, so "
                "run the same command again, or abort"
            )

    async def _rows(self, wanted: Mapping[RowKey, _Wanted]) -> dict[RowKey, Row]:
        """The rows that are there. Holds no bodies, but of one page."""
        if not wanted:
            return {}
        instants = [one.due_at for one in wanted.values()]
        found: dict[RowKey, Row] = {}
        async for row in self.ground.backend.store.upcoming(start=min(instants), end=max(instants) + _SECOND):
            if row.key in wanted:
                found[row.key] = row
        return found

    # --- given back ---------------------------------------------------------------------------------

    async def give_back(self, part: int) -> PartDocument:
        """Give back what is staged, unless the part is completed; a repeat goes on.

        Of a part whose rows were being made, the timeout is given back first, then its row removed. What a
        leader may hold stays a row.
        """
        document = await self.documents.part(part)
        if document.phase is Phase.COMPLETED:
            await self._clear(part)
            return document
        async for staged in self.old.staged(part):
            await self._check()
            again = [one for one in staged.timeouts if one.id in document.returned]
            left = [one for one in staged.timeouts if one.id not in document.returned]
            if again:
                await self.old.give_back(part, again)
            if left and document.phase is Phase.PENDING:
                await self.old.give_back(part, left)
                document.given_back += len(left)
            elif left:
                await self._swap(part, left, document)
            await self.old.drop(part, staged)
        document.phase = Phase.GIVEN_BACK
        await self._write(part, document)
        return document

    async def _swap(self, part: int, timeouts: Sequence[LegacyTimeout], document: PartDocument) -> None:
        movable = [self.weighed(one) for one in timeouts]
        wanted = {one.delayed.key: _Wanted(fingerprint(one.delayed), one.delayed.due_at) for one in movable}
        there = {
            key: row
            for key, row in (await self._rows(wanted)).items()
            if _of_row(row) == wanted[key].fingerprint
        }
        latest, reach = self.ground.clock.latest(), await self.ground.reach()
        back: list[Movable] = []
        for one in movable:
            is_near = latest + _MARGIN >= one.delayed.due_at - reach
            if is_near and one.delayed.key in there:
                document.kept += 1
                continue
            back.append(one)
            if is_near:
                document.doubtful += 1
                document.tell(one.timeout.id, "may be delivered twice: its row may have been delivered")
        if not back:
            return
        await self.old.give_back(part, [one.timeout for one in back])
        document.given_back += len(back)
        rows = {key: there[key] for one in back if (key := one.delayed.key) in there}
        answers = await self.ground.backend.store.remove(list(rows.values())) if rows else []
        for removed, key in zip(answers, rows, strict=True):
            if not removed:
                document.doubtful += 1
                document.tell(key.row, "may be delivered twice: its row was gone when it was removed")


def _of_row(row: Row) -> int:
    return fingerprint(row.delayed) if isinstance(row, DelayedRow) else 0
