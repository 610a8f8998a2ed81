"""The leader's pass: what is handed over, when, in which order, and what happens to what can't be."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import NEVER_CRITICAL, open_world

from postdate.errors import AccessDenied, OutcomeUnknown, ServiceBusy
from postdate.events import (
    DispatchFailed,
    ErrorQueueRefused,
    HandedOver,
    MovedToErrorQueue,
    PassFailed,
    PassFinished,
    RemoveFailed,
)
from postdate.model import headers as h
from postdate.model.limits import FAULT_RESERVE_BYTES
from postdate.ports import LeaseLost, note_removed

DOTNET = {
    "Destination": "orders",
    "Body": b"{}",
    "MessageId": "dotnet-1",
    "Headers": '{"NServiceBus.MessageId":"dotnet-1","NServiceBus.MessageIntent":"Send"}',
}


def dotnet_row(second, number=0, **changes):
    text = f"{second:%Y%m%d%H%M%S}"
    return {**DOTNET, "PartitionKey": text[:10], "RowKey": f"{text}_{number:032x}", **changes}


def failing(world, error, *, times=10**9, destination="orders"):
    """Make sends to a destination fail."""
    sender, send, calls = world.backend.sender, world.backend.sender.send, []

    async def broken(target, text, **options):
        if target == destination and len(calls) < times:
            calls.append(target)
            raise error
        return await send(target, text, **options)

    sender.send = broken
    return calls


async def test_a_row_is_handed_over_within_the_lookahead_and_hidden_until_due():
    async with open_world() as world:
        at = world.clock.now() + timedelta(seconds=60.4)
        await world.endpoint.schedule("orders", "x", at=at)
        await world.clock.advance(30.3)
        assert (await world.endpoint.deliver_due()).handed_over == 0
        await world.clock.advance(0.1)
        assert (await world.endpoint.deliver_due()).handed_over == 1
        (hidden,) = world.in_queue("orders")
        assert at <= hidden.visible_at < at + timedelta(seconds=1)
        assert world.rows == {}


async def test_without_lookahead_nothing_is_handed_over_before_it_is_due():
    async with open_world(lookahead=0) as world:
        await world.endpoint.schedule("orders", "x", delay=5)
        await world.clock.advance(4.999999)
        assert (await world.endpoint.deliver_due()).handed_over == 0
        await world.clock.advance(0.000001)
        await world.endpoint.deliver_due()
        assert len(await world.take("orders")) == 1


async def test_our_rows_carry_the_term_and_dotnet_rows_go_out_as_they_are():
    async with open_world() as world:
        world.backend.store.insert_raw(dotnet_row(world.clock.now()))
        await world.endpoint.schedule("orders", "x", delay=40, message_id="ours")
        await world.clock.advance(10)
        await world.endpoint.deliver_due()
        by_id = {m.message_id: m for m in world.opened("orders")}
        assert by_id["ours"].headers[h.TERM] == "1"
        assert by_id["dotnet-1"].headers == {
            "NServiceBus.MessageId": "dotnet-1",
            "NServiceBus.MessageIntent": "Send",
            "NServiceBus.CorrelationId": None,
        }


async def test_a_dotnet_destination_goes_to_the_queue_that_its_sanitizer_made():
    async with open_world() as world:
        await world.backend.sender.create("contoso-shipping")
        row = dotnet_row(world.clock.now(), Destination="Contoso.Shipping")
        world.backend.store.insert_raw(row)
        await world.clock.advance(1)
        assert (await world.endpoint.deliver_due()).handed_over == 1
        assert len(world.in_queue("contoso-shipping")) == 1


async def test_a_running_leader_sleeps_until_the_next_due_time_and_wakes_for_our_own_intake():
    async with open_world(idle_interval=3600, probe_interval=60) as world:
        await world.endpoint.schedule("orders", "later", delay=600)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(1)
        passes = len(world.log.of(PassFinished))
        await world.clock.advance(500)
        # Nothing to do: it looks only for what others may have stored with delays of some seconds.
        assert len(world.log.of(PassFinished)) <= passes + 50
        await world.endpoint.schedule("orders", "sooner", delay=35)
        await world.clock.advance(6)
        assert [m.body for m in world.opened("orders")] == [b"sooner"]
        await world.clock.advance(64)
        assert [m.body for m in world.opened("orders")] == [b"sooner", b"later"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_missing_queue_gets_the_retries_exactly_then_the_error_queue():
    async with open_world(number_of_retries=3, lookahead=0) as world:
        await world.endpoint.schedule("orders", {"a": 1}, delay=1, message_id="id-1")
        await world.backend.sender.delete("orders")
        await world.clock.advance(1)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert [(e.attempts, e.counted) for e in world.log.of(DispatchFailed)] == [
            (1, True),
            (2, True),
            (3, True),
        ]
        (moved,) = world.log.of(MovedToErrorQueue)
        assert (moved.attempts, moved.message_id) == (4, "id-1")
        assert world.rows == {}
        (message,) = world.opened("error")
        assert message.body == b'{"a":1}'
        assert message.message_id == "id-1"
        assert message.headers[h.FAILED_QUEUE] == "orders"
        assert message.headers[h.EXCEPTION_TYPE] == "postdate.errors.DestinationNotFound"
        assert "'orders' does not exist" in message.headers[h.EXCEPTION_MESSAGE]
        assert h.parse_instant(message.headers[h.TIME_OF_FAILURE]) <= world.clock.now()
        assert message.headers[h.ATTEMPTS] == "4"
        assert message.headers[h.STACK_TRACE]


async def test_zero_retries_is_one_attempt():
    async with open_world(number_of_retries=0) as world:
        await world.endpoint.schedule("orders", "x", delay=31)
        await world.backend.sender.delete("orders")
        await world.clock.advance(2)
        result = await world.endpoint.deliver_due()
        assert (result.moved_to_error_queue, world.rows) == (1, {})


async def test_back_off_grows_in_the_row_and_holds_up_nobody():
    async with open_world(lookahead=0, retry_base=1, retry_maximum=8) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=1)
        await world.endpoint.schedule("orders", "y", delay=2)
        await world.backend.sender.delete("gone")
        await world.clock.advance(2)
        result = await world.endpoint.deliver_due()
        assert (result.handed_over, result.failed) == (1, 1)
        (row,) = [r async for r in world.endpoint.upcoming()]
        wait = (row.next_attempt_at - world.clock.now()).total_seconds()
        assert row.failure_count == 1
        assert 0.5 <= wait <= 1
        # To the next whole second, where rows that are tried again share a pass.
        assert row.next_attempt_at <= result.next_at < row.next_attempt_at + timedelta(seconds=1)
        again = await world.endpoint.deliver_due()
        assert (again.failed, again.waiting) == (0, 1)


async def test_a_busy_service_is_no_attempt_and_never_ends_in_the_error_queue():
    async with open_world(number_of_retries=0, lookahead=0, **NEVER_CRITICAL) as world:
        await world.endpoint.schedule("orders", "x", delay=1)
        calls = failing(world, ServiceBusy("503"), times=6)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(300)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(calls) == 6
        assert world.log.of(MovedToErrorQueue) == []
        assert {e.counted for e in world.log.of(DispatchFailed)} == {False}
        assert len(await world.take("orders")) == 1


async def test_an_account_that_does_not_answer_is_left_alone_and_others_go_on():
    async with open_world(lookahead=0, aliases={"far": "farstorage"}, send_concurrency=4) as world:
        await world.backend.sender.create("orders@far")
        for n in range(100):
            await world.endpoint.schedule("orders@far", n, delay=1)
        await world.endpoint.schedule("orders", "near", delay=2)
        calls = failing(world, ServiceBusy("503"), destination="orders@far")
        await world.clock.advance(2)
        result = await world.endpoint.deliver_due()
        assert result.handed_over == 1
        assert result.failed == 100
        assert len(calls) < 20
        assert len(world.rows) == 100


async def test_a_missing_permission_counts_and_is_told():
    async with open_world(number_of_retries=0) as world:
        await world.endpoint.schedule("orders", "x", delay=31)
        failing(world, AccessDenied("role Storage Queue Data Message Sender is missing"))
        await world.clock.advance(1)
        await world.endpoint.deliver_due()
        (message,) = world.opened("error")
        assert "Message Sender" in message.headers[h.EXCEPTION_MESSAGE]


async def test_an_error_queue_that_refuses_keeps_the_row_backed_off_until_it_recovers():
    async with open_world(number_of_retries=0, lookahead=0) as world:
        await world.endpoint.schedule("orders", "x", delay=1)
        await world.backend.sender.delete("orders")
        await world.backend.sender.delete("error")
        await world.clock.advance(1)
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(30)
        refused = world.log.of(ErrorQueueRefused)
        assert 3 <= len(refused) <= 10  # backed off, not spun on
        assert len(world.rows) == 1
        await world.backend.sender.create("error")
        await world.clock.advance(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(world.opened("error")) == 1
        assert world.rows == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"Headers": "not json"},
        {"Headers": None},
        {"Headers": '{"a":1}'},
        {"Destination": None},
        {"MessageId": None},
        {"Body": "text"},
    ],
)
async def test_a_row_that_cannot_be_read_goes_to_the_error_queue_and_blocks_nobody(changes):
    async with open_world() as world:
        world.backend.store.insert_raw(dotnet_row(world.clock.now(), 1, **changes))
        world.backend.store.insert_raw(dotnet_row(world.clock.now(), 2))
        await world.clock.advance(1)
        result = await world.endpoint.deliver_due()
        assert (result.handed_over, result.moved_to_error_queue) == (1, 1)
        (message,) = world.opened("error")
        assert "can't be read" in message.headers[h.EXCEPTION_MESSAGE]
        assert world.rows == {}


async def test_a_dotnet_row_too_large_for_any_queue_lies_in_the_error_queue_with_its_body_aside():
    async with open_world() as world:
        body = bytes(60_000)
        world.backend.store.insert_raw(dotnet_row(world.clock.now(), Body=body))
        await world.clock.advance(1)
        await world.endpoint.deliver_due()
        assert world.rows == {}
        (delivery,) = [d async for d in world.endpoint.receive("error", idle=timedelta(0))]
        assert delivery.body == body
        assert delivery.headers[h.EXCEPTION_TYPE] == "postdate.errors.MessageTooLarge"
        await delivery.ack()


async def test_a_body_at_the_edge_fits_with_room_for_fault_headers():
    assert FAULT_RESERVE_BYTES >= 4096
    async with open_world(number_of_retries=0) as world:
        await world.endpoint.schedule("orders", bytes(33_000), delay=31)
        payloads = world.account.payloads[world.endpoint.settings.table_name]
        assert payloads == {}
        await world.backend.sender.delete("orders")
        await world.clock.advance(1)
        await world.endpoint.deliver_due()
        (message,) = world.opened("error")
        assert message.body == bytes(33_000)


async def test_a_large_body_travels_by_claim_check_and_is_gone_when_received():
    async with open_world() as world:
        body = bytes(range(256)) * 40_000
        await world.endpoint.schedule("orders", body, delay=60)
        await world.clock.advance(60)
        await world.endpoint.deliver_due()
        (delivery,) = [d async for d in world.endpoint.receive("orders", idle=timedelta(0))]
        assert delivery.body == body
        await delivery.ack()
        payloads = world.account.payloads[world.endpoint.settings.table_name]
        assert [stored for stored, _ in payloads.values()] == [None]


async def test_a_late_duplicate_of_a_received_large_message_is_dropped():
    async with open_world() as world:
        await world.endpoint.schedule("orders", bytes(100_000), delay=0)
        (stored,) = world.in_queue("orders")
        await world.backend.sender.send("orders", stored.text)
        first = [d async for d in world.endpoint.receive("orders", idle=timedelta(0), batch=1)][:1]
        assert first
        await world.clock.advance(31)
        deliveries = []
        async for delivery in world.endpoint.receive("orders", idle=timedelta(0), batch=1):
            deliveries.append(delivery)
            await delivery.ack()
        assert len(deliveries) == 1
        assert world.in_queue("orders") == []


async def test_rows_that_could_not_be_removed_are_not_sent_again_by_this_process():
    async with open_world(lookahead=0) as world:
        await world.endpoint.schedule("orders", "x", delay=1)
        await world.clock.advance(1)
        store, remove, broken = world.backend.store, world.backend.store.remove, True

        async def refuse(rows, guard=None):
            if broken:
                raise ServiceBusy("503")
            return await remove(rows, guard)

        store.remove = refuse
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(20)
        assert len(world.log.of(RemoveFailed)) >= 4
        broken = False
        await world.clock.advance(20)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert world.rows == {}
        assert len(world.log.of(HandedOver)) == 1
        assert len(await world.take("orders")) == 1


async def test_never_more_than_the_limit_is_handed_over_and_not_removed():
    async with open_world(lookahead=0, unremoved_limit=10) as world:
        for n in range(300):
            await world.endpoint.schedule("orders", n, delay=1 + n % 7)
        await world.clock.advance(10)
        store, remove, worst = world.backend.store, world.backend.store.remove, 0

        async def watch(rows, guard=None):
            nonlocal worst
            await asyncio.sleep(0)
            worst = max(worst, len(world.in_queue("orders")) - (300 - len(world.rows)))
            return await remove(rows, guard)

        store.remove = watch
        assert (await world.endpoint.deliver_due()).handed_over == 300
        assert 0 < worst <= 10


async def test_a_failing_table_backs_off_and_recovers():
    async with open_world(lookahead=0, **NEVER_CRITICAL) as world:
        await world.endpoint.schedule("orders", "x", delay=1)
        store, due, broken = world.backend.store, world.backend.store.due, True

        async def sick(until):
            if broken:
                raise OutcomeUnknown("no answer")
            async for page in due(until):
                yield page

        store.due = sick
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(120)
        assert 12 <= len(world.log.of(PassFailed)) <= 30  # pauses from half a second to ten
        broken = False
        await world.clock.advance(11)
        assert len(await world.take("orders")) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_at_most_once_removes_before_it_sends_and_puts_back_what_was_refused():
    async with open_world(guarantee="at_most_once", lookahead=0) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=1)
        await world.endpoint.schedule("orders", "y", delay=1)
        await world.backend.sender.delete("gone")
        await world.clock.advance(1)
        result = await world.endpoint.deliver_due()
        assert (result.handed_over, result.failed) == (1, 1)
        (row,) = [r async for r in world.endpoint.upcoming()]
        assert (row.destination, row.failure_count) == ("gone", 1)


async def test_at_most_once_sends_only_what_this_call_removed():
    async with open_world(guarantee="at_most_once", lookahead=0) as world:
        await world.endpoint.schedule("orders", "x", delay=1)
        await world.clock.advance(1)
        store, remove = world.backend.store, world.backend.store.remove

        async def beaten(rows, guard=None):
            await remove(rows)
            return await remove(rows, guard)

        store.remove = beaten
        assert (await world.endpoint.deliver_due()).handed_over == 0
        assert world.in_queue("orders") == []


@pytest.mark.parametrize("breaks", ["the removal of one partition", "the lease"])
async def test_at_most_once_puts_back_what_it_removed_and_could_not_send(breaks):
    async with open_world(guarantee="at_most_once", lookahead=0) as world:
        for n in range(6):
            await world.endpoint.schedule("orders", n, delay=1 + n * 1800)
        await world.clock.advance(4 * 3600)
        backend, store, remove = world.backend, world.backend.store, world.backend.store.remove
        broken = True

        async def half(rows, guard=None):
            if not broken or breaks == "the lease":
                return await remove(rows, guard)
            answers = [*await remove(rows[:3], guard), None, None, None]
            error = ServiceBusy("503")
            note_removed(error, answers)
            raise error

        async def lost(*_, **__):
            raise LeaseLost

        send, store.remove = backend.sender.send, half
        if breaks == "the lease":
            backend.sender.send = lost
            await world.endpoint.deliver_due()
        else:
            with pytest.raises(ServiceBusy):
                await world.endpoint.deliver_due()
        assert len(world.rows) == 6
        assert world.in_queue("orders") == []
        broken, backend.sender.send = False, send
        assert (await world.endpoint.deliver_due()).handed_over == 6


async def test_stop_finishes_what_is_under_way_and_begins_nothing_new():
    async with open_world(lookahead=0, send_concurrency=2, unremoved_limit=10) as world:
        for n in range(500):
            await world.endpoint.schedule("orders", n, delay=1)
        await world.clock.advance(1)
        stop = asyncio.Event()
        running = asyncio.create_task(world.endpoint.run(stop))
        await world.log.wait(HandedOver, count=120)
        stop.set()
        await running
        sent = len(world.in_queue("orders"))
        assert sent < 500
        assert len(world.rows) == 500 - sent
        record = await world.backend.lease.holder()
        assert record.leased is False


async def test_a_single_pass_cleans_up_large_bodies_past_their_age_too():
    async with open_world(payload_retention="1d") as world:
        await world.endpoint.schedule("orders", bytes(100_000), delay=60)
        payloads = world.account.payloads[world.endpoint.settings.table_name]
        await world.clock.advance(120)
        await world.endpoint.deliver_due()
        assert len(payloads) == 1
        await world.clock.advance(timedelta(days=2))
        await world.endpoint.deliver_due()
        assert payloads == {}
