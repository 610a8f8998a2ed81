"""Sharing a table and queues with .NET endpoints: their rows go out in their form, ours can be read by theirs."""

import base64
import json
import uuid
from datetime import timedelta

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.data.tables.aio import TableClient
from azure.storage.blob.aio import ContainerClient
from azure.storage.queue.aio import QueueClient

from postdate import Endpoint
from postdate.clock import SystemClock
from postdate.model.jsontext import read


@pytest.fixture
async def endpoint(postdate_settings):
    async with Endpoint(postdate_settings) as opened:
        yield opened


@pytest.fixture
async def queue(endpoint):
    name = f"shipping-{uuid.uuid4().hex[:8]}"
    await endpoint.setup(name)
    return name


async def test_a_row_inserted_by_the_plain_sdk_is_delivered_in_the_golden_envelope(
    endpoint, queue, azurite, golden
):
    second = SystemClock().now() - timedelta(seconds=2)
    keys = f"{second:%Y%m%d%H%M%S}"
    row = {
        "PartitionKey": keys[:10],
        "RowKey": f"{keys}_{uuid.uuid4().hex}",
        "Destination": queue,
        "Body": base64.b64decode(golden["table_row"]["entity"]["Body"]),
        "MessageId": golden["table_row"]["entity"]["MessageId"],
        "Headers": golden["table_row"]["entity"]["Headers"],
    }
    async with TableClient.from_connection_string(
        azurite.connection_string, endpoint.settings.table_name
    ) as table:
        await table.create_entity(row)
        assert (await endpoint.deliver_due()).handed_over == 1
        assert [e async for e in table.list_entities()] == []
    async with QueueClient.from_connection_string(azurite.connection_string, queue) as plain:
        message = await plain.receive_message()
        assert message.content == golden["envelope_system_text_json"]["message_text"]


async def test_a_row_that_we_write_is_read_by_the_rules_of_dotnet(endpoint, queue, azurite):
    at = SystemClock().now() + timedelta(hours=2)
    await endpoint.schedule(queue, b"\x00body", at=at, message_id="id-1", headers={"Größe": None})
    async with TableClient.from_connection_string(
        azurite.connection_string, endpoint.settings.table_name
    ) as table:
        (entity,) = [e async for e in table.list_entities()]
    second = f"{at:%Y%m%d%H%M%S}"
    assert entity["PartitionKey"] == second[:10]
    assert entity["RowKey"].startswith(f"{second}_")
    # .NET selects `RowKey le now` by text: not in the row's second, but in the next.
    assert not entity["RowKey"] <= second
    assert entity["RowKey"] <= f"{at + timedelta(seconds=1):%Y%m%d%H%M%S}"
    assert entity["Destination"] == queue
    assert entity["Body"] == b"\x00body"
    assert entity["MessageId"] == "id-1"
    headers = json.loads(entity["Headers"])
    assert headers["Größe"] is None
    assert all(value is None or isinstance(value, str) for value in headers.values())
    assert entity["Headers"].isascii()  # as System.Text.Json escapes
    assert read(entity["Headers"]) == headers


async def test_a_lease_held_by_a_dotnet_endpoint_keeps_us_from_delivering(endpoint, queue, azurite):
    await endpoint.schedule(queue, "x", delay=3600)
    async with ContainerClient.from_connection_string(
        azurite.connection_string, endpoint.settings.table_name
    ) as container:
        lease = await container.acquire_lease(lease_duration=15)
        assert (await endpoint.deliver_due()).led is False
        await lease.release()
        assert (await endpoint.deliver_due()).led is True
        # And ours keeps them out: the container's own lease, as .NET takes it.
        async with Endpoint(endpoint.settings) as other:
            assert await other.parts.backend.lease.acquire("us", 15, 0.0)
            with pytest.raises(ResourceExistsError):
                await container.acquire_lease(lease_duration=15)
            await other.parts.backend.lease.release()
