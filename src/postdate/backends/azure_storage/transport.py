"""The one HTTP session, and what happens at each request that leaves.

Every attempt of every client passes `ObservingTransport.send`, below the SDK's retry policies. There the
guard is asked, the response's `Date` is learned, and the attempt is counted. Two things lie deeper still,
inside aiohttp:

- A request may wait seconds for a connection after the guard said yes, so `GuardedRequest` asks again
  when the connection is there, right before the first byte is written.
- aiohttp itself repeats a GET, PUT or DELETE whose kept-alive connection broke. A call whose repeat
  changes its answer (a conditional delete would find its row gone) says `once`, and is not repeated.
  The two attempts of others count as one: the first most likely never arrived.

Proxies of the environment (HTTPS_PROXY) and `.netrc` are not looked at: both cost two thread hops per
request, and a stray `.netrc` entry breaks authentication (fact 1).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from azure.core.pipeline.transport import AioHttpTransport

from postdate.clock import StorageClock
from postdate.model.requests import (
    Outcome,
    RequestCounter,
    RequestKind,
    Service,
    blob_operation,
    outcome_of,
    queue_operation,
    table_operation,
)
from postdate.ports import Guard, LeaseLost

#: Seconds for a connection to be made, and between two pieces of an answer (fact 5: the SDK's are 300).
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 15.0
#: Connections to one service. Not in all: a burst of sends must not keep lease calls waiting.
CONNECTIONS_PER_HOST = 128
#: Seconds that an idle connection is kept.
KEEP_ALIVE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Call:
    guard: Guard | None = None
    once: bool = False


_NO_CALL = _Call()
_call: ContextVar[_Call] = ContextVar("postdate_azure_call", default=_NO_CALL)


@contextmanager
def calling(*, guard: Guard | None = None, once: bool = False) -> Iterator[None]:
    """Say about the requests made inside: asked of whom before they leave, and that aiohttp repeats none.

    Without a guard of its own, the one around it is asked.
    """
    token = _call.set(_Call(guard or _call.get().guard, once))
    try:
        yield
    finally:
        _call.reset(token)


def _ask_guard() -> None:
    guard = _call.get().guard
    if guard is not None and not guard():
        raise LeaseLost


class BrokenConnection(aiohttp.ClientConnectionError):
    """A connection broke with a request on it; of a class that aiohttp doesn't repeat."""


async def _no_silent_repeat(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise  # no connection came about, and aiohttp doesn't repeat these
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if _call.get().once:
            raise BrokenConnection(str(error)) from error
        raise


class GuardedRequest(aiohttp.ClientRequest):
    """Asks the guard when the connection is there and nothing is written yet.

    Headers are written together with the body, and before Python 3.12 that is a turn of the loop later
    than `send`: on a busy loop often enough for a process to be frozen in between.
    """

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        """Write the request, unless the guard says no."""
        if not self.body:
            _ask_guard()
        return await super().send(conn)

    async def write_bytes(self, writer: Any, conn: Any, content_length: int | None = None) -> None:
        """Write headers and body, unless the guard says no; then whoever waits for the response hears it."""
        try:
            _ask_guard()
        except LeaseLost as lost:
            conn.protocol.set_exception(lost)
            return
        await super().write_bytes(writer, conn, content_length)


def open_session() -> aiohttp.ClientSession:
    """The session that all clients share. The caller closes it, after them."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, limit_per_host=CONNECTIONS_PER_HOST, keepalive_timeout=KEEP_ALIVE_S
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,  # fact 1
        request_class=GuardedRequest,
        middlewares=(_no_silent_repeat,),
    )


class ObservingTransport(AioHttpTransport):  # type: ignore[misc] # exported late, so without a type
    """The transport of one service's clients, on the shared session.

    `clock`: learns from each response's `Date`; None for accounts other than our own, whose clocks
    say nothing about ours.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        service: Service,
        clock: StorageClock | None,
        requests: RequestCounter,
    ) -> None:
        super().__init__(
            session=session,
            session_owner=False,
            use_env_settings=False,
            # Here, because what clients are given as timeouts never reaches a transport of ours (fact 5).
            connection_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
        )
        self._kind_of = _KINDS[service]
        self._clock = clock
        self._requests = requests
        self._last_date: tuple[str, datetime] | None = None

    async def send(self, request: Any, **config: Any) -> Any:
        """One attempt of one request.

        Raises:
            LeaseLost: the call's guard said no; nothing left.
        """
        _ask_guard()
        kind = self._kind_of(request)
        sent = 0.0 if self._clock is None else self._clock.monotonic()
        try:
            response = await super().send(request, **config)
        except BaseException as error:
            if not _stayed_here(error):
                self._requests.add(kind, Outcome.FAILED)
            raise
        self._requests.add(kind, outcome_of(response.status_code))
        if self._clock is not None:
            self._learn(self._clock, response.headers.get("Date"), sent)
        return response

    def _learn(self, clock: StorageClock, date_text: str | None, sent: float) -> None:
        received = clock.monotonic()
        date = self._parse(date_text)
        if date is not None:
            clock.observe(date, sent=sent, received=received)

    def _parse(self, text: str | None) -> datetime | None:
        """The instant of a `Date`; the last one is kept, since a second holds many responses."""
        if not text:
            return None
        if self._last_date is not None and self._last_date[0] == text:
            return self._last_date[1]
        try:
            date = parsedate_to_datetime(text)
        except ValueError:
            return None
        date = date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
        self._last_date = (text, date)
        return date


def _stayed_here(error: BaseException) -> bool:
    """Whether the request surely never left: the guard said no, or no connection came about."""
    cause = error.__cause__
    return isinstance(error, LeaseLost) or isinstance(
        cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
    )


def _table(request: Any) -> RequestKind:
    return RequestKind(Service.TABLE, table_operation(request.method, request.url))


def _queue(request: Any) -> RequestKind:
    return RequestKind(Service.QUEUE, queue_operation(request.method, request.url))


def _blob(request: Any) -> RequestKind:
    action = request.headers.get("x-ms-lease-action")
    return RequestKind(Service.BLOB, blob_operation(request.method, request.url, action))


_KINDS: dict[Service, Callable[[Any], RequestKind]] = {
    Service.TABLE: _table,
    Service.QUEUE: _queue,
    Service.BLOB: _blob,
}
