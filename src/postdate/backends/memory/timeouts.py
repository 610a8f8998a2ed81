"""Legacy timeouts in memory: the rows of older endpoints, through the same codec as the real table."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby

from postdate.errors import NotProvisioned, PoisonMessage
from postdate.model.date_patterns import partition_scope
from postdate.model.keys import RowKey
from postdate.model.legacy_rows import (
    FIRST_TIME,
    OWNER,
    Properties,
    decode_or_tell,
    decode_timeout,
    due_of,
    encode_timeout,
    is_hidden,
    is_time_row,
    main_key,
    rest_keys,
    state_address,
    timeout_id_of,
)
from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout, TimeoutPlaces, UnreadableTimeout


@dataclass
class TimeoutSlot:
    """One table's rows by partition and row key, and the bodies by name."""

    rows: dict[tuple[str, str], Properties] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)


class MemoryTimeouts:
    """TimeoutStore in memory."""

    def __init__(self, slots: dict[str, TimeoutSlot], places: TimeoutPlaces) -> None:
        self._slots = slots
        self._places = places
        self._scope = partition_scope(places.partition_scope)

    def _slot(self) -> TimeoutSlot:
        slot = self._slots.get(self._places.table)
        if slot is None:
            raise NotProvisioned(
                f"table {self._places.table!r} of legacy timeouts does not exist; create it with "
                "`postdate setup --timeout-manager`"
            )
        return slot

    async def create(self) -> list[str]:
        """Create the table where it is missing."""
        if self._places.table in self._slots:
            return []
        self._slots[self._places.table] = TimeoutSlot()
        return [f"table {self._places.table}"]

    async def exists(self) -> bool:
        """Whether the table is there."""
        return self._places.table in self._slots

    async def add(self, one: LegacyTimeout) -> None:
        """Write what is not there: body, time row, saga row, main row."""
        slot = self._slot()
        rows = encode_timeout(one, self._scope)
        slot.states.setdefault(one.id, one.body)
        for row in (rows.time, rows.saga, rows.main):
            if row is not None:
                slot.rows.setdefault((str(row["PartitionKey"]), str(row["RowKey"])), row)

    def insert_raw(self, properties: Properties) -> None:
        """Put a row as another program would, whatever it holds."""
        place = (str(properties["PartitionKey"]), str(properties["RowKey"]))
        self._slot().rows[place] = dict(properties)

    def insert_state(self, name: str, body: bytes) -> None:
        """Put a body as another program would."""
        self._slot().states[name] = body

    async def due(self, until: datetime, *, everywhere: bool = False) -> AsyncIterator[Sequence[DueTimeout]]:
        """One partition after the other."""
        first, last = self._scope.of(FIRST_TIME), self._scope.of(until)
        self._slot()
        found = [
            due
            for row in self._own()
            if (due := due_of(row)) is not None
            and due.due_at <= until
            and (everywhere or first <= due.partition <= last)
        ]
        for _, partition in groupby(found, key=lambda due: due.partition):
            yield sorted(partition, key=lambda due: (due.due_at, due.id))

    async def get(self, timeout_id: str) -> LegacyTimeout | None:
        """One timeout, by its main row."""
        row = self._row(main_key(timeout_id))
        if row is None:
            return None
        found, name = decode_timeout(row), state_address(row)
        body = b"" if name is None else self._slot().states.get(name)
        if body is None:
            raise PoisonMessage(f"the body of timeout {timeout_id!r} is missing: there is no blob {name!r}")
        return replace(found, body=body)

    async def remove(self, timeout_id: str) -> bool:
        """Remove the main row, and then the rest."""
        row = self._row(main_key(timeout_id))
        if row is None:
            return False
        del self._slot().rows[timeout_id, ""]
        self._drop_rest(row)
        return True

    async def remove_of_saga(self, saga_id: str) -> int:
        """Remove those that have a saga row."""
        ids = [timeout_id_of(row) for row in self._own() if row["PartitionKey"] == saga_id and row["RowKey"]]
        return sum([await self.remove(one) for one in ids])

    async def clean_up(self, left: DueTimeout) -> bool:
        """Remove time row, saga row and body, if there is no main row."""
        row = self._row(RowKey(left.partition, left.id))
        if row is None or self._row(main_key(left.id)) is not None:
            return False
        del self._slot().rows[left.partition, left.id]
        self._drop_rest(row)
        return True

    def _drop_rest(self, row: Properties) -> None:
        slot = self._slot()
        for key in rest_keys(row, self._scope):
            slot.rows.pop((key.partition, key.row), None)
        slot.states.pop(state_address(row) or "", None)

    async def all(
        self, *, due_from: datetime | None = None
    ) -> AsyncIterator[LegacyTimeout | UnreadableTimeout]:
        """Every timeout that has a time row."""
        for row in self._own():
            if is_time_row(row):
                timeout = decode_or_tell(row)
                if due_from is None or timeout.due_at is None or timeout.due_at >= due_from:
                    yield timeout

    async def count(self, limit: int | None = None) -> int:
        """How many time rows there are."""
        found = sum(is_time_row(row) for row in self._own())
        return found if limit is None else min(found, limit)

    async def hidden(self) -> int:
        """How many time rows have a hidden owner."""
        slot = self._slots.get(self._places.table)
        rows = {} if slot is None else slot.rows
        return sum(is_hidden(row, self._places.owner) for row in rows.values())

    def _own(self) -> list[Properties]:
        """The endpoint's rows, in the order of their keys; none where there is no table."""
        slot = self._slots.get(self._places.table)
        rows = {} if slot is None else slot.rows
        return [rows[place] for place in sorted(rows) if rows[place].get(OWNER) == self._places.owner]

    def _row(self, key: RowKey) -> Properties | None:
        slot = self._slots.get(self._places.table)
        return None if slot is None else slot.rows.get((key.partition, key.row))
