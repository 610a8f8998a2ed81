"""Ranges of about even size from looks at a few keys here and there, where reading all of them would take as
long as the work that they are for.

A look tells the first keys from some place on. How close they lie tells where the next piece begins, and the
look there tells whether that was right. Where it was not (rows come in clumps, or end), the piece is halved
until it is, or until its keys are few enough to be counted. So a piece holds many more rows than asked for
only where they share an instant that no look hit; looks fall on each full and each half hour, where people
put them. No hour is missed, and the pieces of an hour leave nothing out, whatever was estimated.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from postdate.model.keys import RowKey
from postdate.spark.ranges import Hour, KeyRange

#: The first keys of a range in order, so many at most; fewer are all that there are.
Look = Callable[[KeyRange, int], Awaitable[Sequence[RowKey]]]

#: Keys of a look that estimates, and of one that counts: a page.
FEW, MANY = 100, 1_000
#: Rows that would lie in a gap if they went on as before, above which they did not.
_GAP = 20
# Positions in an hour: microseconds, and parts of them by the digits behind. Only the evenness of pieces
# depends on them, so they need not be right for every key.
_MICROSECOND = 1 << 32
_SECOND = 1_000_000 * _MICROSECOND
_HOUR, _HALF = 3_600 * _SECOND, 1_800 * _SECOND
#: Our keys, and those of .NET endpoints, which have no microseconds.
_FORM = re.compile(r"\d{10}(\d\d)(\d\d)_(?:(\d{6})_)?([0-9a-f]{8})", re.ASCII)


async def looked(look: Look, within: KeyRange, rows: int) -> list[Hour]:
    """The hours of a range, cut into pieces of about so many rows.

    Args:
        look: asks the service.
        within: whole hours.
        rows: of a piece.
    """
    few, many = min(FEW, rows + 1), min(MANY, rows + 1)
    found: list[Hour] = []
    rest, most = within, few
    while True:
        keys = await look(rest, most)
        seen = [
            Hour(partition, len(list(group)), ())
            for partition, group in groupby(keys, lambda key: key.partition)
        ]
        ended = len(keys) < most
        whole = seen if ended else seen[:-1]
        found += whole
        if ended:
            return found
        if not whole:
            found.append(await _Walk(look, rows, few, many).through(keys))
        # Where hours hold few rows, a page holds many hours.
        most = many if len(whole) > 1 else few
        rest = replace(within, after=found[-1].partition)


class _Step(NamedTuple):
    """A part of an hour, and what was seen behind it."""

    rows: int
    #: The first row key behind it.
    end: str
    keys: Sequence[RowKey]
    #: How many were asked for.
    most: int


@dataclass(frozen=True, slots=True)
class _Walk:
    """Through an hour with many rows."""

    look: Look
    rows: int
    few: int
    many: int

    async def through(self, keys: Sequence[RowKey]) -> Hour:
        """The hour that begins with these keys, of which there are more."""
        partition, most = keys[0].partition, len(keys)
        total = held = 0
        boundaries, start = list[str](), ""
        while True:
            step = await self._step(keys) if len(keys) == most else None
            count = len(keys) if step is None else step.rows
            if held and held + count > self.rows:
                boundaries.append(start)
                held = 0
            total, held = total + count, held + count
            if step is None or not step.keys:
                return Hour(partition, total, boundaries)
            keys, most, start = step.keys, step.most, step.end

    async def _step(self, keys: Sequence[RowKey]) -> _Step:
        """As far as rows go on as these do."""
        first, last = _position(keys[0].row), _position(keys[-1].row)
        if first is None or last is None or last <= first:
            return await self._counted(keys)
        each = (last - first) / (len(keys) - 1)
        target = min(first + round(each * self.rows), (first // _HALF + 1) * _HALF)
        while (end := _row_at(target, keys[-1])) > keys[-1].row:
            count = max(len(keys), round((target - first) / each))
            if target >= _HOUR:
                return _Step(count, end, (), 0)
            ahead = await self.look(self._rest(keys, end), self.few)
            if ahead and (_position(ahead[0].row) or _HOUR) - target <= _GAP * each:
                return _Step(count, end, ahead, self.few)
            if count <= self.many:
                break
            target = (first + target) // 2
        return await self._counted(keys)

    async def _counted(self, keys: Sequence[RowKey]) -> _Step:
        """No further than keys are seen; a page of them."""
        if len(keys) < self.many:
            keys = await self.look(self._rest(keys, keys[0].row), self.many)
            if len(keys) < self.many:
                return _Step(len(keys), "", (), 0)
        end = keys[-1].row
        return _Step(len(keys) - 1, end, await self.look(self._rest(keys, end), self.many), self.many)

    def _rest(self, keys: Sequence[RowKey], start: str) -> KeyRange:
        return KeyRange(keys[0].partition, keys[0].partition, start)


def _position(row: str) -> int | None:
    found = _FORM.match(row)
    if found is None:
        return None
    minute, second, micros, digits = found.groups()
    whole = (int(minute) * 60 + int(second)) * _SECOND
    if micros is None:
        return whole + int(digits, 16) * 1_000_000
    return whole + int(micros) * _MICROSECOND + int(digits, 16)


def _row_at(position: int, like: RowKey) -> str:
    """A row key at a position, in the form of another one of the same hour."""
    seconds, rest = divmod(position, _SECOND)
    minute, second = divmod(seconds, 60)
    found = _FORM.match(like.row)
    assert found is not None
    begin = f"{like.row[:10]}{minute:02d}{second:02d}_"
    if found[3] is None:
        return f"{begin}{rest // 1_000_000:08x}"
    micros, part = divmod(rest, _MICROSECOND)
    return f"{begin}{micros:06d}_{part:08x}"
