"""Rows as .NET endpoints write them, by the golden file: read, and written so that .NET reads them."""

import base64
from datetime import UTC, datetime

import pytest

from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage, DelayedRow
from postdate.model.durations import due_after
from postdate.model.envelope import unwrap, wrap
from postdate.model.jsontext import read, write_map
from postdate.model.message import Message
from postdate.model.rowcodec import decode_row, encode_row, headers_of

KNOWN = ("Destination", "Body", "MessageId", "Headers")


def properties(entity):
    """An entity on the wire as the SDK hands it out."""
    plain = {name: value for name, value in entity.items() if not name.endswith("@odata.type")}
    return {**plain, "Body": base64.b64decode(entity["Body"])}


def through_row_and_queue(headers):
    """Headers as a consumer sees them, after our row and our envelope."""
    message = Message("id-1", headers, b"{}")
    due_at = datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)
    row = decode_row(encode_row(DelayedMessage(message, "contoso-shipping", due_at)), "etag")
    assert isinstance(row, DelayedRow)
    assert row.delayed.message == message
    return unwrap(wrap(row.delayed.message), "native").message.headers


@pytest.mark.parametrize("style", ["system_text_json", "simple_json", "newtonsoft"])
def test_headers_are_read_in_the_style_of_every_writer(golden, style):
    parsed = headers_of(read(golden["headers_json"][style]), "headers")
    assert parsed == golden["message"]["headers"]
    assert list(parsed) == list(golden["message"]["headers"])


def test_headers_are_written_as_system_text_json_does_to_the_letter(golden):
    assert write_map(golden["message"]["headers"]) == golden["headers_json"]["system_text_json"]


def test_a_row_of_dotnet_is_a_delayed_message(golden):
    entity = golden["table_row"]["entity"]
    row = decode_row(properties(entity), "etag-1")
    assert isinstance(row, DelayedRow)
    assert (row.key.partition, row.key.row) == (entity["PartitionKey"], entity["RowKey"])
    assert row.etag == "etag-1"
    expected = golden["message"]
    assert row.delayed.message.message_id == expected["id"]
    assert row.delayed.message.headers == expected["headers"]
    assert row.delayed.message.body == base64.b64decode(expected["body_base64"])
    assert row.delayed.message.body.decode() == expected["body_utf8"]
    assert row.delayed.destination == expected["destination"]
    assert row.delayed.due_at == datetime(2026, 3, 1, 7, 8, 10, tzinfo=UTC)
    assert row.delayed.scheduled_at is None
    assert row.delayed.failure_count == 0
    assert row.delayed.next_attempt_at is None
    assert row.delayed.payload_ref is None


def test_a_row_of_dotnet_written_again_has_the_same_columns(golden):
    before = properties(golden["table_row"]["entity"])
    row = decode_row(before, "etag")
    assert isinstance(row, DelayedRow)
    after = encode_row(row.delayed)
    assert {name: after[name] for name in KNOWN} == {name: before[name] for name in KNOWN}
    assert after["PartitionKey"] == before["PartitionKey"]
    # Only the row key differs: .NET cut the due time to its second, so it is due when that is over.
    assert str(after["RowKey"]).startswith("20260301070810_000000_")


def test_our_columns_have_the_types_that_dotnet_expects(golden):
    types = {"Edm.String": str, "Edm.Binary": bytes}
    row = encode_row(
        DelayedMessage(Message("id", {}, b"x"), "contoso-shipping", datetime(2026, 3, 1, tzinfo=UTC))
    )
    for name, edm in golden["table_row"]["edm_types"].items():
        assert type(row[name]) is types[edm], name


def test_saga_headers_pass_through_untouched(golden):
    saga = golden["saga_timeout_headers"]
    seen = through_row_and_queue(saga)
    assert {name: seen[name] for name in saga} == saga
    assert parse(seen[h.DELIVER_AT]) == datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)


def test_headers_of_a_delayed_retry_pass_through_untouched(golden):
    now = datetime(2026, 3, 1, 7, 0, tzinfo=UTC)
    for case in golden["delayed_retry"]:
        seen = through_row_and_queue({h.RETRIES: case[f"header {h.RETRIES}"]})
        assert seen[h.RETRIES] == str(case["attempt"])
        assert (due_after(case["delay_seconds"], now) - now).total_seconds() == 10 * case["attempt"]


def test_headers_of_the_timeout_manager_pass_through_untouched(golden):
    manager = golden["timeout_manager_headers"]
    stored = {name: value for name, value in manager.items() if name.startswith("NServiceBus.")}
    seen = through_row_and_queue(stored)
    assert {name: seen[name] for name in stored} == stored
    assert parse(seen["NServiceBus.Timeout.Expire"]) == datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)
    control = manager["dispatch_request_headers"]
    seen = through_row_and_queue(control)
    assert {name: seen[name] for name in control} == control


def test_a_row_that_the_migration_tool_wrote_is_read(golden):
    final = golden["legacy_migration_to_asq"]["final_row"]
    row = decode_row(properties(final), "etag")
    assert isinstance(row, DelayedRow)
    # The suffix is a dashed GUID, not our form: due when the second is over.
    assert row.delayed.due_at == datetime(2026, 3, 1, 7, 8, 10, tzinfo=UTC)
    assert row.delayed.message.message_id == final["MessageId"]
    assert row.delayed.message.headers[h.MESSAGE_ID] == golden["message"]["id"]
    assert "NServiceBus.Timeout.Expire" in row.delayed.message.headers


def test_headers_of_legacy_timeout_stores_are_read(golden):
    for row in golden["legacy_azure_table_timeout"]["rows"]:
        headers = headers_of(read(row["Headers"]), "headers")
        assert parse(headers["NServiceBus.Timeout.Expire"]) == datetime.fromisoformat(row["Time"])
    indented = golden["legacy_sql_timeout"]["headers_column_example_windows_newlines"]
    assert headers_of(read(indented), "headers") == {
        h.MESSAGE_ID: golden["message"]["id"],
        h.MESSAGE_INTENT: "Send",
    }


def parse(wire: str | None) -> datetime:
    assert wire is not None
    return h.parse_instant(wire)
