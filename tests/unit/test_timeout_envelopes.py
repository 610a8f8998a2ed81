"""What older instances put into the timeouts queue, in each form that they write: kept and sent as golden data says."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from legacy_cases import MINUTE, open_old_world, put, serving
from test_timeout_idle import HOUR

from postdate.events import HandedOver, TimeoutManagerDrained, TimeoutStored
from postdate.model import headers as h
from postdate.testing.clock import VirtualClock

FORMS = ["envelope_system_text_json", "envelope_newtonsoft", "envelope_newtonsoft_v7", "envelope_xml"]
#: Before the golden timeout is due.
BEFORE = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)


def with_headers(text, headers):
    """The golden envelope with further headers, in its own form."""
    content = base64.b64decode(text)
    mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    words = content.decode("utf-8-sig")
    if words.startswith("<"):
        pair = "NServiceBus.KeyValuePairOfStringAndString"
        more = "".join(f"<{pair}><Key>{k}</Key><Value>{v}</Value></{pair}>" for k, v in headers.items())
        words = words.replace("</Headers>", f"{more}</Headers>")
    else:
        wrapper = json.loads(words)
        wrapper["Headers"] |= headers
        words = json.dumps(wrapper, separators=(",", ":"))
    return base64.b64encode(mark + words.encode()).decode()


@pytest.mark.parametrize("form", FORMS)
async def test_an_envelope_of_any_age_is_kept_until_it_expires_and_sent_where_its_route_says(golden, form):
    asked = golden["timeout_manager_headers"]
    route = {name: asked[name] for name in (h.TIMEOUT_EXPIRE, h.TIMEOUT_DESTINATION)}
    due_at = h.parse_instant(asked[h.TIMEOUT_EXPIRE])
    message = golden["message"]
    written = golden[form].get("headers", message["headers"])
    async with open_old_world(clock=VirtualClock(BEFORE)) as world:
        await world.backend.sender.create(asked[h.TIMEOUT_DESTINATION])
        receipt = await put(world, asked["sent_to_queue"], with_headers(golden[form]["message_text"], route))
        async with serving(world.endpoint):
            await world.clock.advance(MINUTE)
            (kept,) = world.log.of(TimeoutStored)
            assert (kept.timeout_id, kept.due_at) == (receipt.native_id, due_at)
            stored = await world.backend.timeouts.get(receipt.native_id)
            assert stored.destination == asked[h.TIMEOUT_DESTINATION] == "contoso-shipping"
            assert stored.body == base64.b64decode(message["body_base64"])
            assert {name: stored.headers[name] for name in route} == route
            assert world.in_queue(asked["sent_to_queue"]) == []
            await world.clock.advance(due_at - world.clock.now() + timedelta(seconds=1))
        (found,) = world.in_queue("contoso-shipping")
        assert timedelta(0) <= found.visible_at - due_at < timedelta(seconds=1)
        (sent,) = world.opened("contoso-shipping")
        assert (sent.message_id, sent.body) == (message["id"], base64.b64decode(message["body_base64"]))
        (handed_over,) = world.log.of(HandedOver)
        assert sent.headers == {
            **written,
            **route,
            h.TIME_SENT: h.format_instant(handed_over.handed_over_at),
            h.RELATED_TO_TIMEOUT: receipt.native_id,
        }
        assert await world.backend.timeouts.count() == 0


# --- hidden ones ----------------------------------------------------------------------------------


async def hide_golden(world, golden):
    """The golden timeout, its time row as a migration tool leaves it; its place."""
    legacy = golden["legacy_azure_table_timeout"]
    hidden = golden["legacy_migration_to_asq"]["source_time_row_after_hiding"]
    for row in legacy["rows"]:
        plain = {name: value for name, value in row.items() if not name.endswith("@odata.type")}
        plain["Time"] = datetime.fromisoformat(row["Time"])
        if row["PartitionKey"] == hidden["PartitionKey"]:
            plain |= hidden
        world.backend.timeouts.insert_raw(plain)
    world.backend.timeouts.insert_state(legacy["blob_name"], base64.b64decode(legacy["blob_content_base64"]))
    return hidden["PartitionKey"], hidden["RowKey"]


async def test_while_a_migration_tool_hides_one_nobody_is_told_that_nothing_is_left(golden):
    async with open_old_world() as world:
        place = await hide_golden(world, golden)
        assert await world.backend.timeouts.count() == 0
        assert await world.backend.timeouts.hidden() == 1
        async with serving(world.endpoint):
            await world.clock.advance(5 * HOUR)
            assert world.log.of(TimeoutManagerDrained) == []
            # The tool has moved it, and ends.
            rows = world.account.timeouts["TimeoutDataTableName"].rows
            for key in [key for key in rows if place[1] in key]:
                del rows[key]
            await world.clock.advance(HOUR + 2 * MINUTE)
            assert len(world.log.of(TimeoutManagerDrained)) == 1


async def test_one_that_is_given_back_is_handed_over_and_only_then_nothing_is_left(golden):
    async with open_old_world() as world:
        await world.backend.sender.create("contoso-orders")
        place = await hide_golden(world, golden)
        async with serving(world.endpoint):
            await world.clock.advance(HOUR)
            assert world.in_queue("contoso-orders") == []
            rows = world.account.timeouts["TimeoutDataTableName"].rows
            rows[place]["OwningTimeoutManager"] = "Contoso.Orders"
            await world.clock.advance(2 * HOUR)
            assert len(world.in_queue("contoso-orders")) == 1
            assert len(world.log.of(TimeoutManagerDrained)) == 1
