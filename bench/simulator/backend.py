"""The ports of one endpoint process, in front of a `LimitedAccount`.

What the memory backend does stays as it is; each call becomes the requests that the backend for Azure Storage
makes of it, with the same transactions, at the same time, tried again as often.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from zlib import crc32

from bench.simulator.account import Charge, LimitedAccount, Processor
from bench.simulator.limits import Spread
from postdate.backends.azure_storage.delayed_table import TRANSACTIONS
from postdate.backends.azure_storage.rows import chunks, wire_bytes
from postdate.backends.memory import MemoryBackend
from postdate.backends.memory.queues import MemoryQueues
from postdate.concurrency import for_each
from postdate.errors import PostdateError, ServiceBusy
from postdate.model.added import AddOutcome
from postdate.model.delayed import DelayedMessage, Row
from postdate.model.keys import RowKey
from postdate.model.requests import RequestCounter, RequestKind
from postdate.ports import (
    AddResult,
    Guard,
    LeaderRecord,
    LeaseLost,
    Receipt,
    all_added,
    note_removed,
)

#: Waits before the further tries of table requests, as azure-core makes them of our retry settings.
_TABLE_WAITS = (0.0, 0.4, 0.8)
#: Of bodies here, which are a few bytes long: only counts bound a transaction.
_SIZE = wire_bytes()

_PUT = RequestKind("queue", "put message")
_QUERY = RequestKind("table", "query")
_BATCH = RequestKind("table", "batch")
_INSERT = RequestKind("table", "insert")
_MERGE = RequestKind("table", "merge")
_GET = RequestKind("table", "get")

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message in its queue."""

    text: str
    queue: str
    #: When it came, in monotonic seconds.
    at: float
    #: When consumers can see it, by the service's clock.
    visible_at: datetime


