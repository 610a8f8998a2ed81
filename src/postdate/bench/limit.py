"""What the service takes at most: the same puts, signed beforehand, sent as they are.

The requests are made by the lean pipeline of the product itself, caught before they leave, and sent by bare
aiohttp. So the credential does not matter, and nothing but the sending is measured.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Self

import aiohttp
from azure.core.pipeline.transport import AsyncHttpTransport
from yarl import URL

from postdate.bench.account import Account
from postdate.bench.ground import Ground
from postdate.bench.scale import LIMIT_CONCURRENCIES, ROWS_A_BATCH
from postdate.bench.workload import Messages, classic_entity
from postdate.clock import SystemClock
from postdate.concurrency import for_each
from postdate.errors import StorageError
from postdate.model.envelope import wrap

_TRUSTED_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Pace:
    """One measurement."""

    concurrency: int
    with_deletes: bool
    puts: int
    seconds: float
    per_s: float
    #: Microseconds of this process for each put, transactions included.
    client_cpu_us: float


@dataclass(frozen=True, slots=True)
class Limit:
    """The ceiling: the best of all measurements."""

    puts: Pace
    puts_and_deletes: Pace
    runs: list[Pace]

    @classmethod
    def of(cls, runs: Sequence[Pace]) -> Self:
        """The best of these, which are of both kinds."""
        best = [
            max((run for run in runs if run.with_deletes is kind), key=lambda run: run.per_s)
            for kind in (False, True)
        ]
        return cls(best[0], best[1], list(runs))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be sent as it is, for as long as its signature holds (15 minutes)."""

    url: URL
    headers: dict[str, str]
    body: bytes
    status: int


class _Caught(Exception):
    def __init__(self, request: Any) -> None:
        super().__init__("caught before it left")
        self.request = request


class _Catching(AsyncHttpTransport[Any, Any]):
    """Sends nothing."""

    async def send(self, request: Any, **config: Any) -> NoReturn:  # noqa: ARG002 - the transport's shape
        raise _Caught(request)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *why: object) -> None:
        pass


async def measure_limit(ground: Ground, puts: int) -> Limit:
    """Send `puts` messages at each concurrency, first without and then with the deletes.

    Raises:
        StorageError: a prepared request was refused.
    """
    runs: list[Pace] = []
    async with Account(ground.settings) as account, _bare_session() as session:
        messages = Messages(ground.settings, SystemClock(), ground.queue)
        for deleting in (False, True):
            for concurrency in LIMIT_CONCURRENCIES:
                batches = await _batches(account, messages, puts // ROWS_A_BATCH) if deleting else ()
                put = await _prepared_put(account, messages, ground.queue)
                runs.append(await _pace(session, put, batches, puts, concurrency))
                await account.clear(ground.queue)
    return Limit.of(runs)


async def raw_put_seconds(ground: Ground, puts: int, concurrency: int) -> float:
    """Seconds of one raw put on the account as it is now, on average over `puts` of them."""
    async with Account(ground.settings) as account, _bare_session() as session:
        messages = Messages(ground.settings, SystemClock(), ground.queue)
        put = await _prepared_put(account, messages, ground.queue)
        return 1.0 / (await _pace(session, put, (), puts, concurrency)).per_s


async def _pace(
    session: aiohttp.ClientSession, put: Prepared, batches: Sequence[Prepared], puts: int, concurrency: int
) -> Pace:
    todo = _with_deletes(put, batches, puts)

    async def work(_: int) -> None:
        for request in todo:
            await _send(session, request)

    clock = SystemClock()
    began, cpu = clock.monotonic(), time.process_time()
    await for_each(range(concurrency), concurrency, work)
    seconds, spent = clock.monotonic() - began, time.process_time() - cpu
    if seconds > _TRUSTED_SECONDS:
        raise StorageError(
            f"{puts} puts took {seconds:.0f} s; measure fewer, signatures end after 15 minutes"
        )
    return Pace(concurrency, bool(batches), puts, seconds, puts / seconds, spent / puts * 1e6)


def _with_deletes(put: Prepared, batches: Sequence[Prepared], puts: int) -> Iterator[Prepared]:
    """The puts, with a transaction after each hundred while there are any; shared by all who send."""
    left = iter(batches)
    for number in range(1, puts + 1):
        yield put
        if number % ROWS_A_BATCH == 0 and (batch := next(left, None)) is not None:
            yield batch


async def _send(session: aiohttp.ClientSession, request: Prepared) -> None:
    async with session.post(request.url, data=request.body, headers=request.headers) as response:
        answer = await response.read()
    refused = request.status == 202 and answer.count(b"HTTP/1.1 204") != ROWS_A_BATCH
    if response.status != request.status or refused:
        raise StorageError(f"a prepared request was answered {response.status}: {answer[:200]!r}")


async def _prepared_put(account: Account, messages: Messages, queue: str) -> Prepared:
    text = wrap(messages.overdue(1)[0].message)
    hot = account.hot_queues(_Catching())
    return await _catch(lambda: hot.put(queue, text, hidden_for=0, time_to_live=-1), 201)


async def _batches(account: Account, messages: Messages, count: int) -> list[Prepared]:
    """Rows by the hundred in one partition each, and for each hundred the transaction that deletes it."""
    table = account.one_by_one(_Catching())
    prepared = []
    for _ in range(count):
        # In one partition, whatever the time: the first one's.
        entities = [classic_entity(message) for message in messages.overdue(ROWS_A_BATCH)]
        same = {"PartitionKey": entities[0]["PartitionKey"]}
        etags = await account.insert([entity | same for entity in entities])
        prepared.append(await _catch(partial(table.delete, etags), 202))
    return prepared


async def _catch(call: Callable[[], Awaitable[object]], status: int) -> Prepared:
    try:
        await call()
    except _Caught as caught:
        request = caught.request
        return Prepared(URL(request.url, encoded=True), dict(request.headers), request.data, status)
    raise AssertionError("the request was not caught")


def _bare_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )
