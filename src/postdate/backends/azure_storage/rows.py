"""Entities of the SDK to plain properties and back, and rows into transactions that the service takes.

The service's rules for an entity-group transaction are checked here, before sending: Azurite accepts
transactions over two partitions that Azure refuses (fact 17).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

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
#: Bytes of one property besides name and value: quotes, and its type as a property of its own.
_PROPERTY_BYTES = 40

Entity = dict[str, RowValue]
Keyed = TypeVar("Keyed")


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


def entity_of(delayed: DelayedMessage) -> Entity:
    """The entity of a delayed message; text of exact type, since the SDK refuses subclasses of str."""
    return {
        name: str(value) if isinstance(value, str) else value for name, value in encode_row(delayed).items()
    }


def row_of(entity: TableEntity) -> Row:
    """The row that an entity holds; never raises."""
    etag = str(entity.metadata.get("etag") or "")
    return decode_row({name: plain_value(value) for name, value in entity.items()}, etag)


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


def wire_bytes(entity: Mapping[str, RowValue]) -> int:
    """At least the bytes that an operation with this entity takes on the wire."""
    size = _OPERATION_BYTES
    for name, value in entity.items():
        size += _PROPERTY_BYTES + 2 * len(name)  # the name stands twice: once for the type
        if isinstance(value, str):
            size += len(json.dumps(value))  # as the SDK writes it: non-ASCII in six bytes
        elif isinstance(value, bytes):
            size += 4 * ((len(value) + 2) // 3)
        else:
            size += 40
    return size


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
