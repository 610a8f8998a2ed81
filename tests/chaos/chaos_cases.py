"""What the chaos tests share: an endpoint with real `postdate run` processes, and what its queue holds."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from azure.storage.blob.aio import BlobLeaseClient, ContainerClient

from postdate import Endpoint, Outgoing, Settings
from postdate.clock import SystemClock
from postdate.demo.processes import ServingProcess, Told, start_process, stop_all
from postdate.model import headers as h
from postdate.model.envelope import unwrap

SECOND = timedelta(seconds=1)
CLOCK = SystemClock()
#: Longer than any lease and everything after it.
SOON = 40.0
#: How long a drained message stays hidden: for the rest of the test.
_PUT_ASIDE_SECONDS = 600


@dataclass(frozen=True)
class Copy:
    """One queue message. Two with the same message id are a duplicate."""

    message_id: str
    native_id: str
    term: int | None
    #: By the service, cut to whole seconds.
    inserted_at: datetime
    headers: dict[str, str | None]


class Server:
    """A `postdate run`, with all that it said."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._news = asyncio.Event()
        self.process: ServingProcess

    @classmethod
    async def start(cls, settings: Settings) -> "Server":
        server = cls()
        server.process = await start_process(settings, server._hear)
        return server

    def _hear(self, _process: ServingProcess, told: Told) -> None:
        self.told.append(told)
        self._news.set()

    def of(self, name: str) -> list[Told]:
        """Its events of one kind so far."""
        return [told for told in self.told if told.name == name]

    async def wait(
        self,
        name: str,
        *,
        count: int = 1,
        since: int = 0,
        where: Callable[[Told], bool] | None = None,
        within: float = SOON,
    ) -> Told:
        """Wait until it has said something `count` times, from record number `since` on; the last of them."""
        look = since
        try:
            async with asyncio.timeout(within):
                while True:
                    while look < len(self.told):
                        told = self.told[look]
                        look += 1
                        count -= told.name == name and (where is None or where(told))
                        if count == 0:
                            return told
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            status, said = self.process.exit_status, self.process.said
            raise AssertionError(
                f"{name} was not heard within {within:g} s; exit status {status}; it said: {said}"
            ) from None

    def send(self, number: signal.Signals) -> float:
        """Send a signal; when (monotonic seconds)."""
        self.process.send(number)
        return CLOCK.monotonic()


@dataclass
class Stage:
    """One endpoint: its processes, and a client of ours that schedules and looks.

    The client's lookahead is 0, so whatever it schedules becomes a row, which only a leader hands over.
    """

    settings: Settings
    client: Endpoint
    container: ContainerClient
    servers: list[Server] = field(default_factory=list)
    _drained: Counter[str] = field(default_factory=Counter)

    async def start(self) -> Server:
        """A further `postdate run`, which has begun to serve."""
        server = await Server.start(self.settings)
        self.servers.append(server)
        await server.wait("log", where=lambda told: "serves" in told.values["message"])
        return server

    async def leader_and_follower(self) -> tuple[Server, Server]:
        """Two of them; the first leads."""
        leader = await self.start()
        await leader.wait("term_began")
        return leader, await self.start()

    async def schedule(
        self, due_at: Sequence[datetime], *, queue: str | None = None, prefix: str = "m"
    ) -> dict[str, datetime]:
        """A row for each instant; due times by message id."""
        due = {f"{prefix}{number:05d}": instant for number, instant in enumerate(due_at)}
        queue = queue or self.settings.own_queue
        result = await self.client.schedule_many(
            Outgoing(queue, {"id": message_id}, at=instant, message_id=message_id)
            for message_id, instant in due.items()
        )
        assert not result.failures
        return due

    def now(self) -> datetime:
        """The earliest that the service's clock can show."""
        return self.client.parts.clock.now()

    async def waiting(self) -> set[str]:
        """Message ids of all rows."""
        return {str(row.message_id) async for row in self.client.upcoming()}

    async def drain(self, queue: str | None = None) -> list[Copy]:
        """All that is visible in a queue and was not drained before. Nothing may be hidden in it."""
        queue = queue or self.settings.own_queue
        copies: list[Copy] = []
        while page := await self._take(queue):
            copies += page
        self._drained[queue] += len(copies)
        assert await self.client.parts.backend.sender.approximate_count(queue) == self._drained[queue]
        return copies

    async def _take(self, queue: str) -> list[Copy]:
        receiver = self.client.parts.backend.receiver
        page = await receiver.receive(queue, count=32, visibility_s=_PUT_ASIDE_SECONDS)
        copies = []
        for received in page:
            message = unwrap(received.text, received.native_id).message
            term = message.headers.get(h.TERM)
            copies.append(
                Copy(
                    message.message_id,
                    received.native_id,
                    None if term is None else int(term),
                    received.inserted_at,
                    message.headers,
                )
            )
        return copies

    async def arrivals(self, expected: int, within: float) -> AsyncIterator[tuple[Copy, datetime]]:
        """Copies as they become visible, each with the latest that the clock can have shown then.

        Ends after `expected` different message ids; `TimeoutError` after `within` seconds.
        """
        clock = self.client.parts.clock
        seen: set[str] = set()
        deadline = clock.monotonic() + within
        while len(seen) < expected:
            if clock.monotonic() > deadline:
                raise TimeoutError(f"{len(seen)} of {expected} messages arrived within {within:g} s")
            page = await self._take(self.settings.own_queue)
            latest = clock.latest()
            for copy in page:
                seen.add(copy.message_id)
                yield copy, latest
            if not page:
                await clock.sleep(0.05)

    def lease(self) -> BlobLeaseClient:
        """The endpoint's lease, as any other program would use it."""
        return BlobLeaseClient(self.container)

    async def lease_state(self) -> str:
        """`leased`, `available`, `expired` or `broken`."""
        return str((await self.container.get_container_properties()).lease.state)


@asynccontextmanager
async def stage_for(settings: Settings, **changes: Any) -> AsyncIterator[Stage]:
    """An endpoint with its table, lease and queues; its processes are stopped at the end."""
    endpoint = changes.get("endpoint", settings.endpoint)
    # Rows turn up here at shorter notice than `direct_within` has it, so no leader may rest on that.
    update = {"error_queue": f"{endpoint}-error", "direct_within": timedelta(0), **changes}
    settings = settings.model_copy(update=update)
    assert settings.connection is not None
    connection = settings.connection.get_secret_value()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Endpoint(settings.model_copy(update={"lookahead": timedelta(0)}))
        )
        await client.setup(settings.own_queue)
        container = await stack.enter_async_context(
            ContainerClient.from_connection_string(connection, settings.table_name, api_version="2025-11-05")
        )
        stage = Stage(settings, client, container)
        try:
            yield stage
        finally:
            for server in stage.servers:
                server.send(signal.SIGCONT)
            await stop_all(server.process for server in stage.servers)


def duplicates(copies: Sequence[Copy]) -> Counter[str]:
    """By message id, how many copies too many there are."""
    counted = Counter(copy.message_id for copy in copies)
    return Counter({message_id: n - 1 for message_id, n in counted.items() if n > 1})