class _Caller:
    """Makes requests: on the way, accepted, carried out, and back."""

    def __init__(self, account: LimitedAccount, processor: Processor, counter: RequestCounter) -> None:
        self.account = account
        self.clock = account.clock
        self.latencies = account.service.latencies
        self._processor = processor
        self._counter = counter

    async def request(
        self,
        kind: RequestKind,
        spread: Spread,
        work: Callable[[], Awaitable[Answer]],
        *,
        charges: Sequence[Charge] = (),
        items: int = 0,
        cpu_s: float = 0.0,
        guard: Guard | None = None,
    ) -> Answer:
        """One request, and what it does when it is accepted. The guard is asked when it has been written."""
        half = self.account.on_the_way(spread, items)
        waiting = self._processor.occupy(cpu_s) if cpu_s else 0.0
        await self.clock.sleep(waiting + half)
        if guard is not None and not guard():
            raise LeaseLost
        await self.account.admit(kind, charges, self._counter)
        answer = await work()
        await self.clock.sleep(half)
        return answer

    async def repeated(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """The same, tried again while the service is busy, as our table requests are."""
        for wait in _TABLE_WAITS:
            try:
                return await call()
            except ServiceBusy:
                await self.clock.sleep(wait)
        return await call()


class LimitedTable:
    """`ports.DelayedStore`."""

    def __init__(self, inner: MemoryBackend, caller: _Caller, table: str) -> None:
        self._inner = inner.store
        self._caller = caller
        self._table = table
        #: Rows that this process deleted, and when the last of them went, in monotonic seconds.
        self.removed = 0
        self.removed_at = caller.clock.monotonic()

    def _partition(self, key: RowKey) -> str:
        place = f"{self._table}/{key.partition}"
        buckets = self._caller.account.service.limits.hash_buckets
        return place if buckets == 1 else f"{place}-{crc32(key.row.encode()) % buckets}"

    def _charges(self, keys: Sequence[RowKey], weight: float = 1.0) -> list[Charge]:
        places = Counter(self._partition(key) for key in keys)
        return [("partition", place, count * weight) for place, count in places.items()]

    async def create(self) -> bool:
        """Create the table."""
        return await self._inner.create()

    async def add(self, messages: Sequence[DelayedMessage]) -> list[AddResult]:
        """Insert, in transactions."""
        outcomes: dict[int, AddOutcome] = {}

        async def insert(chunk: list[tuple[int, DelayedMessage]]) -> None:
            rows = [message for _, message in chunk]

            async def once() -> list[AddResult]:
                return await self._caller.request(
                    _INSERT if len(rows) == 1 else _BATCH,
                    self._caller.latencies.entity if len(rows) == 1 else self._caller.latencies.batch,
                    lambda: self._inner.add(rows),
                    charges=self._charges([row.key for row in rows]),
                    items=len(rows),
                )

            try:
                results: Sequence[AddOutcome] = await self._caller.repeated(once)
            except PostdateError as error:
                results = [error] * len(rows)
            outcomes.update(zip((index for index, _ in chunk), results, strict=True))

        sized = (((i, m), self._partition(m.key), _SIZE) for i, m in enumerate(messages))
        await for_each(chunks(sized), TRANSACTIONS, insert)
        return all_added([outcomes[index] for index in range(len(messages))])

    async def due(self, until: datetime) -> AsyncIterator[Sequence[Row]]:
        """Pages, one request each."""
        async for page in self._inner.due(until):
            keys = [row.key for row in page]
            charges = self._charges(keys, self._caller.account.service.limits.read_weight)
            await self._queried(charges, len(page))
            yield page

    async def next_due(self, after: datetime | None = None) -> datetime | None:
        """One request for a short page."""
        await self._queried([], 1)
        return await self._inner.next_due(after)

    async def _queried(self, charges: Sequence[Charge], rows: int) -> None:
        async def once() -> None:
            await self._caller.request(
                _QUERY, self._caller.latencies.query, _nothing, charges=charges, items=rows
            )

        await self._caller.repeated(once)

    async def remove(self, rows: Sequence[Row], guard: Guard | None = None) -> list[bool]:
        """Delete, in transactions that are tried once."""
        answers: list[bool | None] = [None] * len(rows)

        async def delete(chunk: list[tuple[int, Row]]) -> None:
            mine = [row for _, row in chunk]
            removed = await self._caller.request(
                _BATCH,
                self._caller.latencies.batch,
                lambda: self._inner.remove(mine),
                charges=self._charges([row.key for row in mine]),
                items=len(mine),
                guard=guard,
            )
            for (index, _), gone in zip(chunk, removed, strict=True):
                answers[index] = gone
            self.removed += sum(removed)
            self.removed_at = self._caller.clock.monotonic()

        sized = (((i, row), self._partition(row.key), _SIZE) for i, row in enumerate(rows))
        try:
            await for_each(chunks(sized), TRANSACTIONS, delete)
        except Exception as error:
            note_removed(error, answers)
            raise
        return [bool(answer) for answer in answers]

    async def update(self, row: Row, *, failure_count: int, next_attempt_at: datetime | None) -> str | None:
        """One row."""

        async def once() -> str | None:
            return await self._caller.request(
                _MERGE,
                self._caller.latencies.entity,
                lambda: self._inner.update(row, failure_count=failure_count, next_attempt_at=next_attempt_at),
                charges=self._charges([row.key]),
            )

        return await self._caller.repeated(once)

    async def get(self, key: RowKey) -> Row | None:
        """One row."""
        return await self._caller.request(
            _GET,
            self._caller.latencies.entity,
            lambda: self._inner.get(key),
            charges=self._charges([key], self._caller.account.service.limits.read_weight),
        )

    def upcoming(self, *, start: datetime | None = None, end: datetime | None = None) -> AsyncIterator[Row]:
        """For people who look; nothing in a simulation does."""
        return self._inner.upcoming(start=start, end=end)


class LimitedQueues(MemoryQueues):
    """`ports.QueueSender`: sends are requests, all else is free."""

    def __init__(self, caller: _Caller, arrivals: list[Arrival]) -> None:
        super().__init__(caller.account.memory.queues, caller.clock, frozenset())
        self._caller = caller
        self._arrivals = arrivals

    async def send(
        self,
        destination: str,
        text: str,
        *,
        hidden_for: int = 0,
        time_to_live: int | None = None,
        guard: Guard | None = None,
    ) -> Receipt:
        """One request, never repeated."""
        account = self._caller.account

        async def put() -> Receipt:
            receipt = await super(LimitedQueues, self).send(
                destination, text, hidden_for=hidden_for, time_to_live=time_to_live
            )
            visible_at = account.clock.now() + timedelta(seconds=hidden_for)
            self._arrivals.append(Arrival(text, destination, account.clock.monotonic(), visible_at))
            return receipt

        account.in_flight += 1
        second = int(account.clock.monotonic())
        account.most_in_flight[second] = max(account.most_in_flight[second], account.in_flight)
        try:
            return await self._caller.request(
                _PUT,
                self._caller.latencies.put_message,
                put,
                charges=[("queue", destination, 1.0)],
                cpu_s=account.service.client.per_message_s,
                guard=guard,
            )
        finally:
            account.in_flight -= 1


class LimitedLease:
    """`ports.LeaseStore`: two more requests publish who leads, as they do on Azure Storage."""

    def __init__(self, inner: MemoryBackend, caller: _Caller) -> None:
        self._inner = inner.lease
        self._caller = caller

    async def _ask(self, operation: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self._caller.request(RequestKind("blob", operation), self._caller.latencies.lease, work)

    async def create(self) -> bool:
        """Make the place that carries the lease."""
        return await self._inner.create()

    async def acquire(self, holder: str, duration_s: int, lookahead_s: float) -> int | None:
        """Take it, and publish who leads."""
        term = await self._ask("acquire lease", lambda: self._inner.acquire(holder, duration_s, lookahead_s))
        if term is not None:
            await self._ask("get blob", _nothing)
            await self._ask("put blob", _nothing)
        return term

    async def renew(self, duration_s: int) -> bool:
        """Count anew."""
        return await self._ask("renew lease", lambda: self._inner.renew(duration_s))

    async def release(self) -> None:
        """Give it back."""
        await self._ask("release lease", self._inner.release)

    async def break_lease(self) -> bool:
        """Take it away."""
        return await self._ask("break lease", self._inner.break_lease)

    async def holder(self) -> LeaderRecord | None:
        """What the last leader published."""
        return await self._ask("get blob", self._inner.holder)


class LimitedBackend:
    """`ports.Backend` of one process: it has one core, and shares the account with all others."""

    def __init__(self, account: LimitedAccount, table: str) -> None:
        inner = MemoryBackend(account.memory, table, account.clock, frozenset())
        self.requests = RequestCounter()
        self.processor = Processor(account.clock)
        self.arrivals: list[Arrival] = []
        caller = _Caller(account, self.processor, self.requests)
        self.inner = inner
        self.store = LimitedTable(inner, caller, table)
        self.sender = LimitedQueues(caller, self.arrivals)
        self.lease = LimitedLease(inner, caller)
        self.receiver = self.sender
        self.payloads = inner.payloads
        self.timeouts = inner.timeouts
        self.inbox = inner.inbox

    @property
    def description(self) -> Mapping[str, str]:
        """Says that none of this is real."""
        return {"backend": "simulated"}

    async def reach(self) -> Mapping[str, PostdateError | None]:
        """Nothing here can be out of reach."""
        return {}

    async def close(self) -> None:
        """Nothing to close."""


async def _nothing() -> None:
    """What a query does by itself: its rows are read from memory beside it."""
