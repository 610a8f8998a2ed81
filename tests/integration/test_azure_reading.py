"""Rows read from a table: pages that Azure would send and Azurite doesn't, and rows that others wrote."""

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.data.tables import EdmType, EntityProperty
from azure_cases import DUE, HOUR, SECOND, Rig, delayed, ids, rig_for

from postdate.errors import NotProvisioned, StorageUnreachable
from postdate.model.delayed import DelayedMessage, DelayedRow, UnreadableRow
from postdate.model.limits import PAGE_ROWS
from postdate.model.message import Message


@pytest.fixture
async def rig(postdate_settings) -> AsyncIterator[Rig]:
    async with rig_for(postdate_settings) as made:
        yield made


async def due_ids(rig: Rig, until: datetime) -> list[str]:
    return [name async for page in rig.backend.store.due(until) for name in ids(page)]


async def test_an_empty_page_is_not_the_end(rig):
    # fact 16: Azurite never sends one
    await rig.add(3)
    rig.faults.on("table.query").empty_page()
    assert await due_ids(rig, DUE + HOUR) == ["m00000", "m00001", "m00002"]
    assert rig.faults.count("table.query") == 3  # one by rig.add, the empty one, the real one


async def test_an_empty_page_between_two_full_ones_hides_no_row(rig):
    count = PAGE_ROWS + 1
    await rig.backend.store.add([delayed(n, DUE + n * SECOND) for n in range(count)])
    rig.faults.on("table.query", nth=2, times=3).empty_page()
    sizes = [len(page) async for page in rig.backend.store.due(DUE + count * SECOND)]
    assert sizes == [PAGE_ROWS, 0, 0, 0, 1]


async def test_two_thousand_empty_pages_in_a_row_are_read_through(rig):
    # fact 16: the SDK's item iteration gives up after some 480
    await rig.add(1)
    empty = rig.faults.on("table.query", times=2000).empty_page()
    assert await due_ids(rig, DUE) == ["m00000"]
    assert empty.hits == 2000


async def test_the_next_due_time_and_the_upcoming_rows_follow_empty_pages_too(rig):
    rows = await rig.add(2)
    rig.faults.on("table.query", times=5).empty_page()
    assert await rig.backend.store.next_due() == DUE
    rig.faults.on("table.query", times=5).empty_page()
    assert await rig.rows() == rows


async def test_an_empty_table_that_only_sends_empty_pages_has_no_next_due_time(rig):
    rig.faults.on("table.query", times=3).empty_page()
    assert await rig.backend.store.next_due() is None


async def test_a_page_is_tried_again_where_the_service_is_busy_or_silent(rig):
    await rig.add(1)
    rig.faults.on("table.query").respond(503, "ServerBusy")
    assert await due_ids(rig, DUE) == ["m00000"]
    rig.faults.on("table.query").break_connection()
    assert await due_ids(rig, DUE) == ["m00000"]


async def test_a_page_whose_answer_never_comes_leaves_nothing_unknown(rig):
    rig.faults.on("table.query", times=9).time_out()
    with pytest.raises(StorageUnreachable, match="broke off or took too long"):
        await due_ids(rig, DUE)


async def test_a_table_that_vanished_is_told_by_reads(rig):
    await rig.plain.delete_table()
    with pytest.raises(NotProvisioned, match="postdate setup"):
        await rig.backend.store.get(delayed().key)
    with pytest.raises(NotProvisioned, match="postdate setup"):
        await rig.rows()


async def test_a_row_of_a_dotnet_endpoint_is_read_as_it_was_written(rig, golden):
    entity = golden["table_row"]["entity"]
    plain = {name: value for name, value in entity.items() if not name.endswith("@odata.type")}
    await rig.plain.create_entity({**plain, "Body": base64.b64decode(entity["Body"])})
    (row,) = await rig.rows()
    expected = golden["message"]
    assert row.delayed.message.message_id == expected["id"]
    assert row.delayed.message.headers == expected["headers"]
    assert row.delayed.message.body == base64.b64decode(expected["body_base64"])
    assert row.delayed.destination == expected["destination"]
    assert row.delayed.due_at == datetime(2026, 3, 1, 7, 8, 10, tzinfo=UTC)
    assert await rig.backend.store.remove([row]) == [True]


