"""Both ways to make the hot calls, the SDK's and ours, over one transport with faults in it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.data.tables.aio import TableClient
from azure.storage.queue.aio import QueueClient
from azure_cases import connection_of
from pydantic import SecretStr

from postdate.backends.azure_storage.clients import AccountClients, Credentials
from postdate.backends.azure_storage.connection import Endpoints, endpoints_of
from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
    code_of,
    failing_index,
    outcome_unknown,
    refusal,
    translate,
)
from postdate.backends.azure_storage.hot_calls import HotQueues, HotTable
from postdate.backends.azure_storage.rows import Entity, json_of, plain_value, properties_of
from postdate.backends.azure_storage.transport import calling, open_session
from postdate.model.keys import RowKey
from postdate.model.requests import RequestCounter
from postdate.settings import Account, Settings
from postdate.testing.faults import Faults

DUE = datetime(2026, 3, 1, 12, 30, 0, 250_000, tzinfo=UTC)
#: What each attempt has of its own, and what is told by the body already.
OWN = {"authorization", "x-ms-date", "date", "x-ms-client-request-id", "user-agent", "content-length"}


class Recording(AsyncHttpTransport):
    """Keeps each request that leaves."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []

    async def send(self, request: Any, **config: Any) -> Any:
        body = request.data.encode() if isinstance(request.data, str) else request.data or b""
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append((request.method, request.url, headers, body))
        return await self._transport.send(request, **config)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def __aenter__(self): ...

    async def __aexit__(self, *_): ...


@dataclass
class Sides:
    """Both ways, over one transport with faults in it."""

    table: TableClient
    hot_table: HotTable
    queue: QueueClient
    hot: HotQueues
    faults: Faults
    recording: Recording
    endpoints: Endpoints

    async def sdk_put(self, text="x", hidden_for=5, time_to_live=-1) -> tuple[str, str]:
        sent = await self.queue.send_message(
            text, visibility_timeout=hidden_for, time_to_live=time_to_live, retry_total=0
        )
        return sent.id, sent.pop_receipt

    async def lean_put(self, text="x", hidden_for=5, time_to_live=-1) -> tuple[str, str]:
        receipt = await self.hot.put(
            self.queue.queue_name, text, hidden_for=hidden_for, time_to_live=time_to_live
        )
        return receipt.native_id, receipt.pop_receipt

    async def sdk_insert(self, entities: list[Entity]) -> list[str]:
        return [a["etag"] for a in await self.table.submit_transaction([("create", e) for e in entities])]

    async def lean_insert(self, entities: list[Entity]) -> list[str]:
        return await self.hot_table.insert([json_of(entity) for entity in entities])

    async def sdk_delete(self, rows: dict[RowKey, str]) -> None:
        await self.table.submit_transaction(
            [
                (
                    "delete",
                    {"PartitionKey": key.partition, "RowKey": key.row},
                    {"etag": etag, "match_condition": MatchConditions.IfNotModified},
                )
                for key, etag in rows.items()
            ],
            retry_total=0,
        )

    async def lean_delete(self, rows: dict[RowKey, str]) -> None:
        await self.hot_table.delete(rows)

    async def sdk_page(self, matching=None, top=1000, select=None, token=None) -> Any:
        sdk_token = {"PartitionKey": token[0], "RowKey": token[1]} if token else None
        query = self.table.query_entities if matching else self.table.list_entities
        given = (matching,) if matching else ()
        pages = query(*given, results_per_page=top, select=select).by_page(continuation_token=sdk_token)
        rows = [entity async for entity in await anext(pages)]
        following = pages.continuation_token
        return (
            [({n: plain_value(v) for n, v in row.items()}, row.metadata["etag"]) for row in rows],
            (following["PartitionKey"], following["RowKey"]) if following else None,
        )

    async def lean_page(self, matching=None, top=1000, select=(), token=None) -> Any:
        page = await self.hot_table.page(matching or "", top=top, select=select or (), token=token)
        return [properties_of(entry) for entry in page.rows], page.token

    async def both(self, name: str, *given: Any, **named: Any) -> list[tuple[Any, ...]]:
        """What each side answered or failed with, in our own terms, and how many requests it took."""
        found: list[tuple[Any, ...]] = []
        for side in ("sdk", "lean"):
            self.recording.seen.clear()
            call: Callable[..., Awaitable[Any]] = getattr(self, f"{side}_{name}")
            place = self.endpoints.queue if name == "put" else self.endpoints.table
            try:
                with calling(once=name in ("put", "delete")):
                    outcome = ("answered", await call(*given, **named))
            except CALL_ERRORS as error:
                ours = translate(error, "trying", place, queue="orders", changes=name != "page")
                told = (type(ours), str(ours), refusal(error), code_of(error), failing_index(error))
                outcome = ("failed", *told, outcome_unknown(error))
            found.append((*outcome, len(self.recording.seen)))
        return found

    def add(self, count: int = 3) -> list[Entity]:
        return [entity(f"r{n}") for n in range(count)]


def entity(row: str, **columns: Any) -> Entity:
    return {"PartitionKey": "p", "RowKey": row, "Note": "n", **columns}


def keys(entities: list[Entity], etags: list[str]) -> dict[RowKey, str]:
    pairs = zip(entities, etags, strict=True)
    return {RowKey(e["PartitionKey"], e["RowKey"]): etag for e, etag in pairs}


async def opened(connection: str, name: str, faults: Faults) -> AsyncIterator[Sides]:
    endpoints = endpoints_of(Account("POSTDATE_CONNECTION", connection_string=SecretStr(connection)))
    session, made = open_session(), []

    def wrap(transport):
        made.append(Recording(faults.wrap(transport)))
        made[-1].seen = made[0].seen  # one record for all services
        return made[-1]

    account = AccountClients(endpoints, Credentials().of(endpoints), session, None, RequestCounter(), wrap)
    yield Sides(
        account.table(name),
        account.hot_table(name),
        account.queue(name),
        account.hot_queues,
        faults,
        made[0],
        endpoints,
    )
    await account.close()
    await session.close()


async def ready(settings: Settings) -> AsyncIterator[Sides]:
    """Both, with table and queue there, and nothing recorded yet."""
    async with Faults() as faults:
        async for made in opened(connection_of(settings), settings.table_name, faults):
            await made.table.create_table()
            await made.queue.create_queue()
            made.recording.seen.clear()
            faults.calls.clear()
            yield made


TWO = [entity("a"), entity("b")]
GIVEN = {"put": "x", "insert": TWO, "delete": keys(TWO, ['W/"1"'] * 2), "page": None}
