"""Messages as lines of JSON, from a file or a pipe, read without holding up what is being stored."""

import asyncio
import io
import os
from collections.abc import AsyncIterator
from typing import BinaryIO

import msgspec

from postdate.clock import either
from postdate.engine.acceptance import Outgoing
from postdate.errors import InvalidBody, UsageError
from postdate.model import headers as h
from postdate.model.durations import parse_instant_text
from postdate.model.message import JSON_TYPE

_BLOCK_BYTES = 65_536
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    destination: str
    #: As it is written: text where it is a JSON string, else JSON.
    body: msgspec.Raw
    #: As `receive --json` and `show --json` print it.
    body_encoding: str = "text"
    delay: float | str | None = None
    at: str | None = None
    headers: dict[str, str | None] | None = None
    message_id: str | None = None
    expires_after: float | str | None = None


_LINE = msgspec.json.Decoder(_Line)
_BASE64 = msgspec.json.Decoder(bytes)
_TEXT = msgspec.json.Decoder(str)


def parse_line(line: bytes) -> Outgoing:
    """The message that a line holds.

    Raises:
        UsageError: it is not JSON, or not a message.
    """
    try:
        parsed = _LINE.decode(line)
        body, headers = _body(parsed)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"not a message: {error}") from None
    return Outgoing(
        parsed.destination,
        body,
        delay=parsed.delay,
        at=None if parsed.at is None else parse_instant_text(parsed.at),
        headers=headers,
        message_id=parsed.message_id,
        expires_after=parsed.expires_after,
    )


def _body(line: _Line) -> tuple[str | bytes, dict[str, str | None] | None]:
    raw = bytes(line.body)
    if line.body_encoding == "base64":
        return _BASE64.decode(raw), line.headers
    if line.body_encoding != "text":
        raise InvalidBody(f"body_encoding {line.body_encoding!r} is not known; it is text or base64")
    if raw.startswith(b'"'):
        return _TEXT.decode(raw), line.headers
    msgspec.json.decode(raw)
    return raw, {h.CONTENT_TYPE: JSON_TYPE, **(line.headers or {})}


class LineReader:
    """The lines of a file or a pipe."""

    def __init__(self, source: BinaryIO, stop: asyncio.Event) -> None:
        self._source = source
        self._stop = stop
        #: Read so far.
        self.bytes_read = 0
        #: Nothing is left.
        self.ended = False

    async def numbered(self) -> AsyncIterator[tuple[int, bytes]]:
        """Each line that isn't blank with its number, from 1, until the end, or until `stop` is set."""
        number, rest = 0, b""
        while not self._stop.is_set():
            block = await self._block()
            if self._stop.is_set():
                return
            self.bytes_read += len(block)
            *lines, rest = (rest + block).split(b"\n")
            if not block and rest:
                lines, rest = [rest], b""
            for line in lines:
                if self._stop.is_set():
                    return
                number += 1
                text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if text.strip():
                    yield number, text
            if not block:
                self.ended = True
                return

    async def _block(self) -> bytes:
        """The next bytes; b"" at the end, or when asked to stop while none come."""
        try:
            descriptor = self._source.fileno()
        except io.UnsupportedOperation:
            return self._source.read(_BLOCK_BYTES)
        if not await _readable(descriptor, self._stop):
            return b""
        return os.read(descriptor, _BLOCK_BYTES)


async def _readable(descriptor: int, stop: asyncio.Event) -> bool:
    """Wait until there is something to read, or the end; False: `stop` came first."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except (PermissionError, NotImplementedError):
        return True  # a plain file never makes us wait
    try:
        await either(ready.wait(), stop.wait())
    finally:
        loop.remove_reader(descriptor)
    return ready.is_set()
