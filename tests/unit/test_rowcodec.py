"""Rows: what is written is read back, and nothing that stands in a table makes the reader raise."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import due_times, examples, messages, names, texts

from postdate.errors import PoisonMessage
from postdate.model.delayed import DelayedMessage, DelayedRow, UnreadableRow
from postdate.model.keys import RowKey
from postdate.model.message import Message
from postdate.model.rowcodec import decode_row, encode_row, headers_of

DUE = datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)
GOOD = {
    "PartitionKey": "2026030107",
    "RowKey": "20260301070809_" + "a" * 32,
    "Destination": "orders",
    "Body": b"x",
    "MessageId": "id",
    "Headers": '{"a":"b","n":null}',
}

delayed_messages = st.builds(
    DelayedMessage,
    message=messages,
    destination=names,
    due_at=due_times,
    scheduled_at=st.none() | due_times,
    failure_count=st.integers(0, 2**31 - 1),
    next_attempt_at=st.none() | due_times,
)


@given(delayed_messages)
@examples(40)
def test_a_row_is_read_back_as_it_was_written(delayed):
    row = decode_row(encode_row(delayed), "etag-7")
    assert row == DelayedRow(delayed.key, "etag-7", delayed)


@given(delayed_messages, names)
@examples(20)
def test_a_row_whose_body_lies_in_a_blob_has_no_body(delayed, blob):
    parked = DelayedMessage(
        Message(delayed.message.message_id, delayed.message.headers),
        delayed.destination,
        delayed.due_at,
        payload_ref=blob,
    )
    properties = encode_row(parked)
    assert "Body" not in properties
    assert decode_row(properties, "etag") == DelayedRow(parked.key, "etag", parked)


def test_what_is_not_known_is_left_out_so_that_absent_means_default():
    row = encode_row(DelayedMessage(Message("id", {}, b""), "orders", DUE))
    assert set(row) == {"PartitionKey", "RowKey", "Destination", "Body", "MessageId", "Headers", "DueTime"}
    assert None not in row.values()


def test_times_are_written_in_utc():
    zone = timezone(timedelta(hours=-3))
    local = DUE.astimezone(zone)
    delayed = DelayedMessage(Message("id", {}), "orders", local, scheduled_at=local, next_attempt_at=local)
    row = encode_row(delayed)
    for column in ("DueTime", "ScheduledTime", "NextAttemptTime"):
        value = row[column]
        assert isinstance(value, datetime)
        assert value == DUE
        assert value.tzinfo is UTC


class StoredTime(datetime):
    """As the SDK hands times out: a subclass."""


def test_times_come_back_as_plain_datetimes():
    stored = StoredTime(2026, 3, 1, 7, 8, 9, 5, tzinfo=UTC)
    row = decode_row({**GOOD, "DueTime": stored}, "etag")
    assert isinstance(row, DelayedRow)
    assert row.delayed.due_at == stored
    assert type(row.delayed.due_at) is datetime


def test_a_time_without_a_zone_is_utc():
    row = decode_row({**GOOD, "DueTime": DUE.replace(tzinfo=None)}, "etag")
    assert row.due_at == DUE if isinstance(row, UnreadableRow) else row.delayed.due_at == DUE


def test_a_time_that_no_zone_can_reach_counts_as_absent():
    beyond = datetime.max.replace(tzinfo=timezone(timedelta(hours=-3)))
    row = decode_row({**GOOD, "DueTime": beyond, "NextAttemptTime": beyond}, "etag")
    assert isinstance(row, DelayedRow)
    assert row.delayed.due_at == datetime(2026, 3, 1, 7, 8, 10, tzinfo=UTC)
    assert row.delayed.next_attempt_at is None


def test_a_body_that_is_absent_is_empty():
    row = decode_row({name: value for name, value in GOOD.items() if name != "Body"}, "etag")
    assert isinstance(row, DelayedRow)
    assert row.delayed.message == Message("id", {"a": "b", "n": None}, b"")


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("Headers", None, "column Headers holds NoneType, not JSON text"),
        ("Headers", b"{}", "column Headers holds bytes, not JSON text"),
        ("Headers", "{", "column Headers is not JSON"),
        ("Headers", "null", "column Headers is not a JSON object"),
        ("Headers", "[]", "column Headers is not a JSON object"),
        ("Headers", '{"a":{}}', "column Headers: 'a' is dict, not text"),
        ("Headers", '{"a\\nb":1}', "is int, not text"),
        ("Headers", "[" * 100_000, "column Headers is not JSON"),
        ("MessageId", None, "column MessageId holds NoneType, not text"),
        ("MessageId", "", "column MessageId holds str, not text"),
        ("MessageId", 5, "column MessageId holds int, not text"),
        ("Destination", None, "column Destination holds NoneType, not text"),
        ("Body", "text", "column Body holds str, not bytes"),
    ],
)
def test_a_broken_row_is_unreadable_and_says_why(column, value, why):
    row = decode_row({**GOOD, column: value}, "etag-1")
    assert isinstance(row, UnreadableRow)
    assert why in row.reason
    assert "\n" not in row.reason
    assert row.key == RowKey(GOOD["PartitionKey"], GOOD["RowKey"])
    assert row.etag == "etag-1"
    assert row.properties[column] == value
    assert row.due_at == datetime(2026, 3, 1, 7, 8, 10, tzinfo=UTC)


def test_a_broken_row_keeps_its_attempts():
    properties = {**GOOD, "Headers": "", "FailureCount": 4, "NextAttemptTime": DUE}
    row = decode_row(properties, "etag")
    assert isinstance(row, UnreadableRow)
    assert (row.failure_count, row.next_attempt_at) == (4, DUE)


def test_a_key_without_a_due_time_is_unreadable_unless_the_column_has_one():
    strange = {**GOOD, "RowKey": "leader"}
    row = decode_row(strange, "etag")
    assert isinstance(row, UnreadableRow)
    assert row.reason == "row key 'leader' holds no due time"
    assert row.due_at is None
    assert isinstance(decode_row({**strange, "DueTime": DUE}, "etag"), DelayedRow)


@pytest.mark.parametrize(("stored", "read"), [(3, 3), (True, 0), ("3", 0), (-1, 0), (None, 0), (2.0, 0)])
def test_a_failure_count_that_is_no_count_is_none(stored, read):
    row = decode_row({**GOOD, "FailureCount": stored, "BodyBlob": ""}, "etag")
    assert isinstance(row, DelayedRow)
    assert row.delayed.failure_count == read
    assert row.delayed.payload_ref is None


values = (
    st.none()
    | texts
    | st.binary(max_size=9)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.datetimes(timezones=st.none() | st.just(UTC))
)


@given(
    st.fixed_dictionaries(
        {"PartitionKey": texts, "RowKey": texts},
        optional={
            name: values
            for name in [*GOOD, "DueTime", "FailureCount", "NextAttemptTime", "BodyBlob", "ScheduledTime"]
            if not name.endswith("Key")
        },
    )
)
@examples(50)
def test_whatever_stands_in_a_row_the_reader_does_not_raise(properties):
    row = decode_row(properties, "etag")
    assert row.key == RowKey(properties["PartitionKey"], properties["RowKey"])


def test_a_surprise_in_headers_names_where_it_was_found():
    with pytest.raises(PoisonMessage, match="envelope member Headers is not a JSON object"):
        headers_of(None, "envelope member Headers")
