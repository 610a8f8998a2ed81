"""Entity-group transactions as they travel: a multipart request of ours, the service's multipart answer.

Parts carry the headers that the SDK's parts carry, less the dates, since only the outer request is signed,
and with `Prefer` on inserts, so that the service doesn't send back what it got. Boundaries begin with
`batch_` and `changeset_`: Azurite answers 500 to others.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from postdate.model.keys import RowKey

API_VERSION = "2019-02-02"
_PART = (
    "Content-Type: application/http\r\n"
    "Content-Transfer-Encoding: binary\r\n"
    "Content-ID: {number}\r\n"
    "\r\n"
    "{method} {url} HTTP/1.1\r\n"
    f"x-ms-version: {API_VERSION}\r\n"
    "DataServiceVersion: 3.0\r\n"
    "Accept: application/json;odata=minimalmetadata\r\n"
)
_INSERT = (
    _PART + "Prefer: return-no-content\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
)
_DELETE = _PART + "If-Match: {etag}\r\n\r\n\r\n"

#: A part's status line and its headers. Nothing else begins a line so: what JSON holds has no line ends.
_ANSWER = re.compile(rb"\nHTTP/1\.\d (\d{3})[^\n]*\n((?:[^\r\n]+\r?\n)*)")
_ETAG = re.compile(rb"^etag:[ \t]*([^\r\n]+)", re.IGNORECASE | re.MULTILINE)
_CODE = re.compile(rb"^x-ms-error-code:[ \t]*([^\r\n]+)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FailedPart:
    """Why a transaction was refused: one part stands for all."""

    status: int
    code: str | None
    #: Begins with the operation's number and a colon, where one operation is to blame.
    message: str


def inserts(table_url: str, entities: Iterable[bytes]) -> tuple[str, bytes]:
    """Content type and body of a transaction that inserts entities, given as JSON."""
    return _wrap(
        _INSERT.format(number=number, method="POST", url=table_url, size=len(entity)).encode()
        + entity
        + b"\r\n"
        for number, entity in enumerate(entities)
    )


def deletes(table_url: str, rows: Mapping[RowKey, str]) -> tuple[str, bytes]:
    """Content type and body of a transaction that deletes rows with these etags."""
    return _wrap(
        _DELETE.format(number=number, method="DELETE", url=f"{table_url}({address(key)})", etag=etag).encode()
        for number, (key, etag) in enumerate(rows.items())
    )


def etags_or_failure(answer: bytes) -> list[str | None] | FailedPart:
    """What became of a transaction: an etag, or None, for each part that the answer has, or why not."""
    etags: list[str | None] = []
    for part in _ANSWER.finditer(answer):
        status, headers = int(part[1]), part[2]
        if not 200 <= status < 300:
            code = _CODE.search(headers)
            return _failure(status, _text(code), answer[part.end() :])
        etags.append(_text(_ETAG.search(headers)))
    return etags


def code_and_message(body: str) -> tuple[str | None, str]:
    """The table service's error code and message in JSON that begins a text; None and "" without."""
    try:
        error = json.JSONDecoder().raw_decode(body.lstrip())[0]["odata.error"]
        return str(error["code"]) or None, str(error["message"]["value"])
    except (ValueError, KeyError, TypeError):
        return None, ""


def _wrap(parts: Iterable[bytes]) -> tuple[str, bytes]:
    batch, changeset = f"batch_{uuid4()}", f"changeset_{uuid4()}"
    between = f"--{changeset}\r\n".encode()
    pieces = [f"--{batch}\r\nContent-Type: multipart/mixed; boundary={changeset}\r\n\r\n".encode()]
    for part in parts:
        pieces += (between, part)
    pieces.append(f"--{changeset}--\r\n\r\n--{batch}--\r\n".encode())
    return f"multipart/mixed; boundary={batch}", b"".join(pieces)


def address(key: RowKey) -> str:
    """A row's keys in a URL: quotes doubled, then everything but letters, digits and `_.-~` in percent."""
    partition, row = (quote(part.replace("'", "''"), safe="") for part in (key.partition, key.row))
    return f"PartitionKey='{partition}',RowKey='{row}'"


def _failure(status: int, code: str | None, body: bytes) -> FailedPart:
    in_body, message = code_and_message(body.decode("utf-8", "replace"))
    return FailedPart(status, in_body or code, message)


def _text(match: Any) -> str | None:
    return match[1].decode("utf-8", "replace").strip() if match else None
