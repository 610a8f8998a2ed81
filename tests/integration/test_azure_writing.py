"""Rows written and removed while answers get lost, services are busy and others write too."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from azure_cases import DUE, HOUR, SECOND, Rig, delayed, ids, rig_for

from postdate.backends.azure_storage.delayed_table import TRANSACTIONS
from postdate.backends.azure_storage.rows import (
    TRANSACTION_BYTES,
    check_transaction,
    chunks,
    json_of,
    quoted,
    wire_bytes,
)
from postdate.errors import (
    MessageRefused,
    MessageTooLarge,
    NotProvisioned,
    OutcomeUnknown,
    ServiceBusy,
    StorageUnreachable,
)
from postdate.model.delayed import DelayedRow
from postdate.model.keys import RowKey
from postdate.ports import AddResult, LeaseLost, added_before, removed_before


@pytest.fixture
async def rig(postdate_settings) -> AsyncIterator[Rig]:
    async with rig_for(postdate_settings) as made:
        yield made


# Adding


async def test_an_insert_whose_answer_is_lost_is_repeated_and_stays_one_row(rig):
    # fact 4: the SDK does not repeat a POST
    rig.faults.on("table.insert").lose_answer()
    (result,) = await rig.backend.store.add([delayed()])
    assert result.created is False  # it was this call's; who wrote it can't be told
    (row,) = await rig.rows()
    assert (row.key, row.etag) == (result.key, result.etag)
    assert rig.faults.count("table.insert") == 2


async def test_an_insert_that_never_arrived_is_repeated_and_created(rig):
    rig.faults.on("table.insert").break_connection()
    (result,) = await rig.backend.store.add([delayed()])
    assert result.created is True


@pytest.mark.parametrize("fault", ["lose_answer", "time_out"])
async def test_a_batch_whose_answer_is_lost_is_repeated_without_a_second_row(rig, fault):
    getattr(rig.faults.on("table.batch_insert"), fault)()
    results = await rig.backend.store.add([delayed(n) for n in range(5)])
    rows = await rig.rows()
    assert sorted((r.key.row, r.etag) for r in results) == sorted((r.key.row, r.etag) for r in rows)


async def test_an_insert_that_stays_unanswered_is_unknown_and_a_repeat_is_harmless(rig):
    rig.faults.on("table.*", times=2).time_out()
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        await rig.backend.store.add([delayed()])
    await rig.backend.store.add([delayed()])
    assert len(await rig.rows()) == 1


async def test_an_insert_is_tried_again_while_the_service_is_busy(rig):
    rig.faults.on("table.insert").respond(503, "ServerBusy")
    (result,) = await rig.backend.store.add([delayed()])
    assert result.created is True
    rig.faults.on("table.*", times=9).respond(500, "OperationTimedOut")
    with pytest.raises(ServiceBusy, match="500 OperationTimedOut"):
        await rig.backend.store.add([delayed(2)])


@pytest.mark.parametrize(("count", "operation"), [(1, "table.insert"), (2, "table.batch_insert")])
async def test_a_table_being_deleted_is_no_duplicate_row(rig, count, operation):
    # fact 11: the SDK calls every 409 on insert "exists"
    rig.faults.on(operation).respond(409, "TableBeingDeleted")
    with pytest.raises(ServiceBusy, match="TableBeingDeleted"):
        await rig.backend.store.add([delayed(n) for n in range(count)])


async def test_a_table_being_deleted_is_no_table_that_exists(rig):
    # fact 11
    rig.faults.on("table.create").respond(409, "TableBeingDeleted")
    with pytest.raises(ServiceBusy, match="40 s"):
        await rig.backend.store.create()
    assert await rig.backend.store.create() is False


async def test_a_repeat_of_a_whole_batch_looks_its_rows_up_instead_of_asking_row_by_row(rig):
    messages = [delayed(n) for n in range(100)]
    await rig.backend.store.add(messages)
    rig.faults.calls.clear()
    again = await rig.backend.store.add(messages)
    assert not any(result.created for result in again)
    assert rig.faults.count("table.batch_insert") == 2
    assert rig.faults.count("table.get") == 100


async def test_large_bodies_are_split_by_bytes_into_transactions_that_the_service_takes(rig):
    messages = [delayed(n, DUE + n * SECOND, body=b"\xff" * 60_000) for n in range(70)]
    assert all(result.created for result in await rig.backend.store.add(messages))
    assert rig.faults.count("table.batch_insert") == 6
    assert max(len(call.body) for call in rig.faults.calls) <= TRANSACTION_BYTES


async def test_a_body_that_no_row_holds_is_refused_as_too_large(rig):
    with pytest.raises(MessageTooLarge, match="PropertyValueTooLarge"):
        await rig.backend.store.add([delayed(body=b"x" * 65_540)])


@pytest.mark.parametrize("position", [0, 57, 99])
async def test_a_row_that_the_service_refuses_keeps_none_of_the_99_others(rig, position):
    messages = [delayed(n, DUE + n * SECOND) for n in range(100)]
    messages[position] = delayed(position, messages[position].due_at, body=b"x" * 65_540)
    with pytest.raises(MessageTooLarge, match="PropertyValueTooLarge") as caught:
        await rig.backend.store.add(messages)
    outcomes = added_before(caught.value, 100)
    assert [n for n, o in enumerate(outcomes) if not isinstance(o, AddResult)] == [position]
    assert len(await rig.rows()) == 99
    assert rig.faults.count("table.batch_insert") == 2


@pytest.mark.parametrize(
    ("code", "error"), [("InvalidInput", MessageRefused), ("EntityTooLarge", MessageTooLarge)]
)
async def test_a_transaction_refused_for_no_row_by_name_goes_row_by_row(rig, code, error):
    rig.faults.on("table.batch_insert").respond(400, code)
    rig.faults.on("table.insert", nth=2).respond(400, code)
    with pytest.raises(error, match=code) as caught:
        await rig.backend.store.add([delayed(n) for n in range(4)])
    outcomes = added_before(caught.value, 4)
    assert [isinstance(o, AddResult) for o in outcomes] == [True, False, True, True]
    assert len(await rig.rows()) == 3


async def test_an_error_in_one_partition_tells_what_was_added_in_the_others(rig):
    messages = [delayed(n, DUE + n % 3 * HOUR) for n in range(6)]
    second = messages[1].key.partition.encode()
    rig.faults.on("table.batch_insert", when=lambda call: second in call.body, times=9).respond(
        503, "ServerBusy"
    )
    with pytest.raises(ServiceBusy) as caught:
        await rig.backend.store.add(messages)
    outcomes = added_before(caught.value, 6)
    assert [isinstance(o, AddResult) for o in outcomes] == [True, False, True] * 2
    assert len(await rig.rows()) == 4


async def test_a_service_that_gives_no_answer_is_not_asked_for_the_rest(rig):
    messages = [delayed(n, DUE + n * HOUR) for n in range(40)]
    rig.faults.on("table.insert", times=999).refuse_connection()
    with pytest.raises(StorageUnreachable) as caught:
        await rig.backend.store.add(messages)
    outcomes = added_before(caught.value, 40)
    untried = sum(outcome is None for outcome in outcomes)
    assert untried >= 40 - TRANSACTIONS
    assert all(isinstance(outcome, StorageUnreachable) for outcome in outcomes if outcome is not None)


async def test_quotes_in_keys_and_filters_are_text(rig):
    assert quoted("o'clock") == "'o''clock'"
    key = RowKey("2026030112", "20260301123000_it's")
    await rig.plain.create_entity({"PartitionKey": key.partition, "RowKey": key.row})
    row = await rig.backend.store.get(key)
    assert row is not None
    assert await rig.backend.store.remove([row, row]) == [True, False]


def test_a_transaction_of_ours_keeps_to_what_azure_takes():
    # fact 17: Azurite takes two partitions, and so tests alone would never tell
    one = [RowKey("2026030112", str(n)) for n in range(101)]
    for keys, size in [
        ([], 0),
        (one, 0),
        ([RowKey("a", "1"), RowKey("b", "2")], 0),
        ([RowKey("a", "1"), RowKey("a", "1")], 0),
        (one[:2], TRANSACTION_BYTES + 1),
    ]:
        with pytest.raises(AssertionError, match="a transaction"):
            check_transaction(keys, size)
    check_transaction(one[:100], TRANSACTION_BYTES)


def test_chunks_keep_partitions_apart_and_the_order_within():
    items = [(n, "ab"[n % 2], 10) for n in range(250)]
    found = list(chunks(items))
    assert sorted(len(chunk) for chunk in found) == [25, 25, 100, 100]
    assert all(len({n % 2 for n in chunk}) == 1 and chunk == sorted(chunk) for chunk in found)
    assert wire_bytes(json_of({"Headers": 'ö"'})) > wire_bytes(json_of({"Headers": "oo"}))


# Removing


async def test_a_delete_whose_answer_is_lost_is_unknown_and_not_repeated(rig):
    # A repeat would find the rows gone, and could not tell who removed them.
    rows = await rig.add(3)
    rig.faults.on("table.batch_delete").lose_answer()
    with pytest.raises(OutcomeUnknown):
        await rig.backend.store.remove(rows)
    assert rig.faults.count("table.batch_delete") == 1
    assert await rig.backend.store.remove(rows) == [False] * 3


async def test_a_delete_that_never_arrived_is_repeated_since_the_rows_are_there(rig):
    rows = await rig.add(3)
    rig.faults.on("table.batch_delete").break_connection()
    assert await rig.backend.store.remove(rows) == [True] * 3


async def test_a_repeated_delete_that_finds_its_row_gone_says_it_can_not_tell(rig):
    rows = await rig.add(2)
    rig.faults.on("table.batch_delete").break_connection()

    async def somebody_deletes(_):
        await rig.plain.delete_entity(rows[0].key.partition, rows[0].key.row)

    rig.faults.on("table.batch_delete").before(somebody_deletes)
    with pytest.raises(OutcomeUnknown, match="can't be told"):
        await rig.backend.store.remove(rows)


@pytest.mark.parametrize(("status", "code"), [(503, "ServerBusy"), (500, "OperationTimedOut")])
async def test_a_delete_is_not_repeated_behind_our_back_while_the_service_is_busy(rig, status, code):
    rows = await rig.add(1)
    rig.faults.on("table.batch_delete").respond(status, code)
    with pytest.raises(ServiceBusy, match=code):
        await rig.backend.store.remove(rows)
    assert rig.faults.count("table.batch_delete") == 1


@pytest.mark.parametrize("position", [0, 1, 4])
@pytest.mark.parametrize("how", ["gone", "changed"])
async def test_rows_gone_or_changed_keep_none_of_the_others(rig, position, how):
    rows = await rig.add(5)
    if how == "gone":
        await rig.plain.delete_entity(rows[position].key.partition, rows[position].key.row)
    else:
        await rig.backend.store.update(rows[position], failure_count=1, next_attempt_at=None)
    answers = await rig.backend.store.remove(rows)
    assert [n for n, removed in enumerate(answers) if not removed] == [position]


async def test_a_single_row_that_is_gone_is_told_from_one_that_was_removed(rig):
    # fact 10: delete_entity says nothing about a 404
    (row,) = await rig.add(1)
    assert await rig.backend.store.remove([row]) == [True]
    assert await rig.backend.store.remove([row]) == [False]


async def test_many_rows_gone_cost_a_look_at_each_and_not_a_transaction_each(rig):
    rows = await rig.add(100)
    assert all(await rig.backend.store.remove(rows[10:90]))
    rig.faults.calls.clear()
    answers = await rig.backend.store.remove(rows)
    assert answers == [True] * 10 + [False] * 80 + [True] * 10
    assert rig.faults.count("table.batch_delete") == 3


async def test_a_missing_table_is_no_missing_row(rig):
    # fact 10
    rows = await rig.add(1)
    await rig.plain.delete_table()
    with pytest.raises(NotProvisioned, match="postdate setup"):
        await rig.backend.store.remove(rows)


async def test_an_error_in_one_partition_tells_what_was_removed_in_the_others(rig):
    rows = await rig.add(3, step=HOUR)
    second = rows[1].key.partition.encode()
    rig.faults.on("table.batch_delete", when=lambda call: second in call.body).respond(503, "ServerBusy")
    with pytest.raises(ServiceBusy) as caught:
        await rig.backend.store.remove(rows)
    assert removed_before(caught.value) == [True, None, True]
    assert ids(await rig.rows()) == ["m00001"]


async def test_the_guard_is_asked_again_when_the_connection_is_there(rig):
    # fact 18: nothing on the service's side stops a stale leader
    rows = await rig.add(1)
    answers = [True, False]
    with pytest.raises(LeaseLost):
        await rig.backend.store.remove(rows, lambda: answers.pop(0))
    assert answers == []
    assert len(await rig.rows()) == 1


async def test_the_guard_is_asked_for_each_transaction(rig):
    rows = await rig.add(2, step=HOUR)
    asked = []
    hold = rig.faults.on("table.batch_delete", nth=2)
    hold.before(lambda _: asked.append("second"))
    with pytest.raises(LeaseLost) as caught:
        await rig.backend.store.remove(rows, lambda: not asked)
    assert True in (removed_before(caught.value) or []) or len(await rig.rows()) == 2


async def test_a_service_that_is_down_surely_heard_nothing(rig):
    rows = await rig.add(1)
    rig.faults.on("table.*", times=9).refuse_connection()
    with pytest.raises(StorageUnreachable, match="postdate azurite"):
        await rig.backend.store.remove(rows)
    with pytest.raises(StorageUnreachable, match="postdate azurite"):
        await rig.backend.store.add([delayed(9)])


async def test_rows_that_come_and_go_do_not_keep_a_call_for_ever(rig):
    rig.faults.on("table.insert", times=99).respond(409, "EntityAlreadyExists")
    with pytest.raises(ServiceBusy, match="come and go"):
        await rig.backend.store.add([delayed()])


# Updating


async def test_an_update_whose_answer_is_lost_is_unknown_since_others_write_such_figures_too(rig):
    (row,) = await rig.add(1)
    rig.faults.on("table.merge").lose_answer()
    with pytest.raises(OutcomeUnknown):
        await rig.backend.store.update(row, failure_count=3, next_attempt_at=DUE + HOUR)
    (now,) = await rig.rows()
    assert now.delayed.failure_count == 3
    assert rig.faults.count("table.merge") == 1


async def test_an_update_of_a_row_that_went_while_the_answer_was_lost_answers_none(rig):
    (row,) = await rig.add(1)
    rig.faults.on("table.merge").break_connection()
    key = row.key
    rig.faults.on("table.get").before(lambda _: rig.plain.delete_entity(key.partition, key.row))
    assert await rig.backend.store.update(row, failure_count=3, next_attempt_at=None) is None


async def test_an_update_while_the_service_is_busy_is_told_and_not_repeated(rig):
    (row,) = await rig.add(1)
    rig.faults.on("table.merge").respond(503, "ServerBusy")
    with pytest.raises(ServiceBusy):
        await rig.backend.store.update(row, failure_count=3, next_attempt_at=None)
    assert rig.faults.count("table.merge") == 1


async def test_an_update_that_never_arrived_is_repeated(rig):
    (row,) = await rig.add(1)
    rig.faults.on("table.merge").break_connection()
    assert await rig.backend.store.update(row, failure_count=3, next_attempt_at=None)
    (now,) = await rig.rows()
    assert now.delayed.failure_count == 3


async def test_an_update_that_somebody_overtook_is_theirs(rig):
    (row,) = await rig.add(1)
    rig.faults.on("table.merge").break_connection()

    async def overtake(_):
        await rig.plain.update_entity(
            {"PartitionKey": row.key.partition, "RowKey": row.key.row, "FailureCount": 7}
        )

    rig.faults.on("table.get").before(overtake)
    assert await rig.backend.store.update(row, failure_count=3, next_attempt_at=None) is None


async def test_clearing_the_next_attempt_keeps_columns_that_we_do_not_know(rig):
    await rig.backend.store.add([replace(delayed(), next_attempt_at=DUE + HOUR)])
    key = delayed().key
    await rig.plain.update_entity({"PartitionKey": key.partition, "RowKey": key.row, "Theirs": "kept"})
    (row,) = await rig.rows()
    assert isinstance(row, DelayedRow)
    assert await rig.backend.store.update(row, failure_count=0, next_attempt_at=None)
    entity = await rig.plain.get_entity(key.partition, key.row)
    assert entity["Theirs"] == "kept"
    assert "NextAttemptTime" not in entity
