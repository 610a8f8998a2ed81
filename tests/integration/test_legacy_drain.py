"""Draining a timeout store on Azurite: rows as .NET wrote them, beside an older manager, and back."""

import asyncio
import base64
import json
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.data.tables.aio import TableClient
from azure.storage.blob.aio import ContainerClient
from azure_cases import connection_of

from postdate import Endpoint
from postdate.backends.azure_storage.clients import API_VERSION
from postdate.legacy.ground import Selection
from postdate.legacy.undo_file import UndoFile
from postdate.model import headers as h
from postdate.model.envelope import unwrap
from postdate.model.legacy_timeout import LegacyTimeout

ALL = Selection(margin=timedelta(0))
DAY = timedelta(days=1)


@dataclass
class Ground:
    """An endpoint with a timeout store of its own, and the store as any other program sees it."""

    endpoint: Endpoint
    table: TableClient
    states: ContainerClient
    delays: TableClient

    @property
    def timeouts(self) -> Any:
        return self.endpoint.parts.backend.timeouts

    async def legacy_rows(self) -> list[dict[str, Any]]:
        return sorted(
            [dict(row) async for row in self.table.list_entities()],
            key=lambda row: (row["PartitionKey"], row["RowKey"]),
        )

    async def legacy_states(self) -> list[str]:
        return [blob.name async for blob in self.states.list_blobs()]

    async def waiting(self) -> list[str]:
        return [str(message.message_id) async for message in self.endpoint.upcoming()]

    async def drain(self, path, selection=None):
        with self.file(path) as file:
            return await self.endpoint.parts.migration.drain(selection or Selection(), file)

    async def undo(self, path):
        with self.file(path) as file:
            return await self.endpoint.parts.migration.undo(file)

    def file(self, path) -> UndoFile:
        settings = self.endpoint.settings
        return UndoFile(path, endpoint=settings.endpoint, table=settings.table_name)

    async def put(self, number: int, due_at: datetime, **more: Any) -> LegacyTimeout:
        timeout = LegacyTimeout(
            id=str(uuid.uuid4()),
            destination="contoso-orders",
            due_at=due_at,
            headers={h.MESSAGE_ID: f"m{number:05d}", h.TIMEOUT_EXPIRE: h.format_instant(due_at)},
            body=b"x" * number,
            owner=self.endpoint.settings.endpoint,
            saga_id=str(uuid.uuid4()) if number % 3 else None,
            **more,
        )
        await self.timeouts.add(timeout)
        return timeout


@asynccontextmanager
async def ground_for(settings):
    name = f"T{uuid.uuid4().hex[:12]}"
    settings = settings.model_copy(
        update={
            "endpoint": "Contoso.Orders",
            "delays_table": f"delays{name}".lower(),
            "timeout_table": name,
            "timeout_manager_table": f"M{name}",
            "timeout_state_container": name.lower(),
        }
    )
    connection = connection_of(settings)
    async with (
        Endpoint(settings) as endpoint,
        TableClient.from_connection_string(connection, name) as table,
        TableClient.from_connection_string(connection, settings.table_name) as delays,
        ContainerClient.from_connection_string(
            connection, settings.timeout_state_container, api_version=API_VERSION
        ) as states,
    ):
        await endpoint.setup("contoso-orders")
        await endpoint.parts.backend.timeouts.create()
        yield Ground(endpoint, table, states, delays)


@pytest.fixture
async def ground(postdate_settings):
    async with ground_for(postdate_settings) as found:
        yield found


def entity(row: dict[str, Any]) -> dict[str, Any]:
    """A golden row as the SDK takes it."""
    kinds = {"Edm.Guid": uuid.UUID, "Edm.DateTime": datetime.fromisoformat}
    return {
        name: kinds[row[f"{name}@odata.type"]](value) if f"{name}@odata.type" in row else value
        for name, value in row.items()
        if not name.endswith("@odata.type")
    }


async def put_golden(ground: Ground, legacy: dict[str, Any]) -> None:
    for row in legacy["rows"]:
        await ground.table.create_entity(entity(row))
    await ground.states.upload_blob(legacy["blob_name"], base64.b64decode(legacy["blob_content_base64"]))


async def test_golden_rows_become_a_row_of_ours_and_are_gone(golden, ground, tmp_path):
    legacy = golden["legacy_azure_table_timeout"]
    await put_golden(ground, legacy)
    headers = json.loads(legacy["rows"][0]["Headers"])
    done = await ground.drain(tmp_path / "undo", ALL)
    assert (done.moved.count, done.verified.ok, done.refused) == (1, True, [])
    assert (await ground.legacy_rows(), await ground.legacy_states()) == ([], [])
    (row,) = [dict(row) async for row in ground.delays.list_entities()]
    final = golden["legacy_migration_to_asq"]["final_row"]
    assert row["PartitionKey"] == final["PartitionKey"]
    assert row["RowKey"].startswith("20260301070809_987654_")
    assert row["Destination"] == final["Destination"]
    assert row["Body"] == base64.b64decode(final["Body"])
    assert row["MessageId"] == headers[h.MESSAGE_ID]
    kept = {name: value for name, value in headers.items() if not name.startswith("NServiceBus.Timeout.")}
    assert json.loads(row["Headers"]) == kept
    assert row["DueTime"] == datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)