async def test_a_row_of_ours_has_the_columns_and_types_that_dotnet_reads(rig, golden):
    expected = golden["message"]
    message = Message(expected["id"], expected["headers"], base64.b64decode(expected["body_base64"]))
    await rig.backend.store.add([DelayedMessage(message, expected["destination"], DUE)])
    (entity,) = [entity async for entity in rig.plain.list_entities()]
    for name, edm_type in golden["table_row"]["edm_types"].items():
        assert type(entity[name]) is {"Edm.String": str, "Edm.Binary": bytes}[edm_type]
    assert entity["Headers"] == golden["table_row"]["entity"]["Headers"]


async def test_columns_of_unknown_kinds_are_no_obstacle(rig):
    await rig.plain.create_entity(
        {
            "PartitionKey": "2026030112",
            "RowKey": "20260301123000_0d6f2c6e4b8a4d3f9a5b7c1e2f304152",
            "Destination": "orders",
            "MessageId": "m",
            "Headers": "{}",
            "Large": EntityProperty(2**40, EdmType.INT64),
            "Ratio": 0.5,
            "Id": EntityProperty("0d6f2c6e-4b8a-4d3f-9a5b-7c1e2f304152", EdmType.GUID),
            "When": datetime(2020, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
        }
    )
    (row,) = await rig.rows()
    assert isinstance(row, DelayedRow)
    assert row.delayed.message.body == b""
    assert row.delayed.due_at == datetime(2026, 3, 1, 12, 30, 1, tzinfo=UTC)


async def test_dates_of_the_sdk_are_plain_ones_outside(rig):
    await rig.add(1)
    (row,) = await rig.rows()
    assert type(row.delayed.due_at) is datetime


async def test_an_unreadable_row_keeps_plain_values(rig):
    await rig.plain.create_entity(
        {
            "PartitionKey": "2026030112",
            "RowKey": "20260301123000_x",
            "Large": EntityProperty(2**40, EdmType.INT64),
        }
    )
    (row,) = await rig.rows()
    assert isinstance(row, UnreadableRow)
    assert row.properties["Large"] == 2**40


async def test_of_dotnet_rows_and_ours_in_one_second_the_earliest_is_next(rig):
    second = DUE.replace(microsecond=0)
    dotnet = {"Destination": "orders", "MessageId": "m", "Headers": "{}", "PartitionKey": "2026030112"}
    # Sorts before every row of ours in its second, and is due after all of them.
    await rig.plain.create_entity({**dotnet, "RowKey": f"20260301123000_{'0' * 32}"})
    assert await rig.backend.store.next_due() == second + SECOND
    await rig.add(1)
    assert await rig.backend.store.next_due() == DUE
    assert await rig.backend.store.next_due(DUE) == second + SECOND
    assert await rig.backend.store.next_due(second + SECOND) is None
    assert [row.delayed.due_at for row in await rig.rows()] == [DUE, second + SECOND]


async def test_hundreds_of_dotnet_rows_in_one_second_do_not_hide_an_earlier_row_of_ours(rig):
    dotnet = {"Destination": "orders", "MessageId": "m", "Headers": "{}", "PartitionKey": "2026030112"}
    for start in (0, 100):
        await rig.plain.submit_transaction(
            ("create", {**dotnet, "RowKey": f"20260301123000_{n:032x}"}) for n in range(start, start + 100)
        )
    await rig.add(1)
    assert await rig.backend.store.next_due() == DUE


async def test_upcoming_counts_a_dotnet_row_to_the_end_of_its_second(rig):
    second = DUE.replace(microsecond=0)
    await rig.plain.create_entity(
        {
            "PartitionKey": "2026030112",
            "RowKey": f"20260301123000_{'f' * 32}",
            "Destination": "orders",
            "MessageId": "m",
            "Headers": "{}",
        }
    )

    async def between(start: timedelta, end: timedelta) -> int:
        rows = rig.backend.store.upcoming(start=second + start, end=second + end)
        return len([row async for row in rows])

    assert await between(SECOND, 2 * SECOND) == 1
    assert await between(0 * SECOND, SECOND) == 0
