"""A stand-in for the service where the emulator is the limit: answers at memory speed, after a latency.

It counts rows and keeps nothing, so it is no store: what it is for is to see how clients scale when the
service does not hold them up. It speaks what scheduling in bulk asks: transactions of inserts, the look
whether a queue is there, documents of runs.
"""

import asyncio
import multiprocessing
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from multiprocessing.connection import Connection

from postdate.clock import SystemClock

ACCOUNT = "standin"
_KEY = "c3RhbmQtaW4="  # any base64 text: nobody checks it
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d+)", re.IGNORECASE | re.MULTILINE)
_INSERT = re.compile(rb"^POST http", re.MULTILINE)
_CREATED = (
    "--changesetresponse_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    "HTTP/1.1 204 No Content\r\nETag: W/\"datetime'2026-01-01T00%3A00%3A00.0000000Z'\"\r\n\r\n\r\n"
)
_NO_BLOBS = (
    '<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs/><NextMarker/></EnumerationResults>'
)


class _Service(asyncio.Protocol):
    """One connection."""

    def __init__(self, latency: float, counted: Callable[[int], None]) -> None:
        self._latency = latency
        self._counted = counted
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._clock = SystemClock()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = _LENGTH.search(head)
            size = int(length[1]) if length else 0
            if len(self._buffer) < end + 4 + size:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + size], self._buffer[end + 4 + size :]
            answer = self._answer(head, body)
            asyncio.get_running_loop().call_later(self._latency, self._write, answer)

    def _write(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer)

    def _answer(self, head: bytes, body: bytes) -> bytes:
        method = head.split(b" ", 1)[0]
        if b"/$batch " in head[:200]:
            rows = len(_INSERT.findall(body))
            self._counted(rows)
            text = _CREATED * rows + "--changesetresponse_1--\r\n"
            return self._reply("202 Accepted", text, "multipart/mixed; boundary=batchresponse_1")
        if method == b"GET" and b"()?" in head[:2000]:
            return self._reply("200 OK", '{"value":[]}')
        if method == b"PUT":
            return self._reply("201 Created", "")
        if b"comp=metadata" in head:
            return self._reply("200 OK", "", extra="x-ms-approximate-messages-count: 0\r\n")
        if b"comp=list" in head:
            return self._reply("200 OK", _NO_BLOBS, "application/xml")
        missing = "404 The specified blob does not exist."
        return self._reply(missing, "", extra="x-ms-error-code: BlobNotFound\r\n")

    def _reply(self, status: str, text: str, kind: str = "application/json", extra: str = "") -> bytes:
        date = formatdate(self._clock.now().timestamp(), usegmt=True)
        return (
            f'HTTP/1.1 {status}\r\nDate: {date}\r\nETag: "1"\r\nContent-Type: {kind}\r\n{extra}'
            f"Last-Modified: {date}\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        ).encode()


@contextmanager
def stand_in(latency: float) -> Iterator[tuple[str, Callable[[], int]]]:
    """Run one in a process of its own, on loopback.

    Args:
        latency: seconds from request to answer.

    Yields its connection string, and a function that tells how many rows it was given so far.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(latency, theirs), daemon=True)
    process.start()
    try:
        url = f"http://127.0.0.1:{ours.recv()}/{ACCOUNT}"
        services = ";".join(f"{name}Endpoint={url}" for name in ("Blob", "Queue", "Table"))

        def count() -> int:
            ours.send(None)
            return int(ours.recv())

        yield f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={_KEY};{services};", count
    finally:
        process.terminate()
        process.join()


def _serve(latency: float, pipe: Connection) -> None:
    asyncio.run(_run(latency, pipe))


async def _run(latency: float, pipe: Connection) -> None:
    loop, rows = asyncio.get_running_loop(), 0

    def counted(more: int) -> None:
        nonlocal rows
        rows += more

    def asked() -> None:
        pipe.recv()
        pipe.send(rows)

    server = await loop.create_server(lambda: _Service(latency, counted), "127.0.0.1", 0)
    loop.add_reader(pipe.fileno(), asked)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()
