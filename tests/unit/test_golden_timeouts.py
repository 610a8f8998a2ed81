"""Timeouts as older endpoints keep them, by the golden file: read, and written to the letter."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from legacy_cases import SAGA, timeout
from unit_cases import bodies, due_times, examples, header_maps, names

from postdate.errors import PoisonMessage
from postdate.model import headers as h
from postdate.model.date_patterns import partition_scope
from postdate.model.jsontext import read, write_newtonsoft_map
from postdate.model.legacy_rows import (
    decode_or_tell,
    decode_timeout,
    due_of,
    encode_timeout,
    is_time_row,
    rest_keys,
    saga_key,
    state_address,
)
from postdate.model.legacy_timeout import LegacyTimeout, UnreadableTimeout

SCOPE = partition_scope("yyyyMMddHH")
GUIDS = st.uuids().filter(lambda guid: guid.int).map(str)


@pytest.fixture
def legacy(golden):
    return golden["legacy_azure_table_timeout"]


def typed(row):
    """A row on the wire as our codec has it."""
    read_as = {"Edm.Guid": UUID, "Edm.DateTime": datetime.fromisoformat}
    plain = {name: value for name, value in row.items() if not name.endswith("@odata.type")}
    for name, value in plain.items():
        if f"{name}@odata.type" in row:
            plain[name] = read_as[row[f"{name}@odata.type"]](value)
    return plain


def test_every_row_of_the_golden_timeout_tells_all_of_it(legacy):
    for row in map(typed, legacy["rows"]):
        found = decode_timeout(row)
        assert found.id == legacy["blob_name"] == state_address(row)
        assert found.destination == "contoso-orders"
        assert found.due_at == datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)
        assert found.owner == "Contoso.Orders"
        assert found.saga_id == SAGA == found.headers[h.SAGA_ID]
        assert h.parse_instant(found.headers[h.TIMEOUT_EXPIRE] or "") == found.due_at


def test_what_we_write_is_what_older_endpoints_write_to_the_letter(legacy):
    golden_rows = [typed(row) for row in legacy["rows"]]
    rows = encode_timeout(decode_timeout(golden_rows[2]), SCOPE)
    assert [rows.time, rows.saga, rows.main] == golden_rows
    assert [list(row) for row in (rows.time, rows.saga, rows.main)] == [list(row) for row in golden_rows]


def test_each_row_is_told_from_the_others_whatever_the_calendar(legacy):
    time, saga, main = map(typed, legacy["rows"])
    assert [is_time_row(row) for row in (time, saga, main)] == [True, False, False]
    assert is_time_row({**time, "PartitionKey": "2569030107"})
    assert not is_time_row({**saga, "PartitionKey": str(saga["PartitionKey"]).upper()})
    (due,) = [due_of(time)]
    assert due is not None
    assert (due.id, due.partition, due.due_at) == (main["PartitionKey"], time["PartitionKey"], time["Time"])
    assert due_of(saga) is None
    keys = [(key.partition, key.row) for key in rest_keys(main, SCOPE)]
    assert keys == [(row["PartitionKey"], row["RowKey"]) for row in (saga, time)]


def test_headers_are_written_as_newtonsoft_does(golden):
    assert write_newtonsoft_map(golden["message"]["headers"]) == golden["headers_json"]["newtonsoft"]
    assert write_newtonsoft_map({"é\x85\u2028\u2029\x1f\x7f": None}) == (
        '{"é\\u0085\\u2028\\u2029\\u001f\x7f":null}'
    )


@examples(200)
@given(st.builds(LegacyTimeout, GUIDS, names, due_times, header_maps, bodies, names, st.none() | GUIDS))
def test_any_timeout_comes_back_from_each_of_its_rows(one):
    rows = encode_timeout(one, SCOPE)
    assert (rows.saga is None) is (one.saga_id is None)
    for row in (rows.time, rows.main, rows.saga or rows.main):
        assert decode_timeout(row) == replace(one, body=b"")
        assert read(str(row["Headers"])) == one.headers


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("Destination", 7, "column Destination holds int, not text"),
        ("Destination", "", "column Destination holds str, not text"),
        ("Headers", None, "column Headers holds NoneType, not JSON text"),
        ("Headers", '{"a": 1}', "'a' is int, not text"),
        ("Headers", "{", "column Headers is not JSON"),
        ("Time", "soon", "column Time holds no time"),
        ("Time", None, "column Time holds no time"),
    ],
)
def test_a_column_of_the_wrong_type_is_told(column, value, why):
    row = {**encode_timeout(timeout(), SCOPE).main, column: value}
    with pytest.raises(PoisonMessage, match=why):
        decode_timeout(row)
    told = decode_or_tell(row)
    assert isinstance(told, UnreadableTimeout)
    assert told.id == timeout().id


@pytest.mark.parametrize("column", ["SagaId", "OwningTimeoutManager", "StateAddress"])
def test_what_nobody_needs_may_be_of_any_type(column):
    row = {**encode_timeout(timeout(saga_id=SAGA), SCOPE).main, column: 1.5}
    assert decode_timeout(row).destination == "orders"
    assert state_address({**row, "StateAddress": None}) is None


@pytest.mark.parametrize("text", [SAGA.upper(), "{" + SAGA + "}", SAGA.replace("-", "")])
def test_a_saga_id_is_one_however_it_is_written(text):
    assert saga_key(text) == SAGA


@pytest.mark.parametrize("text", [None, "", "00000000-0000-0000-0000-000000000000", "saga"])
def test_an_empty_saga_id_is_refused(text):
    with pytest.raises(PoisonMessage, match="empty or not a GUID"):
        saga_key(text)
