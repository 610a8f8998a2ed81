"""msgspec and orjson on the JSON that Postdate reads and writes. Installs nothing; prints what it measured.

    python bench/json_codec.py

orjson is measured only where it is installed. Each figure is the fastest of several rounds, in microseconds
for one call: on a busy machine the fastest says most about the code, and least about the neighbours.
"""

import json
import platform
import sys
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import msgspec

#: The peer; None where it is not installed.
orjson: Any = import_module("orjson") if find_spec("orjson") else None

ROUNDS = 7
SECONDS = 0.2


@dataclass
class Order:
    number: int
    customer: str
    total: float


HEADERS: dict[str, str | None] = {
    "NServiceBus.MessageId": "0d6f2c6e-4b8a-4d3f-9a5b-7c1e2f304152",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.ConversationId": "5f0c6c3e-9d0e-4a2c-8f5e-1f2e3d4c5b6a",
    "NServiceBus.CorrelationId": "0d6f2c6e-4b8a-4d3f-9a5b-7c1e2f304152",
    "NServiceBus.OriginatingMachine": "worker-1",
    "NServiceBus.OriginatingEndpoint": "Contoso.Orders",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.TimeSent": "2026-03-01 07:08:09:987654 Z",
    "NServiceBus.DeliverAt": "2026-03-15 07:08:09:987654 Z",
    "NServiceBus.ReplyToAddress": None,
}
ROW = {
    "odata.etag": "W/\"datetime'2026-03-01T07%3A08%3A09.9876543Z'\"",
    "PartitionKey": "2026031507",
    "RowKey": "20260315070809_987654_0d6f2c6e4b8a4d3f9a5b7c1e2f304152",
    "Destination": "invoices",
    "MessageId": "0d6f2c6e-4b8a-4d3f-9a5b-7c1e2f304152",
    "DueTime@odata.type": "Edm.DateTime",
    "DueTime": "2026-03-15T07:08:09.987654Z",
}
HEADERS_TEXT = json.dumps(HEADERS).encode()
PAGE_TEXT = json.dumps({"value": [ROW] * 1000}).encode()
ORDER = Order(7, "Contoso", 12.5)


def fastest(work: Callable[[], Any]) -> float:
    """Microseconds of one call."""
    timer = timeit.Timer(work)
    calls = max(1, int(SECONDS / max(timer.timeit(1), 1e-7)))
    return min(timer.repeat(ROUNDS, calls)) / calls * 1e6


def main() -> None:
    """Measure and print a table."""
    libraries: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
        "msgspec": (msgspec.json.decode, msgspec.json.encode)
    }
    if orjson is not None:
        libraries["orjson"] = (orjson.loads, orjson.dumps)
    rows: list[tuple[str, Callable[[str], Callable[[], Any]]]] = [
        ("decode headers", lambda name: lambda: libraries[name][0](HEADERS_TEXT)),
        ("decode a page of 1,000 rows", lambda name: lambda: libraries[name][0](PAGE_TEXT)),
        ("encode headers", lambda name: lambda: libraries[name][1](HEADERS)),
        ("encode a dataclass", lambda name: lambda: libraries[name][1](ORDER)),
    ]
    print(f"Python {platform.python_version()} on {platform.machine()}, {sys.platform}; µs per call")
    print(f"{'':28}" + "".join(f"{name + ' ' + installed(name):>20}" for name in libraries))
    for title, work in rows:
        print(f"{title:28}" + "".join(f"{fastest(work(name)):20.2f}" for name in libraries))
    if orjson is None:
        print("orjson is not installed: pip install orjson, to compare")


def installed(name: str) -> str:
    """A package's version."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
