"""The legacy timeout manager on a real storage service: what .NET left is found, handed over in time, and removed."""

import asyncio
import base64
import json
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables.aio import TableClient
from azure.storage.blob.aio import ContainerClient
from azure.storage.queue.aio import QueueClient

from postdate import Endpoint
from postdate.bench.idle import FastClock
from postdate.clock import SystemClock
from postdate.errors import OutcomeUnknown
from postdate.events import HandedOver, MovedToErrorQueue, TermBegan, TimeoutManagerDrained, TimeoutStored
from postdate.model import headers as h
from postdate.model.envelope import unwrap
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.testing.faults import Faults
from postdate.testing.signals import EventLog

OWNER = "Contoso.Orders"
SECOND = timedelta(seconds=1)


@dataclass
class Old:
    """An endpoint with a legacy of its own, and plain clients beside it, as an older instance has them."""

    endpoint: Endpoint
    log: EventLog
    faults: Faults
    table: TableClient
    states: ContainerClient
    connection: str

    @property
    def timeouts(self) -> Any:
        return self.endpoint.parts.backend.timeouts

    @property
    def requests(self) -> str:
        return self.endpoint.settings.timeout_queues[0]

    async def left(self):
        rows = [entity async for entity in self.table.list_entities()]
        return len(rows) + len([blob async for blob in self.states.list_blobs()])

    async def receive(self, queue):
        """The next message that a consumer sees, and when it saw it by the service's clock."""
        async with asyncio.timeout(30):
            async for delivery in self.endpoint.receive(queue):
                await delivery.ack()
                return delivery
        raise AssertionError("unreachable")

    def plain_queue(self, name):
        return QueueClient.from_connection_string(self.connection, name)


@asynccontextmanager
async def open_old(settings, connection, **options):
    unique = uuid.uuid4().hex[:10]
    names = {
        "endpoint": OWNER,
        "queue": f"orders-{unique}",
        "delays_table": f"delays{unique}",
        "error_queue": f"error-{unique}",
        "timeout_table": f"Timeouts{unique}",
        "timeout_manager_table": f"Manager{unique}",
        "timeout_state_container": f"state-{unique}",
        **options.pop("update", {}),
    }
    log = EventLog()
    async with (
        Faults() as faults,
        Endpoint(
            settings.model_copy(update=names), observers=[log], wrap_transport=faults.wrap, **options
        ) as endpoint,
        TableClient.from_connection_string(connection, names["timeout_table"]) as table,
        ContainerClient.from_connection_string(connection, names["timeout_state_container"]) as states,
    ):
        await endpoint.setup("contoso-orders", timeout_manager=True)
        yield Old(endpoint, log, faults, table, states, connection)


@pytest.fixture
async def old(postdate_settings, azurite):
    async with open_old(postdate_settings, azurite.connection_string) as opened:
        yield opened


