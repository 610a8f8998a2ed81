"""Entities of the service and of the SDK to plain properties and back, and rows into transactions.

The service's rules for an entity-group transaction are checked here, before sending: Azurite accepts
transactions over two partitions that Azure refuses (fact 17).
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec
from azure.data.tables import EntityProperty, TableEntity

from postdate.model.delayed import DelayedMessage, Row, RowValue, UnreadableRow
from postdate.model.keys import RowKey
from postdate.model.limits import BATCH_BYTES, BATCH_OPERATIONS, EARLIEST_DUE
from postdate.model.rowcodec import decode_row, encode_row

#: Bytes of one transaction on the wire. The service takes BATCH_BYTES; a body over 1 MiB holds up the event
#: loop while it is written, and aiohttp warns of it.
TRANSACTION_BYTES = min(1_000_000, BATCH_BYTES)
#: Bytes of one operation on the wire besides its properties: MIME headers, URL, etag, braces.
_OPERATION_BYTES = 700
_TYPE = "@odata.type"

Entity = dict[str, RowValue]
Keyed = TypeVar("Keyed")


def _instant(text: str) -> datetime:
    """The instant of an Edm.DateTime: UTC, its ticks of 100 ns cut to microseconds, as the SDK does."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is UTC else found.replace(tzinfo=UTC)


#: What JSON holds as text, by its type. All other types are what JSON makes of them.
_READ: dict[str, Callable[[str], RowValue]] = {
    "Edm.Binary": base64.b64decode,
    "Edm.DateTime": _instant,
    "Edm.Double": float,  # NaN and infinity are text
    "Edm.Guid": lambda text: str(UUID(text)),
    "Edm.Int64": int,
}
_WRITTEN: dict[type, str | None] = {
    str: None,
    int: None,
    bool: None,
    bytes: "Edm.Binary",
    datetime: "Edm.DateTime",
    UUID: "Edm.Guid",
}
_INT32 = range(-(2**31), 2**31)


def plain_value(value: object) -> RowValue:
    """A property's value without the SDK's wrappers: 64-bit integers, dates of a subclass, GUIDs."""
    if isinstance(value, EntityProperty):
        return plain_value(value.value)
    if isinstance(value, datetime):
        return datetime(
            value.year,
            value.month,
            value.day,
            value.hour,
            value.minute,
            value.second,
            value.microsecond,
            tzinfo=value.tzinfo,
        )
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    return str(value)


def entity_of(delayed: DelayedMessage, key: RowKey) -> Entity:
    """The entity of a delayed message; text of exact type, since the SDK refuses subclasses of str."""
    return {
        name: str(value) if isinstance(value, str) else value
        for name, value in encode_row(delayed, key).items()
    }


def row_of(entity: TableEntity) -> Row:
    """The row that an entity holds; never raises."""
    etag = str(entity.metadata.get("etag") or "")
    return decode_row({name: plain_value(value) for name, value in entity.items()}, etag)


def json_of(entity: Mapping[str, RowValue | UUID]) -> bytes:
    """An entity as it is inserted: ASCII, with types where JSON alone doesn't tell.

    Raises:
        TypeError: a value of a kind that no row of ours holds.
    """
    typed: dict[str, RowValue | UUID] = {}
    for name, value in entity.items():
        kind = type(value)
        if kind not in _WRITTEN or (kind is int and value not in _INT32):
            raise TypeError(f"column {name} holds {kind.__name__}, which is not written")
        if edm_type := _WRITTEN[kind]:
            typed[name + _TYPE] = edm_type
        typed[name] = value
    with suppress(UnicodeEncodeError):  # half of a surrogate pair, which .NET may have written
        text = msgspec.json.encode(typed)
        if text.isascii():
            return text
    # As the SDK writes it: no reader has to know that the rest would be UTF-8.
    return json.dumps(msgspec.to_builtins(typed)).encode()


def properties_of(entry: Mapping[str, Any]) -> tuple[Entity, str]:
    """The properties and the etag of an entity in a page's JSON. A value not of its type stays text."""
    plain, typed = _members(tuple(entry))
    found: Entity = {name: entry[name] for name in plain}
    for name, type_name in typed:
        read, value = _READ.get(entry[type_name]), found.get(name)
        if read is not None and isinstance(value, str):
            try:
                found[name] = read(value)
            except ValueError:
                continue
    return found, entry.get("odata.etag") or _etag_of(entry)


@lru_cache(maxsize=256)
def _members(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Which members of an entity in JSON are properties, and which tell a property's type."""
    typed = [name for name in names if name.endswith(_TYPE)]
    plain = (
        name
        for name in names
        if not name.endswith(_TYPE) and name != "Timestamp" and not name.startswith("odata.")
    )
    return tuple(plain), tuple((name[: -len(_TYPE)], name) for name in typed)


def _etag_of(entry: Mapping[str, Any]) -> str:
    """An etag is made of the time of the last change; for an answer without one, as the SDK does."""
    return f"W/\"datetime'{quote(entry['Timestamp'])}'\"" if "Timestamp" in entry else ""


def instant_of_text(text: object) -> datetime | None:
    """The instant that the service writes as text; None: it wrote none."""
    try:
        return _instant(text) if isinstance(text, str) else None
    except ValueError:
        return None


def due_of(row: Row) -> datetime | None:
    """When a row is due; None: at once, since nothing in it tells."""
    return row.due_at if isinstance(row, UnreadableRow) else row.delayed.due_at


def due_order(row: Row) -> tuple[datetime, str]:
    """Sorts rows by due time; a row that tells none comes first."""
    return due_of(row) or EARLIEST_DUE, row.key.row


def key_of(entity: Mapping[str, Any]) -> RowKey:
    """The keys of an entity."""
    return RowKey(str(entity["PartitionKey"]), str(entity["RowKey"]))


def quoted(text: str) -> str:
    """A string in a filter: quotes are doubled."""
    return "'" + text.replace("'", "''") + "'"


def wire_bytes(entity: bytes = b"") -> int:
    """At least the bytes that an operation takes on the wire, with this JSON."""
    return _OPERATION_BYTES + len(entity)


def chunks(items: Iterable[tuple[Keyed, str, int]]) -> Iterator[list[Keyed]]:
    """Group items into transactions: one partition, 100 operations and 1 MB at most, order kept.

    Args:
        items: what to group, its partition, and its bytes on the wire.
    """
    open_chunks: dict[str, tuple[list[Keyed], int]] = {}
    for item, partition, size in items:
        chunk, total = open_chunks.get(partition, ([], 0))
        if chunk and (len(chunk) >= BATCH_OPERATIONS or total + size > TRANSACTION_BYTES):
            yield chunk
            chunk, total = [], 0
        chunk.append(item)
        open_chunks[partition] = (chunk, total + size)
    for chunk, _ in open_chunks.values():
        yield chunk


def check_transaction(keys: Sequence[RowKey], size: int) -> None:
    """The last look at a transaction before it is sent.

    Raises:
        AssertionError: a mistake of ours that Azure would refuse, and Azurite would not (fact 17).
    """
    if not 1 <= len(keys) <= BATCH_OPERATIONS:
        raise AssertionError(f"a transaction of {len(keys)} operations; 1 to {BATCH_OPERATIONS} go")
    if len({key.partition for key in keys}) != 1:
        raise AssertionError("a transaction over several partitions")
    if len({key.row for key in keys}) != len(keys):
        raise AssertionError("a transaction with the same row twice")
    if size > TRANSACTION_BYTES and len(keys) > 1:
        raise AssertionError(f"a transaction of {size:,} bytes; {TRANSACTION_BYTES:,} go")
