"""The legacy timeout manager: what older instances left comes at its time, once, and leaves nothing behind."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from legacy_cases import (
    MINUTE,
    NOTICES,
    REQUESTS,
    SAGA,
    START,
    asking,
    left,
    notice,
    open_old_world,
    put,
    serving,
    store,
    timeout,
)
from test_leading import join

from postdate.errors import OutcomeUnknown, ServiceBusy, StorageUnreachable
from postdate.events import (
    ErrorQueueRefused,
    HandedOver,
    MovedToErrorQueue,
    TimeoutFailed,
    TimeoutLeftoversRemoved,
    TimeoutsCleared,
    TimeoutStored,
    TimeoutTakenElsewhere,
    TimeoutUnreadable,
)
from postdate.model import headers as h
from postdate.model.date_patterns import partition_scope
from postdate.model.legacy_rows import encode_timeout

SECOND = timedelta(seconds=1)
SCOPE = partition_scope("yyyyMMddHH")


async def until_due(world, one):
    await world.clock.advance(one.due_at - world.clock.now() + SECOND)


def lateness(world, one):
    (found,) = world.in_queue("orders")
    return found.visible_at - one.due_at


@pytest.mark.parametrize("lookahead", ["30s", "0", "5m"])
async def test_a_timeout_comes_when_it_is_due_never_early_and_leaves_nothing_behind(lookahead):
    async with open_old_world(lookahead=lookahead) as world:
        one = timeout(saga_id=SAGA)
        await store(world, one)
        async with serving(world.endpoint):
            await world.clock.advance(4 * MINUTE)
            assert world.in_queue("orders") == []
            await until_due(world, one)
        assert timedelta(0) <= lateness(world, one) < SECOND
        assert left(world) == 0


async def test_its_message_is_as_older_endpoints_send_it():
    async with open_old_world() as world:
        one = timeout()
        await store(world, one)
        async with serving(world.endpoint):
            await until_due(world, one)
        (message,) = world.opened("orders")
        assert message.message_id == one.headers[h.MESSAGE_ID]
        assert message.body == one.body
        (handed_over,) = world.log.of(HandedOver)
        changed = {
            h.TIME_SENT: h.format_instant(handed_over.handed_over_at),
            h.RELATED_TO_TIMEOUT: one.id,
        }
        assert message.headers == {**one.headers, **changed}


async def test_a_backlog_is_handed_over_at_once():
    async with open_old_world() as world:
        await store(world, *(timeout(n, START - n * MINUTE) for n in range(1, 100)))
        async with serving(world.endpoint):
            await world.clock.advance(5)
        assert sorted(int(m.message_id[1:]) for m in world.opened("orders")) == list(range(1, 100))
        assert left(world) == 0


async def test_one_stored_late_with_an_early_due_time_is_not_missed():
    async with open_old_world() as world:
        first = timeout(1, START + 10 * MINUTE)
        await store(world, first)
        async with serving(world.endpoint):
            await until_due(world, first)
            await store(world, timeout(2, START + 3 * MINUTE))
            await world.clock.advance(MINUTE + 5 * SECOND)
        assert [m.message_id for m in world.opened("orders")] == ["m1", "m2"]


async def test_in_another_partition_scope_it_comes_in_time_and_what_the_former_one_filed_too():
    async with open_old_world() as world:
        former = timeout(1, START + 40 * MINUTE)
        await store(world, former)
        async with open_old_world(
            account=world.account, clock=world.clock, timeout_partition_scope="yyyy-MM-dd"
        ) as new:
            await store(new, timeout(2, START + 10 * MINUTE))
            async with serving(new.endpoint):
                await new.clock.advance(11 * MINUTE)
                assert timedelta(0) <= lateness(new, timeout(2, START + 10 * MINUTE)) < SECOND
                await new.clock.advance(2 * 60 * MINUTE)
            assert [m.message_id for m in new.opened("orders")] == ["m2", "m1"]


async def test_one_filed_under_another_calendar_comes_within_the_hour():
    async with open_old_world() as world:
        rows = encode_timeout(timeout(), SCOPE)
        async with serving(world.endpoint):
            await world.clock.advance(MINUTE)
            world.backend.timeouts.insert_raw({**rows.time, "PartitionKey": "2569030112"})
            world.backend.timeouts.insert_raw(rows.main)
            world.backend.timeouts.insert_state(timeout().id, b"body")
            await world.clock.advance(70 * MINUTE)
            assert [m.message_id for m in world.opened("orders")] == ["m1"]
            # The time row is not where its due time says; it goes with what is left of interruptions.
            await world.clock.advance(120 * MINUTE)
        assert left(world) == 0


# --- the queues -----------------------------------------------------------------------------------


async def test_what_an_older_instance_puts_off_is_stored_with_all_its_headers_and_comes_in_time():
    async with open_old_world() as world:
        due_at = START + 5 * MINUTE + timedelta(microseconds=654_321)
        asked = asking(due_at, **{h.SAGA_ID: SAGA.upper(), "Größe": "é"})
        receipt = await put(world, REQUESTS, asked)
        async with serving(world.endpoint):
            await world.clock.advance(1)
            kept = await world.backend.timeouts.get(receipt.native_id)
            assert (kept.due_at, kept.destination, kept.owner) == (due_at, "orders", "Contoso.Orders")
            assert (kept.saga_id, kept.body) == (SAGA, b"body")
            assert kept.headers == {**asked.headers, h.CORRELATION_ID: None}
            assert world.in_queue(REQUESTS) == []
            await until_due(world, kept)
        assert timedelta(0) <= lateness(world, kept) < SECOND
        assert [event.timeout_id for event in world.log.of(TimeoutStored)] == [receipt.native_id]
        assert left(world) == 0


@pytest.mark.parametrize("seconds", [-3600, 0, 0.9, 20])
async def test_what_is_due_soon_goes_at_once_and_is_never_stored(seconds):
    async with open_old_world() as world:
        due_at = START + timedelta(seconds=seconds)
        await put(world, REQUESTS, asking(due_at))
        async with serving(world.endpoint):
            await world.clock.advance(0.1)
            (message,) = world.in_queue("orders")
        assert timedelta(0) <= message.visible_at - max(due_at, START) < SECOND
        assert world.log.of(TimeoutStored) == []


async def test_without_a_route_it_goes_where_replies_go():
    async with open_old_world() as world:
        await put(world, REQUESTS, asking(START, **{h.TIMEOUT_DESTINATION: None, h.REPLY_TO: "orders"}))
        async with serving(world.endpoint):
            await world.clock.advance(1)
        assert len(world.in_queue("orders")) == 1


async def test_a_request_that_comes_twice_is_one_timeout():
    async with open_old_world() as world:
        ack = world.backend.receiver.ack
        world.backend.receiver.ack = lambda received: asyncio.sleep(0)  # as if the answer was lost
        await put(world, REQUESTS, asking(START + 10 * MINUTE))
        async with serving(world.endpoint):
            await world.clock.advance(1)
            world.backend.receiver.ack = ack
            await world.clock.advance(3 * MINUTE)
            assert world.in_queue(REQUESTS) == []
            assert await world.backend.timeouts.count() == 1
        assert len(world.log.of(TimeoutStored)) == 2


async def test_a_saga_that_is_done_takes_back_its_timeouts():
    async with open_old_world() as world:
        await store(world, *(timeout(n, saga_id=SAGA) for n in range(3)), timeout(9))
        await put(
            world, REQUESTS, replace(asking(START), headers={h.CLEAR_TIMEOUTS: "True", h.SAGA_ID: SAGA})
        )
        async with serving(world.endpoint):
            await world.clock.advance(1)
            assert await world.backend.timeouts.count() == 1
        assert [(event.saga_id, event.count) for event in world.log.of(TimeoutsCleared)] == [(SAGA, 3)]


async def test_a_notice_hands_over_and_one_of_an_unknown_timeout_is_ignored():
    async with open_old_world() as world:
        one = timeout(due_at=START + 10 * MINUTE)  # the other side's clock is ahead
        await store(world, one)
        for timeout_id in (one.id, one.id, timeout(2).id, "no/id"):
            await put(world, NOTICES, notice(timeout_id))
        async with serving(world.endpoint):
            await world.clock.advance(1)
        assert timedelta(0) <= lateness(world, one) < SECOND
        assert world.in_queue(NOTICES) == []
        assert world.in_queue("error") == []
        assert left(world) == 0


# --- beside others --------------------------------------------------------------------------------


async def test_one_that_somebody_took_meanwhile_is_withdrawn():
    async with open_old_world() as world:
        one = timeout(due_at=START)
        await store(world, one)
        send = world.backend.sender.send

        async def slower(*arguments, **options):
            receipt = await send(*arguments, **options)
            assert await world.backend.timeouts.remove(one.id)  # an older instance is done with it
            return receipt

        world.backend.sender.send = slower
        async with serving(world.endpoint):
            await world.clock.advance(1)
        assert world.in_queue("orders") == []
        (told,) = world.log.of(TimeoutTakenElsewhere)
        assert told.withdrawn


async def test_an_old_manager_beside_doubles_only_what_it_reads_before_and_removes_after_us():
    async with open_old_world() as world:
        count = 200
        await store(world, *(timeout(n, START - MINUTE) for n in range(count)))
        timeouts, doubled = world.backend.timeouts, 0

        async def old_manager():
            nonlocal doubled
            for n in range(count):
                found = await timeouts.get(timeout(n).id)
                if found is None:
                    continue
                for _ in range(n % 7):
                    await asyncio.sleep(0)
                await put(world, "orders", asking(START, n))
                for _ in range(n % 5):
                    await asyncio.sleep(0)
                doubled += not await timeouts.remove(found.id)

        async with serving(world.endpoint):
            old = asyncio.create_task(old_manager())
            await world.clock.advance(MINUTE)
            await old
        ids = [m.message_id for m in world.opened("orders")]
        assert set(ids) == {f"m{n}" for n in range(count)}
        assert len(ids) - count == doubled
        assert left(world) == 0


async def test_of_two_processes_one_serves_and_nobody_doubles():
    async with open_old_world() as world:
        other, log = await join(world, endpoint="Contoso.Orders")
        await store(world, *(timeout(n, START + n * SECOND) for n in range(100)))
        async with serving(world.endpoint, other):
            await world.clock.advance(3 * MINUTE)
        assert sorted(int(m.message_id[1:]) for m in world.opened("orders")) == list(range(100))
        assert [] in (world.log.of(HandedOver), log.of(HandedOver))


async def test_a_frozen_leader_sends_nothing_more_in_its_old_term():
    async with open_old_world() as world:
        get = world.backend.timeouts.get

        async def freezing(timeout_id):
            found = await get(timeout_id)
            if world.clock.monotonic() < 1020:
                world.clock._set(world.clock.monotonic() + 40)  # frozen, with a request about to leave
            return found

        world.backend.timeouts.get = freezing
        await store(world, timeout(due_at=START))
        async with serving(world.endpoint):
            await world.clock.advance(60)
        assert [event.term for event in world.log.of(HandedOver)] == [2]
        assert left(world) == 0


async def test_stopping_in_the_middle_loses_and_doubles_nothing():
    async with open_old_world() as world:
        await store(world, *(timeout(n, START) for n in range(60)))
        stop = asyncio.Event()
        send = world.backend.sender.send

        async def stopping(*arguments, **options):
            stop.set()
            for _ in range(5):
                await asyncio.sleep(0)
            return await send(*arguments, **options)

        world.backend.sender.send = stopping
        await world.endpoint.run(stop)
        begun = len(world.in_queue("orders"))
        assert 0 < begun < 60
        assert await world.backend.timeouts.count() == 60 - begun
        world.backend.sender.send = send
        async with serving(world.endpoint):
            await world.clock.advance(30)
        assert sorted(int(m.message_id[1:]) for m in world.opened("orders")) == list(range(60))


# --- failures -------------------------------------------------------------------------------------


async def test_a_removal_that_fails_is_repeated_and_the_message_is_not():
    async with open_old_world() as world:
        one = timeout(due_at=START)
        await store(world, one)
        remove = world.backend.timeouts.remove

        async def busy(timeout_id):
            world.backend.timeouts.remove = remove
            raise ServiceBusy("503")

        world.backend.timeouts.remove = busy
        async with serving(world.endpoint):
            await world.clock.advance(10)
        assert len(world.in_queue("orders")) == 1
        assert left(world) == 0
        assert world.log.of(TimeoutTakenElsewhere) == []


@pytest.mark.parametrize("error", [ServiceBusy("500, and done all the same"), OutcomeUnknown("no answer")])
async def test_a_removal_whose_answer_was_lost_does_not_withdraw_the_only_copy(error):
    async with open_old_world() as world:
        await store(world, timeout(due_at=START))
        remove = world.backend.timeouts.remove

        async def applied(timeout_id):
            world.backend.timeouts.remove = remove
            assert await remove(timeout_id)
            raise error

        world.backend.timeouts.remove = applied
        await put(world, NOTICES, notice(timeout().id))
        async with serving(world.endpoint):
            await world.clock.advance(MINUTE)
        assert len(world.in_queue("orders")) == 1


async def test_a_missing_destination_costs_five_attempts_and_then_the_error_queue():
    async with open_old_world() as world:
        one = timeout(due_at=START, destination="nowhere")
        await store(world, one, timeout(2, START))
        async with serving(world.endpoint):
            await world.clock.advance(2)
            assert [m.message_id for m in world.opened("orders")] == ["m2"]  # it holds up nobody
            await world.clock.advance(MINUTE)
        (message,) = world.opened("error")
        assert message.body == one.body
        assert message.headers[h.FAILED_QUEUE] == "nowhere"
        assert message.headers[h.ATTEMPTS] == "5"
        assert message.headers[h.RELATED_TO_TIMEOUT] == one.id
        assert "does not exist" in message.headers[h.EXCEPTION_MESSAGE]
        assert [event.attempts for event in world.log.of(TimeoutFailed)] == [1, 2, 3, 4]
        assert len(world.log.of(MovedToErrorQueue)) == 1
        assert left(world) == 0


async def test_a_destination_that_appears_meanwhile_is_served():
    async with open_old_world() as world:
        await store(world, timeout(due_at=START, destination="nowhere"))
        async with serving(world.endpoint):
            await world.clock.advance(4)
            await world.backend.sender.create("nowhere")
            await world.clock.advance(30)
        assert len(world.in_queue("nowhere")) == 1
        assert world.in_queue("error") == []


async def test_a_busy_destination_never_costs_an_attempt():
    async with open_old_world() as world:
        send = world.backend.sender.send

        async def unreachable(*arguments, **options):
            raise StorageUnreachable("no answer")

        world.backend.sender.send = unreachable
        await store(world, timeout(due_at=START))
        async with serving(world.endpoint):
            await world.clock.advance(30 * MINUTE)
            assert {event.counted for event in world.log.of(TimeoutFailed)} == {False}
            assert len(world.log.of(TimeoutFailed)) < 80
            world.backend.sender.send = send
            await world.clock.advance(MINUTE)
        assert len(world.in_queue("orders")) == 1
        assert left(world) == 0


async def test_without_an_error_queue_it_stays_and_goes_there_when_it_is_back():
    async with open_old_world() as world:
        await world.backend.sender.delete("error")
        await store(world, timeout(due_at=START, destination="nowhere"))
        async with serving(world.endpoint):
            await world.clock.advance(10 * MINUTE)
            assert 1 <= len(world.log.of(ErrorQueueRefused)) < 25
            assert await world.backend.timeouts.count() == 1
            await world.backend.sender.create("error")
            await world.clock.advance(MINUTE)
        assert len(world.in_queue("error")) == 1
        assert left(world) == 0


async def test_one_that_is_too_large_with_its_fault_headers_goes_with_its_body_in_a_blob():
    async with open_old_world() as world:
        await store(world, replace(timeout(due_at=START, destination="nowhere"), body=bytes(36_500)))
        async with serving(world.endpoint):
            await world.clock.advance(15 * MINUTE)
        (copy,) = world.opened("error")
        assert await world.backend.payloads.get(copy.headers[h.PAYLOAD]) == bytes(36_500)
        assert left(world) == 0


async def test_one_that_cannot_be_read_stays_and_blocks_nobody():
    async with open_old_world() as world:
        rows = encode_timeout(timeout(1, START - MINUTE), SCOPE)
        for row in (rows.time, rows.main):
            world.backend.timeouts.insert_raw({**row, "Headers": "{"})
        without_body = encode_timeout(timeout(2, START - MINUTE), SCOPE)
        for row in (without_body.time, without_body.main):
            world.backend.timeouts.insert_raw(row)
        await store(world, timeout(3, START))
        async with serving(world.endpoint):
            await world.clock.advance(30 * MINUTE)
        assert [m.message_id for m in world.opened("orders")] == ["m3"]
        reasons = {event.timeout_id: event.reason for event in world.log.of(TimeoutUnreadable)}
        assert "column Headers" in reasons[timeout(1).id]
        assert "the body of timeout" in reasons[timeout(2).id]
        assert len(world.log.of(TimeoutUnreadable)) == 2
        assert left(world) == 4


async def test_what_an_interruption_left_goes_after_ten_minutes_and_not_before():
    async with open_old_world() as world:
        rows = encode_timeout(timeout(1, START, saga_id=SAGA), SCOPE)
        for row in (rows.time, rows.saga):
            world.backend.timeouts.insert_raw(row)
        world.backend.timeouts.insert_state(timeout(1).id, b"body")
        async with serving(world.endpoint):
            await world.clock.advance(9 * MINUTE)
            assert left(world) == 3
            await world.clock.advance(3 * MINUTE)
        assert left(world) == 0
        assert [event.timeout_id for event in world.log.of(TimeoutLeftoversRemoved)] == [timeout(1).id]
        assert world.in_queue("orders") == []


async def test_one_that_is_just_being_written_is_not_taken_for_a_leftover():
    async with open_old_world() as world:
        rows = encode_timeout(timeout(1, START), SCOPE)
        world.backend.timeouts.insert_raw(rows.time)
        world.backend.timeouts.insert_state(timeout(1).id, b"body")
        async with serving(world.endpoint):
            await world.clock.advance(2 * MINUTE)
            world.backend.timeouts.insert_raw(rows.main)
            await world.clock.advance(10 * MINUTE)
        assert len(world.in_queue("orders")) == 1
        assert left(world) == 0