@asynccontextmanager
async def serving(endpoint):
    stop = asyncio.Event()
    running = asyncio.create_task(endpoint.run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


def golden_rows(golden, due_at, destination):
    """The rows of the golden timeout as the plain SDK inserts them, at another time for another queue."""
    for row in golden["legacy_azure_table_timeout"]["rows"]:
        entity = {name: value for name, value in row.items() if not name.endswith("@odata.type")}
        entity |= {"SagaId": uuid.UUID(row["SagaId"]), "Time": due_at, "Destination": destination}
        if row["PartitionKey"].isdecimal():
            entity["PartitionKey"] = f"{due_at:%Y%m%d%H}"
        yield entity


async def put_golden(old, golden, due_at, destination):
    legacy = golden["legacy_azure_table_timeout"]
    await old.states.upload_blob(legacy["blob_name"], base64.b64decode(legacy["blob_content_base64"]))
    for entity in golden_rows(golden, due_at, destination):
        await old.table.create_entity(entity)


async def test_a_timeout_that_dotnet_left_is_found_handed_over_and_removed_wholly(old, golden):
    legacy = golden["legacy_azure_table_timeout"]
    due_at = datetime.fromisoformat(legacy["rows"][0]["Time"])  # long ago
    await put_golden(old, golden, due_at, old.endpoint.settings.own_queue)
    async with serving(old.endpoint):
        handed_over = await old.log.wait(HandedOver)
        delivery = await old.receive(old.endpoint.settings.own_queue)
    assert handed_over.due_at == due_at
    assert delivery.body == base64.b64decode(legacy["blob_content_base64"])
    stored = json.loads(legacy["rows"][2]["Headers"])
    assert delivery.message_id == stored[h.MESSAGE_ID]
    changed = {h.TIME_SENT, h.RELATED_TO_TIMEOUT}
    assert {name: value for name, value in delivery.headers.items() if name not in changed} == {
        name: value for name, value in stored.items() if name not in changed
    }
    assert delivery.headers[h.RELATED_TO_TIMEOUT] == legacy["blob_name"]
    assert h.parse_instant(delivery.headers[h.TIME_SENT]) > due_at
    assert await old.left() == 0


async def test_it_comes_when_it_is_due_and_never_early(old, golden):
    clock = old.endpoint.parts.clock
    due_at = clock.now() + timedelta(seconds=4, microseconds=321)
    await put_golden(old, golden, due_at, old.endpoint.settings.own_queue)
    async with serving(old.endpoint):
        await old.log.wait(HandedOver)
        while await old.left():
            await asyncio.sleep(0.05)
        assert clock.now() < due_at  # the rows are gone before an older instance would look at them
        delivery = await old.receive(old.endpoint.settings.own_queue)
    assert delivery.received_at + timedelta(seconds=clock.uncertainty or 0) >= due_at
    assert delivery.received_at - due_at < 5 * SECOND


def on_the_wire(rows):
    ignored = ("odata.", "Timestamp")
    return [{name: value for name, value in row.items() if not name.startswith(ignored)} for row in rows]


async def test_what_we_store_is_the_golden_layout(old, golden):
    legacy = golden["legacy_azure_table_timeout"]
    first = legacy["rows"][0]
    body = base64.b64decode(legacy["blob_content_base64"])
    one = LegacyTimeout(
        legacy["blob_name"],
        first["Destination"],
        datetime.fromisoformat(first["Time"]),
        json.loads(first["Headers"]),
        body,
        OWNER,
        first["SagaId"],
    )
    await old.timeouts.add(one)
    found = on_the_wire((await old.timeouts._hot.page("", top=10, token=None)).rows)
    wanted = sorted(legacy["rows"], key=lambda row: (row["PartitionKey"], row["RowKey"]))
    for row in (*found, *wanted):
        row["Time"] = datetime.fromisoformat(row["Time"])  # as many digits as the service likes
    assert found == wanted
    blob = await (await old.states.download_blob(legacy["blob_name"])).readall()
    assert blob == body
    assert await old.timeouts.get(one.id) == one


@pytest.mark.parametrize(
    "form", ["envelope_newtonsoft", "envelope_newtonsoft_v7", "envelope_system_text_json"]
)
async def test_what_an_older_instance_puts_off_is_stored_and_comes(old, golden, form):
    content = base64.b64decode(golden[form]["message_text"])
    mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    wrapper = json.loads(content.decode("utf-8-sig"))
    due_at = old.endpoint.parts.clock.now() + timedelta(seconds=4)
    wrapper["Headers"] |= {
        h.TIMEOUT_EXPIRE: h.format_instant(due_at),
        h.TIMEOUT_DESTINATION: old.endpoint.settings.own_queue,
    }
    text = base64.b64encode(mark + json.dumps(wrapper).encode()).decode()
    # Without a lookahead to speak of it is too far ahead to go straight to its queue.
    async with old.plain_queue(old.requests) as queue:
        await queue.send_message(text)
    async with serving(old.endpoint):
        delivery = await old.receive(old.endpoint.settings.own_queue)
    assert delivery.body == base64.b64decode(wrapper["Body"])
    assert delivery.headers[h.MESSAGE_ID] == wrapper["Headers"][h.MESSAGE_ID]
    assert delivery.received_at + timedelta(seconds=old.endpoint.parts.clock.uncertainty or 0) >= due_at


async def test_what_is_far_ahead_goes_into_the_store_and_from_there_to_its_queue(postdate_settings, azurite):
    async with open_old(
        postdate_settings, azurite.connection_string, update={"lookahead": timedelta(0)}
    ) as old:
        own = old.endpoint.settings.own_queue
        due_at = old.endpoint.parts.clock.now() + timedelta(seconds=12)
        message = {
            "Id": "m1",
            "MessageIntent": 1,
            "Headers": {h.TIMEOUT_EXPIRE: h.format_instant(due_at), h.REPLY_TO: own},
            "Body": base64.b64encode(b"later").decode(),
        }
        async with old.plain_queue(old.requests) as queue:
            await queue.send_message(base64.b64encode(json.dumps(message).encode()).decode())
        async with serving(old.endpoint):
            stored = await old.log.wait(TimeoutStored)
            assert await old.left() == 3
            delivery = await old.receive(own)
        assert delivery.body == b"later"
        assert delivery.headers[h.RELATED_TO_TIMEOUT] == stored.timeout_id
        assert delivery.received_at + timedelta(seconds=old.endpoint.parts.clock.uncertainty or 0) >= due_at
        assert delivery.received_at - due_at < 3 * SECOND
        assert await old.left() == 0


async def test_an_undeliverable_one_ends_in_the_error_queue(old, golden):
    due_at = SystemClock().now() - timedelta(days=1)
    await put_golden(old, golden, due_at, f"nowhere-{uuid.uuid4().hex[:8]}")
    async with serving(old.endpoint):
        moved = await old.log.wait(MovedToErrorQueue, within=60)
    assert moved.attempts == 5
    async with old.plain_queue(old.endpoint.settings.error_queue) as queue:
        message = await queue.receive_message()
        failed = unwrap(message.content, message.id).message
    assert failed.headers[h.FAILED_QUEUE] == moved.destination
    assert failed.body == base64.b64decode(golden["legacy_azure_table_timeout"]["blob_content_base64"])
    assert await old.left() == 0


# --- the wire -------------------------------------------------------------------------------------


def timeout(number=1, **more):
    made = LegacyTimeout(
        f"3f0d7f3e-6a1c-4f0b-9a55-{number:012d}",
        "orders",
        datetime.fromisoformat("2026-03-01T07:08:09.987654Z"),
        {"Größe": "XL"},
        b"body",
        OWNER,
        "7c1f3b52-9a40-4c43-8b7e-b3f2007a11c6",
    )
    return replace(made, **more)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("how", ["break_connection", "lose_answer"])
async def test_an_add_that_broke_anywhere_is_completed_by_its_repeat(old, nth, how):
    one = timeout()
    getattr(old.faults.on("*", nth=nth, times=1), how)()
    try:
        await old.timeouts.add(one)
    except OutcomeUnknown:
        await old.timeouts.add(one)
    assert await old.timeouts.get(one.id) == one
    assert await old.left() == 4
    assert await old.timeouts.remove(one.id)
    assert await old.left() == 0


async def test_a_removal_that_never_arrived_is_repeated(old):
    await old.timeouts.add(timeout())
    old.faults.on("table.delete").break_connection()
    assert await old.timeouts.remove(timeout().id) is True
    assert await old.left() == 0


async def test_a_removal_whose_answer_was_lost_is_not_claimed(old):
    await old.timeouts.add(timeout())
    old.faults.on("table.delete").lose_answer()
    with pytest.raises(OutcomeUnknown):
        await old.timeouts.remove(timeout().id)
    assert await old.timeouts.get(timeout().id) is None
    (left,) = [one async for page in old.timeouts.due(timeout().due_at) for one in page]
    assert await old.timeouts.clean_up(left)
    assert await old.left() == 0


async def test_a_removal_that_fails_behind_the_main_row_is_one(old):
    await old.timeouts.add(timeout())
    old.faults.on("table.delete", nth=2, times=99).respond(500, "InternalError")
    assert await old.timeouts.remove(timeout().id) is True
    assert await old.timeouts.remove(timeout().id) is False
    assert await old.timeouts.get(timeout().id) is None


async def test_a_timeout_that_is_removed_between_its_row_and_its_body_is_gone(old, monkeypatch):
    await old.timeouts.add(timeout())
    read = old.timeouts.main_row

    async def then_removed(timeout_id):
        row = await read(timeout_id)
        monkeypatch.setattr(old.timeouts, "main_row", read)
        assert await old.timeouts.remove(timeout_id)
        return row

    monkeypatch.setattr(old.timeouts, "main_row", then_removed)
    assert await old.timeouts.get(timeout().id) is None


async def test_empty_pages_are_not_the_end(old):
    await old.timeouts.add(timeout())
    for everywhere in (False, True):
        old.faults.on("table.query", times=3).empty_page()
        found = [
            one async for page in old.timeouts.due(timeout().due_at, everywhere=everywhere) for one in page
        ]
        assert [one.id for one in found] == [timeout().id]
    old.faults.on("table.query", times=3).empty_page()
    assert await old.timeouts.count() == 1


async def test_a_blob_that_is_gone_makes_the_timeout_unreadable_and_removable(old):
    await old.timeouts.add(timeout())
    await old.states.delete_blob(timeout().id)
    from postdate.errors import PoisonMessage

    with pytest.raises(PoisonMessage, match="there is no blob"):
        await old.timeouts.get(timeout().id)
    assert await old.timeouts.remove(timeout().id) is True
    with pytest.raises(ResourceNotFoundError):
        await old.table.get_entity(timeout().id, "")
    assert await old.left() == 0


@pytest.mark.slow
@pytest.mark.parametrize("legacy", [True, False])
async def test_an_idle_hour_costs_at_most_two_requests_a_minute_over_the_wire(
    postdate_settings, azurite, legacy
):
    clock = FastClock(60.0)
    # A lease that a busy machine does not lose in fast seconds: a new term asks once more.
    update = {"clock_uncertainty_limit": timedelta(minutes=10), "lease_duration": timedelta(minutes=1)}
    async with open_old(postdate_settings, azurite.connection_string, update=update, clock=clock) as old:
        settings, sender = old.endpoint.settings, old.endpoint.parts.backend.sender
        places = (settings.timeout_table, *settings.timeout_queues, settings.timeout_state_container)
        if legacy:
            await old.timeouts.add(replace(timeout(), due_at=clock.now() + timedelta(days=30)))
        else:
            await old.table.delete_table()
            for queue in settings.timeout_queues:
                await sender.delete(queue)

        def asked():
            return [call for call in old.faults.calls if any(place in call.url for place in places)]

        async with serving(old.endpoint):
            began = clock.monotonic()
            while not asked() or clock.monotonic() - began < 90:
                await clock.sleep(10)
            before = len(asked())
            await clock.sleep(21 * 60)
            counted = len(asked()) - before
            terms = len(old.log.of(TermBegan)) - 1
        # Within 21 minutes, 22 rounds at most; or three looks whether there is anything.
        assert 0 < counted <= (2 * 22 if legacy else 2 * 3) + terms


async def test_when_nothing_is_left_it_says_so(old):
    async with serving(old.endpoint):
        told = await old.log.wait(TimeoutManagerDrained)
    assert told.queues == old.endpoint.settings.timeout_queues
