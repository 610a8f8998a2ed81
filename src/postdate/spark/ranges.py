"""Ranges of row keys: what a filter on the due time leaves, cut into parts of even size. Pure.

A part is either whole hours (table partitions) or a piece of one hour, so that each row lies in exactly one
part, whatever its row key looks like, and the service can seek to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from postdate.model.keys import RowKey, bound

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DueWindow:
    """`start <= due < end`; None: open."""

    start: datetime | None = None
    end: datetime | None = None

    def from_(self, instant: datetime) -> "DueWindow":
        """Cut off what is due before."""
        return self if self.start is not None and self.start >= instant else replace(self, start=instant)

    def until(self, instant: datetime) -> "DueWindow":
        """Cut off what is due at or after."""
        return self if self.end is not None and self.end <= instant else replace(self, end=instant)

    def holds(self, due_at: datetime | None) -> bool:
        """Whether something due then lies in it. What tells no due time is due at once."""
        if due_at is None:
            return self.start is None
        return (self.start is None or due_at >= self.start) and (self.end is None or due_at < self.end)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows with `first <= partition <= last`, in one hour also `row_from <= row < row_until`; None: open.

    With `after` also `partition > after`.
    """

    first: str | None = None
    last: str | None = None
    row_from: str | None = None
    row_until: str | None = None
    after: str | None = None

    def filter(self) -> str:
        """As a filter of the table service; empty: all rows."""
        if self.first is not None and self.first == self.last:
            conditions = [f"PartitionKey eq {_quoted(self.first)}"]
        else:
            conditions = [f"PartitionKey ge {_quoted(self.first)}"] if self.first is not None else []
            conditions += [f"PartitionKey le {_quoted(self.last)}"] if self.last is not None else []
        conditions += [f"PartitionKey gt {_quoted(self.after)}"] if self.after is not None else []
        conditions += [f"RowKey ge {_quoted(self.row_from)}"] if self.row_from is not None else []
        conditions += [f"RowKey lt {_quoted(self.row_until)}"] if self.row_until is not None else []
        return " and ".join(conditions)


class Hour(NamedTuple):
    """A partition, its rows, and the row keys that cut it into pieces."""

    partition: str
    rows: int
    boundaries: Sequence[str]


def hours(window: DueWindow) -> KeyRange:
    """The hours that a window's rows may lie in; a row of .NET is due when the second in its key is over."""
    first = last = None
    if window.start is not None:
        first = bound(window.start.replace(microsecond=0) - _SECOND).partition
    if window.end is not None:
        last = bound(window.end).partition
    return KeyRange(first, last)


def cut(keys: Iterable[RowKey], rows: int) -> Iterator[KeyRange]:
    """Ranges of about so many rows that hold all the keys, which come in order.

    Nothing but the current hour's boundaries is kept, however many keys there are.
    """
    return joined(counted(keys, rows), rows)


def joined(hours: Iterable[Hour], rows: int) -> Iterator[KeyRange]:
    """Ranges of about so many rows: hours in order, few together, many in pieces."""
    whole: KeyRange | None = None
    held = 0
    for partition, count, boundaries in hours:
        if boundaries:
            if whole is not None:
                yield whole
            whole, held = None, 0
            edges = [None, *boundaries, None]
            for start, end in pairwise(edges):
                yield KeyRange(partition, partition, start, end)
        elif whole is not None and held + count <= rows:
            whole, held = KeyRange(whole.first, partition), held + count
        else:
            if whole is not None:
                yield whole
            whole, held = KeyRange(partition, partition), count
    if whole is not None:
        yield whole


def counted(keys: Iterable[RowKey], rows: int) -> Iterator[Hour]:
    """The hours of keys that come in order."""
    partition, count, boundaries = "", 0, list[str]()
    for key in keys:
        if key.partition != partition:
            if count:
                yield Hour(partition, count, boundaries)
            partition, count, boundaries = key.partition, 0, []
        elif count and not count % rows:
            boundaries.append(key.row)
        count += 1
    if count:
        yield Hour(partition, count, boundaries)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
