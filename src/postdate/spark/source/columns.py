"""A stored row as the columns of `schema.DELAYS`, each from nothing but the properties that it needs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postdate.errors import PoisonMessage
from postdate.model.delayed import UnreadableRow
from postdate.model.headers import Headers
from postdate.model.keys import due_time
from postdate.model.rowcodec import (
    BODY_BLOB,
    DUE_TIME,
    FAILURE_COUNT,
    NEXT_ATTEMPT_TIME,
    SCHEDULED_TIME,
    decode_row,
    headers_in,
    instant_of,
    optional_text_in,
)

if TYPE_CHECKING:
    from postdate.backends.azure_storage.scan import Scanned

#: What each column is read from, beside the keys and the due time.
STORED = {
    "message_id": ("MessageId",),
    "destination": ("Destination",),
    "headers": ("Headers",),
    "body": ("Body",),
    "body_blob": (BODY_BLOB,),
    "scheduled_time": (SCHEDULED_TIME,),
    "failure_count": (FAILURE_COUNT,),
    "next_attempt_time": (NEXT_ATTEMPT_TIME,),
    "written_time": ("Timestamp",),
    "unreadable": ("MessageId", "Destination", "Headers", "Body", BODY_BLOB),
}


def due_of(row: "Scanned") -> datetime | None:
    """When it is due; None: the row does not tell."""
    return instant_of(row.properties.get(DUE_TIME)) or due_time(row.key)


def _headers(row: "Scanned") -> Headers | None:
    try:
        return headers_in(row.properties.get("Headers"))
    except PoisonMessage:
        return None


def _body(row: "Scanned") -> bytes | None:
    value = row.properties.get("Body")
    if value is None:
        return None if row.properties.get(BODY_BLOB) else b""
    return value if isinstance(value, bytes) else None


def _failures(row: "Scanned") -> int:
    count = row.properties.get(FAILURE_COUNT)
    return max(0, count) if isinstance(count, int) else 0


def _unreadable(row: "Scanned") -> str | None:
    read = decode_row(row.properties, row.etag)
    return read.reason if isinstance(read, UnreadableRow) else None


#: By column: its value in a row.
COLUMNS: dict[str, Callable[["Scanned"], Any]] = {
    "message_id": lambda row: optional_text_in(row.properties, "MessageId"),
    "destination": lambda row: optional_text_in(row.properties, "Destination"),
    "due_time": due_of,
    "headers": _headers,
    "body": _body,
    "body_blob": lambda row: optional_text_in(row.properties, BODY_BLOB),
    "scheduled_time": lambda row: instant_of(row.properties.get(SCHEDULED_TIME)),
    "failure_count": _failures,
    "next_attempt_time": lambda row: instant_of(row.properties.get(NEXT_ATTEMPT_TIME)),
    "partition_key": lambda row: row.key.partition,
    "row_key": lambda row: row.key.row,
    "etag": lambda row: row.etag,
    "written_time": lambda row: row.written_at,
    "unreadable": _unreadable,
}


def columns_of(
    rows: "Sequence[Scanned]", schema: pa.Schema, known: Mapping[str, list[Any]]
) -> list[pa.Array]:
    """Rows as columns in Arrow, those that are known left as they are. A row is decoded once at most."""
    values = dict(known)
    if {"headers", "unreadable"} <= set(schema.names):
        read = [decode_row(row.properties, row.etag) for row in rows]
        values["unreadable"] = [one.reason if isinstance(one, UnreadableRow) else None for one in read]
        values["headers"] = [
            _headers(row) if isinstance(one, UnreadableRow) else one.delayed.message.headers
            for row, one in zip(rows, read, strict=True)
        ]
    return [
        column_array(values.get(name) or [COLUMNS[name](row) for row in rows], kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]


def column_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column in Arrow. Half of a surrogate pair, which a row can hold and Arrow can't, becomes `?`."""
    try:
        return _array(values, kind)
    except UnicodeEncodeError:
        return _array([_whole(value) for value in values], kind)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not isinstance(kind, pa.MapType):
        return pa.array(values, type=kind)
    # From its parts: what Arrow does with pairs takes eight times as long.
    names: list[str] = []
    texts: list[str | None] = []
    starts: list[int | None] = []
    for value in values:
        starts.append(None if value is None else len(names))
        names += value or ()
        texts += (value or {}).values()
    starts.append(len(names))
    parts = pa.array(starts, pa.int32()), pa.array(names, kind.key_type), pa.array(texts, kind.item_type)
    return pa.MapArray.from_arrays(*parts, type=kind)


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):  # of headers
        return {_whole(name): _whole(text) for name, text in value.items()}
    return value
