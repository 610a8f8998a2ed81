"""The delays table in memory: rows as stored properties, through the same codec as the real table."""

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from postdate.errors import MessageTooLarge, NotProvisioned
from postdate.model.added import AddOutcome
from postdate.model.delayed import DelayedMessage, Row, RowValue
from postdate.model.keys import RowKey, bound
from postdate.model.limits import BINARY_PROPERTY_BYTES, PAGE_ROWS, STRING_PROPERTY_UNITS
from postdate.model.rowcodec import FAILURE_COUNT, NEXT_ATTEMPT_TIME, decode_row, encode_row
from postdate.ports import AddResult, Guard, LeaseLost, all_added

_STRING_BYTES = 2 * STRING_PROPERTY_UNITS


@dataclass
class _Stored:
    properties: dict[str, RowValue]
    etag: str


@dataclass
class TableSlot:
    """One table's rows by partition and row key."""

    rows: dict[tuple[str, str], _Stored] = field(default_factory=dict)
    versions: "itertools.count[int]" = field(default_factory=itertools.count)


class MemoryTable:
    """DelayedStore in memory."""

    def __init__(self, tables: dict[str, TableSlot], name: str) -> None:
        self._tables = tables
        self._name = name

    def _slot(self) -> TableSlot:
        slot = self._tables.get(self._name)
        if slot is None:
            raise NotProvisioned(f"table {self._name!r} does not exist; create it with `postdate setup`")
        return slot

    async def create(self) -> bool:
        """Create the table where it is missing."""
        created = self._name not in self._tables
        self._tables.setdefault(self._name, TableSlot())
        return created

    async def add(self, messages: Sequence[DelayedMessage]) -> list[AddResult]:
        """Insert what is not there."""
        slot = self._slot()
        outcomes: list[AddOutcome] = []
        for message in messages:
            key = message.key
            place = (key.partition, key.row)
            created = place not in slot.rows
            if created:
                properties = encode_row(message)
                if _too_large(properties):
                    outcomes.append(MessageTooLarge(f"a row of table {self._name!r} can't hold so much"))
                    continue
                slot.rows[place] = _Stored(properties, f"v{next(slot.versions)}")
            outcomes.append(AddResult(key, slot.rows[place].etag, created))
        return all_added(outcomes)

    def insert_raw(self, properties: dict[str, RowValue]) -> None:
        """Put a row as another program would, whatever it holds."""
        slot = self._slot()
        place = (str(properties["PartitionKey"]), str(properties["RowKey"]))
        slot.rows[place] = _Stored(dict(properties), f"v{next(slot.versions)}")

    async def due(self, until: datetime) -> AsyncIterator[Sequence[Row]]:
        """Pages of rows due by then, each read when it is asked for."""
        limit = bound(until)
        after = ("", "")
        while True:
            places = sorted(
                place
                for place in self._slot().rows
                if place > after and place[0] <= limit.partition and place[1] <= limit.row
            )[:PAGE_ROWS]
            if not places:
                return
            after = places[-1]
            rows = [row for place in places if (row := self._read(place)) is not None]
            yield sorted((row for row in rows if (at := _due(row)) is None or at <= until), key=_order)

    async def next_due(self, after: datetime | None = None) -> datetime | None:
        """The earliest due time, or the earliest after an instant."""
        rows = (row for place in list(self._slot().rows) if (row := self._read(place)) is not None)
        instants = [at for row in rows if (at := _due(row)) is not None]
        return min((at for at in instants if after is None or at > after), default=None)

    async def remove(self, rows: Sequence[Row], guard: Guard | None = None) -> list[bool]:
        """Delete the versions that were read."""
        slot = self._slot()
        if guard is not None and not guard():
            raise LeaseLost
        answers = []
        for row in rows:
            place = (row.key.partition, row.key.row)
            stored = slot.rows.get(place)
            mine = stored is not None and stored.etag == row.etag
            if mine:
                del slot.rows[place]
            answers.append(mine)
        return answers

    async def update(self, row: Row, *, failure_count: int, next_attempt_at: datetime | None) -> str | None:
        """Write attempts and next-try time of the version that was read."""
        slot = self._slot()
        stored = slot.rows.get((row.key.partition, row.key.row))
        if stored is None or stored.etag != row.etag:
            return None
        stored.properties[FAILURE_COUNT] = failure_count
        stored.properties[NEXT_ATTEMPT_TIME] = next_attempt_at
        stored.etag = f"v{next(slot.versions)}"
        return stored.etag

    async def get(self, key: RowKey) -> Row | None:
        """One row."""
        self._slot()
        return self._read((key.partition, key.row))

    async def upcoming(
        self, *, start: datetime | None = None, end: datetime | None = None
    ) -> AsyncIterator[Row]:
        """Rows between two instants."""
        rows = [row for place in list(self._slot().rows) if (row := self._read(place)) is not None]
        for row in sorted(rows, key=_order):
            at = _due(row)
            early = start is not None and (at is None or at < start)
            late = end is not None and at is not None and at >= end
            if not early and not late:
                yield row

    def _read(self, place: tuple[str, str]) -> Row | None:
        stored = self._slot().rows.get(place)
        return None if stored is None else decode_row(stored.properties, stored.etag)


def _too_large(properties: dict[str, RowValue]) -> bool:
    return any(
        (isinstance(value, bytes) and len(value) > BINARY_PROPERTY_BYTES)
        or (isinstance(value, str) and len(value.encode("utf-16-le", "surrogatepass")) > _STRING_BYTES)
        for value in properties.values()
    )


def _due(row: Row) -> datetime | None:
    return row.due_at if not hasattr(row, "delayed") else row.delayed.due_at


def _order(row: Row) -> tuple[str, str, str]:
    at = _due(row)
    return (at.isoformat() if at else "", row.key.partition, row.key.row)
