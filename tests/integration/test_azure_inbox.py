"""The inbox on Azurite: answers that are lost, others that write meanwhile, and a table that is not there."""

from datetime import timedelta

import pytest
from azure.data.tables.aio import TableClient
from azure_cases import connection_of, rig_for

from postdate import Endpoint
from postdate.errors import ClaimLost, PoisonMessage, ServiceBusy
from postdate.inbox import Inbox
from postdate.model.inbox import PIECE_BYTES, InboxKey
from postdate.ports import Busy, Done, Fresh

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LARGE = b"x" * (PIECE_BYTES + 1)


@pytest.fixture
async def rig(postdate_settings):
    async with rig_for(postdate_settings) as made:
        await made.backend.inbox.create()
        made.faults.calls.clear()
        yield made


@pytest.fixture
async def plain(rig):
    """The inbox table, as any other program would use it."""
    connection = connection_of(rig.settings)
    async with TableClient.from_connection_string(connection, rig.settings.inbox_table_name) as client:
        yield client


def key_of(rig, message_id="order-7", age=timedelta(0)):
    return InboxKey("billing", message_id, rig.clock.now() - age)


async def claim(rig, by="one", key=None):
    answer = await rig.backend.inbox.claim(key or key_of(rig), by, rig.clock.now() + HOUR)
    assert isinstance(answer, Fresh)
    return answer.claim


@pytest.mark.parametrize("fault", ["lose_answer", "time_out", "break_connection"])
async def test_a_claim_whose_answer_is_lost_is_ours_and_nobody_elses(rig, fault):
    getattr(rig.faults.on("table.insert"), fault)()
    assert (await claim(rig)).attempt == 1
    assert isinstance(await rig.backend.inbox.claim(key_of(rig), "two", rig.clock.now() + HOUR), Busy)


@pytest.mark.parametrize("fault", ["lose_answer", "time_out", "break_connection"])
async def test_a_take_over_whose_answer_is_lost_is_ours(rig, fault):
    await rig.backend.inbox.release(await claim(rig))
    getattr(rig.faults.on("table.replace"), fault)()
    taken = await claim(rig, "two")
    assert taken.attempt == 2
    await rig.backend.inbox.complete(taken, b"", {})


@pytest.mark.parametrize("fault", ["lose_answer", "time_out"])
async def test_a_prolongation_whose_answer_is_lost_does_not_lose_the_claim(rig, fault):
    held = await claim(rig)
    getattr(rig.faults.on("table.merge"), fault)()
    prolonged = await rig.backend.inbox.prolong(held, rig.clock.now() + 2 * HOUR)
    assert prolonged is not None
    assert prolonged.etag != held.etag
    await rig.backend.inbox.complete(prolonged, b"x", {})
    assert await rig.backend.inbox.claim(key_of(rig), "two", rig.clock.now()) == Done(b"x")


@pytest.mark.parametrize("records", [{}, {"bill": b"1"}])
@pytest.mark.parametrize("fault", ["lose_answer", "time_out", "break_connection"])
async def test_a_completion_whose_answer_is_lost_is_done_and_only_once(rig, records, fault):
    held = await claim(rig)
    rule = getattr(rig.faults.on("table.batch_insert" if records else "table.replace"), fault)()
    await rig.backend.inbox.complete(held, b"x", records)
    assert rule.hits == 1
    assert await rig.backend.inbox.claim(key_of(rig), "two", rig.clock.now()) == Done(b"x")
    assert await rig.backend.inbox.records(key_of(rig)) == records


@pytest.mark.parametrize("records", [{}, {"bill": b"1"}])
async def test_a_completion_that_the_service_has_no_time_for_is_told(rig, records):
    held = await claim(rig)
    operation = "table.batch_insert" if records else "table.replace"
    rig.faults.on(operation, times=100).respond(503, "ServerBusy", headers={"Retry-After": "0"})
    with pytest.raises(ServiceBusy):
        await rig.backend.inbox.complete(held, b"x", records)
    assert await rig.backend.inbox.release(held)


@pytest.mark.parametrize("records", [{}, {"bill": b"1"}])
async def test_whoever_lost_the_claim_writes_nothing_at_all(rig, plain, records):
    late = await claim(rig)
    await rig.backend.inbox.release(late)
    await claim(rig, "two")
    with pytest.raises(ClaimLost):
        await rig.backend.inbox.complete(late, LARGE, records)
    assert [entity["Attempt"] async for entity in plain.list_entities()] == [2]