async def test_a_golden_timeout_is_delivered_from_its_row_once(golden, ground, tmp_path):
    legacy = golden["legacy_azure_table_timeout"]
    await put_golden(ground, legacy)
    await ground.drain(tmp_path / "undo", ALL)
    result = await ground.endpoint.deliver_due()
    assert result.led
    receiver = ground.endpoint.parts.backend.receiver
    (received,) = await receiver.receive("contoso-orders", count=32, visibility_s=30)
    message = unwrap(received.text, received.native_id).message
    assert message.message_id == json.loads(legacy["rows"][0]["Headers"])[h.MESSAGE_ID]
    assert message.body == base64.b64decode(legacy["blob_content_base64"])
    assert (await ground.waiting(), await ground.legacy_rows()) == ([], [])


async def test_a_golden_timeout_that_a_tool_has_hidden_is_seen_and_left_alone(golden, ground, tmp_path):
    legacy, hidden = golden["legacy_azure_table_timeout"], golden["legacy_migration_to_asq"]
    await put_golden(ground, legacy)
    mark = hidden["source_time_row_after_hiding"]
    await ground.table.update_entity(mark)
    before = await ground.legacy_rows()
    found = await ground.endpoint.parts.migration.look()
    assert (found.waiting.count, found.hidden, found.can_be_switched_off) == (0, 1, False)
    assert (await ground.drain(tmp_path / "undo", ALL)).moved.count == 0
    assert await ground.legacy_rows() == before


async def test_undo_restores_every_row_and_body(ground, tmp_path):
    due_at = datetime(2031, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    for number in range(20):
        await ground.put(number, due_at + number * timedelta(minutes=7))
    rows, states = await ground.legacy_rows(), await ground.legacy_states()
    assert (await ground.drain(tmp_path / "undo")).verified.ok
    assert await ground.legacy_rows() == []
    done = await ground.undo(tmp_path / "undo")
    assert (done.back, done.doubtful) == (20, [])
    assert (await ground.legacy_rows(), await ground.legacy_states()) == (rows, states)
    assert await ground.waiting() == []


async def test_beside_an_older_manager_each_timeout_is_in_one_place(ground, tmp_path):
    now = ground.endpoint.parts.clock.now()
    timeouts = [await ground.put(n, now + (n - 30) * timedelta(seconds=20)) for n in range(150)]
    released: list[str] = []
    stop = asyncio.Event()

    async def older_manager() -> None:
        while not stop.is_set():
            async for page in ground.timeouts.due(datetime.now(UTC)):  # noqa: TID251 - by its host's clock
                for due in page:
                    found = await ground.timeouts.get(due.id)
                    if found is not None:
                        released.append(found.headers[h.MESSAGE_ID])
                        await ground.timeouts.remove(due.id)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(older_manager())
        done = await ground.drain(tmp_path / "undo")
        stop.set()
    left = [one.headers[h.MESSAGE_ID] async for one in ground.timeouts.all()]
    everywhere = [*released, *await ground.waiting(), *left]
    assert sorted(everywhere) == sorted(one.headers[h.MESSAGE_ID] for one in timeouts)
    assert (done.doubtful, done.verified.ok) == ([], True)
    assert len(released) >= 30
    assert done.moved.count > 50


async def test_two_drains_at_once_move_each_timeout_once(postdate_settings, ground, tmp_path):
    due_at = datetime(2031, 1, 1, tzinfo=UTC)
    timeouts = [await ground.put(n, due_at + n * timedelta(minutes=1)) for n in range(120)]
    async with Endpoint(ground.endpoint.settings) as other:
        second = Ground(other, ground.table, ground.states, ground.delays)
        done = await asyncio.gather(ground.drain(tmp_path / "a"), second.drain(tmp_path / "b"))
    assert await ground.waiting() == [one.headers[h.MESSAGE_ID] for one in timeouts]
    assert await ground.legacy_rows() == []
    assert all(each.verified.ok for each in done)
    sure = sum(each.moved.count - len(each.doubtful) for each in done)
    assert sure == len(timeouts)


async def test_a_large_body_goes_to_a_blob_and_comes_back(ground, tmp_path):
    timeout = await ground.put(60_000, datetime(2031, 1, 1, tzinfo=UTC))
    done = await ground.drain(tmp_path / "undo")
    assert done.verified.ok
    (row,) = [dict(row) async for row in ground.delays.list_entities()]
    assert "Body" not in row
    assert await ground.endpoint.parts.backend.payloads.get(row["BodyBlob"]) == timeout.body
    await ground.undo(tmp_path / "undo")
    assert await ground.timeouts.get(timeout.id) == timeout
