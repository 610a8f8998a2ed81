"""What a contender sends, seen at its transport: every put with the instants around it and its answer.

While it runs, a request costs one tuple in a list; all reading is done afterwards.
"""

import asyncio
import base64
import json
import re
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Self

from azure.core.pipeline.transport import AsyncHttpTransport

from postdate.bench.bounds import Observed
from postdate.clock import Clock
from postdate.errors import StorageError

_HIDDEN = re.compile(r"visibilitytimeout=(\d+)")
_TEXT = re.compile(rb"<MessageText>([^<]*)</MessageText>")
_INSERTED = re.compile(rb"<InsertionTime>([^<]+)</InsertionTime>")
_VISIBLE = re.compile(rb"<TimeNextVisible>([^<]+)</TimeNextVisible>")


class _Seen(NamedTuple):
    sent: float
    received: float
    url: str
    body: bytes
    answer: bytes


class Recorder:
    """Watches transports; `wrap` is what an `Endpoint` takes as `wrap_transport`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: list[_Seen] = []
        self._wanted = 0
        self._reached = asyncio.Event()

    @property
    def count(self) -> int:
        """Puts that were answered with success."""
        return len(self._seen)

    def wrap(self, transport: AsyncHttpTransport[Any, Any]) -> AsyncHttpTransport[Any, Any]:
        """The transport, watched."""
        return _Watched(self, transport)

    async def until(self, count: int) -> None:
        """Wait until so many puts were answered."""
        self._wanted = count
        self._reached.clear()
        if self.count < count:
            await self._reached.wait()

    async def send(self, transport: Any, request: Any, config: dict[str, Any]) -> Any:
        """One attempt of one request."""
        if request.method != "POST" or "/messages" not in request.url:
            return await transport.send(request, **config)
        sent = self._clock.monotonic()
        response = await transport.send(request, **config)
        received = self._clock.monotonic()
        if response.status_code == 201:
            self._seen.append(_Seen(sent, received, request.url, _body(request), _answer(response)))
            if len(self._seen) == self._wanted:
                self._reached.set()
        return response

    def instants(self) -> list[float]:
        """When each put was answered, in monotonic seconds, in order."""
        return sorted(one.received for one in self._seen)

    def observed(self) -> Iterator[Observed]:
        """The puts, read.

        Raises:
            StorageError: an answer is not what the service documents.
        """
        for one in self._seen:
            inserted, visible = _instant(_INSERTED, one.answer), _instant(_VISIBLE, one.answer)
            hidden = _HIDDEN.search(one.url)
            hidden_s = int(hidden[1]) if hidden else 0
            if visible - inserted != hidden_s:
                raise StorageError(
                    f"a put that asked for {hidden_s} s was answered with {visible - inserted:g} s"
                )
            yield Observed(one.sent, one.received, inserted, hidden_s, number_in(_text(one.body)))


def number_in(text: str) -> int:
    """Which message of the workload a queue message's text holds; see `workload.body_of`."""
    envelope = json.loads(base64.b64decode(text).removeprefix(b"\xef\xbb\xbf"))
    return int(json.loads(base64.b64decode(envelope["Body"]))["number"])


def rate(instants: Sequence[float]) -> float:
    """Per second, from the first instant to the last."""
    return (len(instants) - 1) / (instants[-1] - instants[0])


def _body(request: Any) -> bytes:
    body = getattr(request, "data", None) or getattr(request, "content", None) or b""
    return body if isinstance(body, bytes) else str(body).encode()


def _answer(response: Any) -> bytes:
    content = response.body() if hasattr(response, "body") else response.content
    return bytes(content)


def _text(body: bytes) -> str:
    found = _TEXT.search(body)
    if found is None:
        raise StorageError("a put without a message text")
    return found[1].decode()


def _instant(pattern: re.Pattern[bytes], answer: bytes) -> float:
    found = pattern.search(answer)
    if found is None:
        raise StorageError("a put was answered without its instants")
    return parsedate_to_datetime(found[1].decode()).timestamp()


class _Watched(AsyncHttpTransport[Any, Any]):
    """A transport that tells the recorder."""

    def __init__(self, recorder: Recorder, transport: Any) -> None:
        self._recorder = recorder
        self._transport = transport

    async def send(self, request: Any, **config: Any) -> Any:
        """One attempt."""
        return await self._recorder.send(self._transport, request, config)

    async def open(self) -> None:
        """Open the real one."""
        await self._transport.open()

    async def close(self) -> None:
        """Close the real one."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        """Open the real one."""
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *why: object) -> None:
        """Close the real one."""
        await self._transport.__aexit__(*why)