async def test_a_table_that_is_being_deleted_is_told(rig):
    rig.faults.on("table.insert").respond(409, "TableBeingDeleted")
    with pytest.raises(ServiceBusy, match="40 s or more"):
        await claim(rig)


async def test_a_row_that_changes_all_the_time_is_told(rig):
    await rig.backend.inbox.release(await claim(rig))
    rig.faults.on("table.replace", times=100).respond(412, "UpdateConditionNotSatisfied")
    with pytest.raises(ServiceBusy, match="its row changed 5 times meanwhile"):
        await claim(rig, "two")


async def test_a_row_is_readable_to_people(rig, plain):
    held = await claim(rig)
    (row,) = [entity async for entity in plain.list_entities()]
    assert (row["Consumer"], row["MessageId"], row["Token"], row["Attempt"]) == (
        "billing",
        "order-7",
        "one",
        1,
    )
    assert row["PartitionKey"].startswith(f"billing_{held.key.at.date().isoformat()}_")


@pytest.mark.parametrize(
    "message_id", ["a/b\\c#d?e", "\x00\x85", "'quoted'", "Größe 🚚", "x" * 40_000, "%2F"]
)
async def test_any_message_id_is_remembered(rig, message_id):
    key = key_of(rig, message_id)
    await rig.backend.inbox.complete(await claim(rig, key=key), LARGE, {"bill": b"1"})
    assert await rig.backend.inbox.claim(key, "two", rig.clock.now()) == Done(LARGE)
    assert await rig.backend.inbox.records(key) == {"bill": b"1"}


async def test_an_outcome_whose_piece_somebody_removed_is_not_taken_for_whole(rig, plain):
    held = await claim(rig)
    await rig.backend.inbox.complete(held, LARGE, {})
    place = held.key.place
    await plain.delete_entity(place.partition, f"{place.row}_p0000")
    with pytest.raises(PoisonMessage, match="1 of 2 pieces"):
        await rig.backend.inbox.claim(key_of(rig), "two", rig.clock.now())


async def old_rows(rig, count):
    for number in range(count):
        key = key_of(rig, f"order-{number}", 10 * DAY)
        await rig.backend.inbox.complete(await claim(rig, key=key), b"", {"bill": b"1"})


async def test_old_rows_behind_empty_pages_are_dropped_too(rig):
    await old_rows(rig, 5)
    rule = rig.faults.on("table.query", times=7).empty_page()
    assert await rig.backend.inbox.forget("billing", rig.clock.now() + HOUR) == 5
    assert rule.hits == 7
    assert await rig.backend.inbox.consumers() == []


async def test_what_another_one_drops_meanwhile_is_no_failure_and_counts_once(rig):
    await old_rows(rig, 20)
    theirs = []

    async def drop_first(_call):
        theirs.append(await rig.backend.inbox.forget("billing", rig.clock.now() + HOUR))

    rig.faults.on("table.batch_delete").before(drop_first)
    ours = await rig.backend.inbox.forget("billing", rig.clock.now() + HOUR)
    assert ours + theirs[0] == 20
    assert theirs[0] > 0


async def test_the_first_use_creates_the_table_and_others_never_ask_for_it(postdate_settings):
    async with Endpoint(postdate_settings) as endpoint:
        await endpoint.setup()
        before = sum(endpoint.parts.backend.requests.counts().values())
        async with Inbox(endpoint, consumer="billing").once("m", at=endpoint.parts.clock.now()) as once:
            once.send(postdate_settings.own_queue, "x")
        async with Inbox(endpoint, consumer="billing").once("m", at=endpoint.parts.clock.now()) as once:
            assert not once.fresh
        assert sum(endpoint.parts.backend.requests.counts().values()) > before
        assert await endpoint.setup(inbox=True) == []
    async with Endpoint(postdate_settings) as endpoint:
        await endpoint.setup()
        assert "inbox" not in vars(endpoint.parts.backend)


async def test_a_message_without_effects_costs_two_requests(rig):
    rig.faults.calls.clear()
    await rig.backend.inbox.complete(await claim(rig), b"", {})
    assert [call.operation for call in rig.faults.calls] == ["table.insert", "table.replace"]
