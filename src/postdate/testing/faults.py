"""Faults between the Azure backend and the network, for tests: scripted, counted, without sleeping.

    async with Faults() as faults:
        backend = await open_backend(settings, clock, wrap_transport=faults.wrap)
        faults.on("queue.send").lose_answer()                  # applied, and nobody hears of it
        faults.on("table.batch_delete", nth=2).respond(503, "ServerBusy")
        faults.on("lease.renew").before(lambda call: break_it())
        faults.on("table.query", times=2000).empty_page()

Calls go by what they do (`fault_operations.operation_of`), with `*` for any part of the name. Of several
rules that match a call the first one acts. Broken connections and answers are real ones: a matched call is
sent to a little server of ours instead of the service, through the very session that is under test. That
server sends no `Date`, so that it teaches the storage clock nothing.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from azure.core.exceptions import ServiceResponseTimeoutError
from azure.core.pipeline.transport import AsyncHttpTransport

from postdate.testing.fault_operations import operation_of

#: Stands for "from the start" in the continuation of an empty first page.
_START = "faults-start"
_TOKENS = ("NextPartitionKey", "NextRowKey")


@dataclass(frozen=True)
class Call:
    """One attempt of one request, as it is about to leave."""

    operation: str
    method: str
    url: str
    body: bytes = field(repr=False)


Callback = Callable[[Call], object]
_Action = Callable[[Any, Call], Awaitable[Any]]


class Rule:
    """What happens to the calls that match. Say so with one of its methods; each returns the rule."""

    def __init__(
        self, faults: "Faults", operation: str, when: Callable[[Call], bool], nth: int, times: int
    ) -> None:
        self._faults = faults
        self._operation = operation
        self._when = when
        self._first = nth
        self._last = nth + times - 1
        self._matched = 0
        self._action: _Action | None = None
        self._before: list[Callback] = []
        self._after: list[Callback] = []
        #: How often it acted.
        self.hits = 0
        #: Set when it acted for the first time.
        self.reached = asyncio.Event()
        self._released = asyncio.Event()

    def respond(
        self, status: int, code: str = "", *, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> Self:
        """Answer in the service's place, which hears nothing."""

        async def act(send: Any, call: Call) -> Any:
            return await send(self._faults.answering(_answer(call, status, code, headers or {}, body)))

        return self._does(act)

    def refuse_connection(self) -> Self:
        """Nobody listens: the request surely did not leave."""

        async def act(send: Any, call: Call) -> Any:  # noqa: ARG001 - an action's shape
            return await send(self._faults.refusing())

        return self._does(act)

    def break_connection(self) -> Self:
        """The connection breaks after the request was written; the service never hears of it."""

        async def act(send: Any, call: Call) -> Any:  # noqa: ARG001 - an action's shape
            return await send(self._faults.answering(b""))

        return self._does(act)

    def lose_answer(self) -> Self:
        """The service does it; then the connection breaks."""

        async def act(send: Any, call: Call) -> Any:  # noqa: ARG001 - an action's shape
            await send(None)
            return await send(self._faults.answering(b""))

        return self._does(act)

    def time_out(self) -> Self:
        """The service does it; the answer never comes, and the client stops waiting."""

        async def act(send: Any, call: Call) -> Any:
            await send(None)
            raise ServiceResponseTimeoutError(f"{call.operation}: timeout by script")

        return self._does(act)

    def empty_page(self) -> Self:
        """Answer a query with no rows and a continuation, as Azure does at its own limits."""

        async def act(send: Any, call: Call) -> Any:
            tokens = dict(parse_qsl(urlsplit(call.url).query))
            headers = {f"x-ms-continuation-{name}": tokens.get(name, _START) for name in _TOKENS}
            body = b'{"value":[]}'
            return await send(self._faults.answering(_answer(call, 200, "", headers, body)))

        return self._does(act)

    def hold(self) -> Self:
        """Keep the call from leaving until `release`; `reached` tells that it is here."""

        async def wait(call: Call) -> None:  # noqa: ARG001 - an action's shape
            await self._released.wait()

        return self.before(wait)

    def release(self) -> None:
        """Let what is held go."""
        self._released.set()

    def before(self, callback: Callback) -> Self:
        """Run something first; the call goes on as it would."""
        self._before.append(callback)
        return self

    def after(self, callback: Callback) -> Self:
        """Run something when the service has answered; the answer goes on as it would."""
        self._after.append(callback)
        return self

    def _does(self, action: _Action) -> Self:
        self._action = action
        return self

    def takes(self, call: Call) -> bool:
        """Whether it acts on this call; counts it."""
        if not fnmatch(call.operation, self._operation) or not self._when(call):
            return False
        self._matched += 1
        return self._first <= self._matched <= self._last

    async def act(self, send: Any, call: Call) -> Any:
        """Do what was said."""
        self.hits += 1
        self.reached.set()
        for callback in self._before:
            await _run(callback, call)
        answer = await (self._action(send, call) if self._action else send(None))
        for callback in self._after:
            await _run(callback, call)
        return answer


