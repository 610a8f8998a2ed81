"""Very many rows, quickly: entity group transactions written by hand (the SDK takes ten times as long)."""

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlsplit

from chaos_cases import Stage

from postdate.model.delayed import DelayedMessage
from postdate.model.message import Message
from postdate.model.rowcodec import encode_row

_PER_HOUR = 100
_PART = (
    "--changeset_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    "POST {url} HTTP/1.1\r\nContent-Type: application/json\r\nPrefer: return-no-content\r\n"
    "Accept: application/json;odata=nometadata\r\nDataServiceVersion: 3.0\r\n\r\n{row}\r\n"
)


async def insert_waiting(stage: Stage, count: int) -> None:
    """Rows that are due from next week on, a hundred an hour."""
    assert stage.settings.connection is not None
    account = dict(
        pair.split("=", 1) for pair in stage.settings.connection.get_secret_value().split(";") if pair
    )
    first = stage.now().replace(minute=0, second=0, microsecond=0) + timedelta(days=7)
    table = stage.settings.table_name
    await asyncio.to_thread(_insert, account, table, first, count, stage.settings.own_queue)
    seen = [row.due_at async for row in stage.client.upcoming(limit=2)]
    assert seen == [first, first + timedelta(seconds=1)]


def _insert(account: dict[str, str], table: str, first: datetime, count: int, queue: str) -> None:
    base = urlsplit(account["TableEndpoint"])
    with closing(http.client.HTTPConnection(base.netloc)) as connection:
        for hour in range(count // _PER_HOUR):
            rows = _hour(first + timedelta(hours=hour), hour, queue)
            parts = "".join(_PART.format(url=f"{base.geturl()}/{table}", row=json.dumps(row)) for row in rows)
            body = (
                "--batch_1\r\nContent-Type: multipart/mixed; boundary=changeset_1\r\n\r\n"
                f"{parts}--changeset_1--\r\n--batch_1--\r\n"
            )
            connection.request("POST", f"{base.path}/$batch", body, _headers(account, base.path))
            answer = connection.getresponse()
            told = answer.read()
            assert answer.status == 202, told
            assert told.count(b"HTTP/1.1 204") == _PER_HOUR, told


def _headers(account: dict[str, str], path: str) -> dict[str, str]:
    kind = "multipart/mixed; boundary=batch_1"
    date = format_datetime(datetime.now(UTC), usegmt=True)  # noqa: TID251 - what the signature wants
    name = account["AccountName"]
    text = f"POST\n\n{kind}\n{date}\n/{name}{path}/$batch"
    key = base64.b64decode(account["AccountKey"])
    signature = base64.b64encode(hmac.digest(key, text.encode(), hashlib.sha256)).decode()
    return {
        "Authorization": f"SharedKey {name}:{signature}",
        "Content-Type": kind,
        "x-ms-date": date,
        "x-ms-version": "2019-02-02",
    }


def _hour(start: datetime, hour: int, queue: str) -> Iterator[dict[str, Any]]:
    for number in range(_PER_HOUR):
        message_id = f"waiting-{hour:05d}-{number:03d}"
        message = Message(message_id, {"NServiceBus.MessageId": message_id}, b"x" * 200)
        row = encode_row(DelayedMessage(message, queue, start + timedelta(seconds=number), start))
        yield dict(pair for name, value in row.items() for pair in _typed(name, value))


def _typed(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bytes):
        yield f"{name}@odata.type", "Edm.Binary"
        yield name, base64.b64encode(value).decode()
    elif isinstance(value, datetime):
        yield f"{name}@odata.type", "Edm.DateTime"
        yield name, value.isoformat().replace("+00:00", "Z")
    else:
        yield name, value
