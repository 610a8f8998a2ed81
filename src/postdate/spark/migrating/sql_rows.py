"""A row of a timeout table as a timeout: whatever the driver makes of its columns. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from postdate.errors import PoisonMessage
from postdate.model.legacy_rows import saga_key
from postdate.model.legacy_timeout import LegacyTimeout, UnreadableTimeout
from postdate.model.rowcodec import headers_in

_NO_SAGA = UUID(int=0)


def timeout_of(row: Sequence[object], owner: str) -> LegacyTimeout | UnreadableTimeout:
    """A timeout out of Id, Destination, SagaId, State, Time, Headers; never raises."""
    timeout_id, due_at = str(row[0]), _instant(row[4])
    try:
        if due_at is None:
            raise PoisonMessage("column Time holds no time")
        return LegacyTimeout(
            id=timeout_id,
            destination=_text(row[1], "Destination"),
            due_at=due_at,
            headers=headers_in(_plain(row[5])),
            body=_bytes(row[3]),
            owner=owner,
            saga_id=_saga(row[2]),
        )
    except PoisonMessage as error:
        return UnreadableTimeout(timeout_id, str(error), due_at)


def key_of(row: Sequence[object]) -> tuple[str, str]:
    """Where a row of Time and Id stands in the database's order, for a `SqlRange`."""
    return _time_text(row[0]), str(row[1])


def page_key_of(row: Sequence[object]) -> tuple[str, str]:
    """The same of a row that `timeout_of` reads."""
    return _time_text(row[4]), str(row[0])


def _time_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _instant(value: object) -> datetime | None:
    """Times without a zone are UTC, whatever the zone of this host."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _plain(value: object) -> object:
    """Large columns come as objects to read from, with some drivers."""
    reading = getattr(value, "read", None)
    return reading() if callable(reading) else value


def _text(value: object, column: str) -> str:
    if not isinstance(value, str) or not value:
        raise PoisonMessage(f"column {column} holds no text")
    return value


def _bytes(value: object) -> bytes:
    value = _plain(value)
    if value is None:
        return b""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise PoisonMessage(f"column State holds {type(value).__name__}, not bytes")
    return bytes(value)


def _saga(value: object) -> str | None:
    if value is None or str(value) == str(_NO_SAGA):
        return None
    return saga_key(str(value))