class Faults:
    """A script of faults, and the record of all calls. An async context manager."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._answers: dict[str, bytes] = {}
        self._server: asyncio.Server | None = None
        self._port = 0
        #: Each attempt that reached the transport, in order.
        self.calls: list[Call] = []
        #: Requests that reached the stand-in server: aiohttp's own repeats show here, and only here.
        self.stand_in_requests = 0

    async def __aenter__(self) -> Self:
        """Start the stand-in server."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def on(
        self,
        operation: str,
        *,
        when: Callable[[Call], bool] = lambda _: True,
        nth: int = 1,
        times: int = 1,
    ) -> Rule:
        """A rule for the `nth` matching call and the `times - 1` after it; now say what happens.

        Args:
            operation: see `operation_of`; `*` stands for anything.
            when: which of those calls.
            nth: 1 is the first call from now on.
            times: how many calls in a row.
        """
        rule = Rule(self, operation, when, nth, times)
        self._rules.append(rule)
        return rule

    def count(self, operation: str) -> int:
        """How many attempts of an operation reached the transport."""
        return sum(fnmatch(call.operation, operation) for call in self.calls)

    def wrap(self, transport: Any) -> "FaultyTransport":
        """The `wrap_transport` for `open_backend`."""
        return FaultyTransport(self, transport)

    async def send(self, transport: Any, request: Any, config: dict[str, Any]) -> Any:
        """Send a request, or do to it what the script says."""
        body = _body_of(request)
        operation = operation_of(request.method, request.url, request.headers, body)
        call = Call(operation, request.method, request.url, body)
        self.calls.append(call)
        real_url = _without_start(call.url)

        async def send(url: str | None) -> Any:
            request.url = url + _target(call.url) if url else real_url
            try:
                return await transport.send(request, **config)
            finally:
                request.url = call.url  # the SDK's retries start from here

        rule = next((rule for rule in self._rules if rule.takes(call)), None)
        return await (send(None) if rule is None else rule.act(send, call))

    def answering(self, answer: bytes) -> str:
        """A URL that answers so; empty: one that breaks the connection."""
        path = f"/{len(self._answers)}"
        self._answers[path] = answer
        return f"http://127.0.0.1:{self._port}{path}"

    def refusing(self) -> str:
        """A URL where nobody listens: port 1 is reserved, and low."""
        return "http://127.0.0.1:1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = [line for line in head.split("\r\n") if line.lower().startswith("content-length:")]
            await reader.readexactly(int(length[0].partition(":")[2]) if length else 0)
            self.stand_in_requests += 1
            writer.write(self._answers["/" + head.split("/")[1]])
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client gave up first
        finally:
            writer.close()


class FaultyTransport(AsyncHttpTransport[Any, Any]):
    """The transport that `Faults.wrap` puts around a real one."""

    def __init__(self, faults: Faults, transport: Any) -> None:
        self._faults = faults
        self._transport = transport

    async def send(self, request: Any, **config: Any) -> Any:
        """One attempt."""
        return await self._faults.send(self._transport, request, config)

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

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Close the real one."""
        await self._transport.__aexit__(exc_type, exc_value, traceback)


async def _run(callback: Callback, call: Call) -> None:
    result = callback(call)
    if inspect.isawaitable(result):
        await result


def _body_of(request: Any) -> bytes:
    body = getattr(request, "data", None) or getattr(request, "content", None) or b""
    return body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else b""


def _target(url: str) -> str:
    """Path and query: by these the transport below tells what the call does."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def _without_start(url: str) -> str:
    """A query whose continuation is that of an empty first page begins at the start."""
    if _START not in url:
        return url
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in _TOKENS]
    return urlunsplit(parts._replace(query=urlencode(query)))


def _answer(call: Call, status: int, code: str, headers: dict[str, str], body: bytes | None) -> bytes:
    """A whole HTTP response, with the code where the service of that call puts it."""
    lines = {"Content-Type": "application/json", "Connection": "close", **headers}
    if body is None:
        body = b""
        if call.operation.startswith("table."):
            error = {"code": code, "message": {"lang": "en-US", "value": f"{code} by script"}}
            body = json.dumps({"odata.error": error}).encode()
        elif code:
            lines |= {"Content-Type": "application/xml", "x-ms-error-code": code}
            body = f"<Error><Code>{code}</Code><Message>{code} by script</Message></Error>".encode()
    if call.method == "HEAD":
        body = b""
    lines["Content-Length"] = str(len(body))
    reason = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} {reason}\r\n{head}\r\n".encode() + body
