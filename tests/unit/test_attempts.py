"""Attempts are exactly N + 1, the error queue gets one copy, and nobody else waits for it."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import NEVER_CRITICAL, Outage, open_world

from postdate import Outgoing
from postdate.errors import (
    AccessDenied,
    DestinationNotFound,
    MessageTooLarge,
    OutcomeUnknown,
    ServiceBusy,
    StorageError,
)
from postdate.events import DispatchFailed, ErrorQueueRefused, HandedOver, MovedToErrorQueue, PassFinished
from postdate.model import headers as h

DOTNET_HEADERS = '{"NServiceBus.MessageId":"m1","NServiceBus.FailedQ":"an older failure"}'


def dotnet_row(second, number=0, **changes):
    text = f"{second:%Y%m%d%H%M%S}"
    keys = {"PartitionKey": text[:10], "RowKey": f"{text}_{number:032x}"}
    return {**keys, "Destination": "orders", "MessageId": "m1", "Headers": DOTNET_HEADERS, **changes}


def count_sends(world):
    """The destination of each send, whatever becomes of it."""
    sender, send, sends = world.backend.sender, world.backend.sender.send, []

    async def counted(destination, text, **options):
        sends.append(destination)
        return await send(destination, text, **options)

    sender.send = counted
    return sends


async def serve(world, seconds):
    running = asyncio.create_task(world.endpoint.run())
    await world.clock.advance(seconds)
    running.cancel()
    await world.clock.advance(30)
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("retries", [0, 3, 7])
async def test_n_retries_are_n_plus_one_attempts_and_then_one_copy_in_the_error_queue(retries, guarantee):
    async with open_world(lookahead=0, number_of_retries=retries, guarantee=guarantee) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", {"a": 1}, delay=2, message_id="m1", headers={"mine": "kept"})
        await world.backend.sender.delete("gone")
        sends = count_sends(world)
        await serve(world, 400)
        assert sends == ["gone"] * (retries + 1) + ["error"]
        assert [e.attempts for e in world.log.of(DispatchFailed)] == list(range(1, retries + 1))
        assert [e.attempts for e in world.log.of(MovedToErrorQueue)] == [retries + 1]
        assert world.rows == {}
        (copy,) = world.opened("error")
        assert (copy.message_id, copy.body) == ("m1", b'{"a":1}')
        assert copy.headers["mine"] == "kept"
        assert copy.headers[h.FAILED_QUEUE] == "gone"
        assert copy.headers[h.ATTEMPTS] == str(retries + 1)
        assert world.in_queue("error")[0].expires_at is None


async def test_attempts_are_counted_in_the_row_and_not_in_a_process():
    """Each attempt by another process: the counter goes with the row."""
    async with open_world(lookahead=0, number_of_retries=3) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=2)
        await world.backend.sender.delete("gone")
        attempts = 0
        while world.rows:
            await world.clock.advance(60)
            async with open_world(
                account=world.account, clock=world.clock, lookahead=0, number_of_retries=3
            ) as other:
                sends = count_sends(other)
                await other.endpoint.deliver_due()
                attempts += sends.count("gone")
        assert attempts == 4
        assert len(world.in_queue("error")) == 1


async def test_a_counter_that_somebody_else_wrote_meanwhile_is_the_one_that_counts():
    async with open_world(lookahead=0, number_of_retries=3) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=2)
        await world.backend.sender.delete("gone")
        sends = count_sends(world)
        store, update, others = world.backend.store, world.backend.store.update, [3]

        async def overtaken(row, **values):
            if others:
                assert await update(row, failure_count=others.pop(), next_attempt_at=None)
            return await update(row, **values)

        store.update = overtaken
        await serve(world, 60)
        assert sends == ["gone", "gone", "error"]
        assert world.rows == {}


async def test_a_counter_whose_writing_was_not_answered_counts_once():
    async with open_world(lookahead=0, number_of_retries=3) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=2)
        await world.backend.sender.delete("gone")
        sends = count_sends(world)
        update = world.backend.store.update

        async def unanswered(row, **values):
            await update(row, **values)
            raise OutcomeUnknown("written, and the answer was lost")

        world.backend.store.update = unanswered
        await serve(world, 60)
        assert sends == ["gone"] * 4 + ["error"]


@pytest.mark.parametrize(
    "error",
    [
        DestinationNotFound("error"),
        StorageError("500 the account is full"),
        MessageTooLarge("413 RequestBodyTooLarge"),
        AccessDenied("a role is missing"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
async def test_a_row_stays_backed_off_until_the_error_queue_takes_it(error, guarantee):
    async with open_world(lookahead=0, number_of_retries=1, guarantee=guarantee, **NEVER_CRITICAL) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=2)
        await world.backend.sender.delete("gone")
        outage = Outage(lambda: error, when=lambda to, *_, **__: to == "error")
        outage.arguments = ()
        outage.of(world.backend.sender, "send")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(300)
        assert 5 <= len(outage.tried) <= 16
        assert len(world.rows) == 1
        refused = world.log.of(ErrorQueueRefused)
        assert all(e.next_attempt_at is not None for e in refused)
        (waiting,) = [row async for row in world.endpoint.upcoming()]
        assert waiting.failure_count >= 5
        outage.lasts = False
        await world.clock.advance(62)
        assert len(world.in_queue("error")) == 1
        assert world.rows == {}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_failures_of_the_service_take_no_attempt_away_from_those_of_the_message():
    async with open_world(lookahead=0, number_of_retries=2, **NEVER_CRITICAL) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=2)
        await world.backend.sender.delete("gone")
        busy = Outage(ServiceBusy, when=lambda to, *_, **__: to == "gone")
        busy.of(world.backend.sender, "send")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(60)
        assert len(busy.tried) >= 5
        (waiting,) = [row async for row in world.endpoint.upcoming()]
        assert waiting.failure_count == 0
        busy.lasts = False
        await world.clock.advance(120)
        (moved,) = world.log.of(MovedToErrorQueue)
        assert moved.attempts == 3
        assert [event.attempts for event in world.log.of(DispatchFailed) if event.counted] == [1, 2]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_row_stays_where_the_error_queue_refuses_and_its_back_off_can_not_be_written():
    async with open_world(lookahead=0, number_of_retries=0, **NEVER_CRITICAL) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=2)
        await world.backend.sender.delete("gone")
        refusing = Outage(ServiceBusy, when=lambda to, *_, **__: to == "error")
        refusing.of(world.backend.sender, "send")
        forgetful = Outage(ServiceBusy).of(world.backend.store, "update")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(30)
        assert len(world.log.of(ErrorQueueRefused)) > 1
        assert len(world.rows) == 1
        refusing.lasts = forgetful.lasts = False
        await world.clock.advance(62)
        assert [m.body for m in world.opened("error")] == [b"x"]
        assert world.rows == {}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_copy_that_was_sent_and_whose_row_could_not_be_removed_is_not_sent_again():
    async with open_world(lookahead=0, number_of_retries=0, **NEVER_CRITICAL) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule("gone", "x", delay=2)
        await world.backend.sender.delete("gone")
        outage = Outage(StorageError).of(world.backend.store, "remove")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(120)
        assert len(world.in_queue("error")) == 1
        assert len(world.rows) == 1
        outage.lasts = False
        await world.clock.advance(30)
        assert (len(world.in_queue("error")), world.rows) == (1, {})
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_fault_header_that_is_there_already_keeps_no_row_out_of_the_error_queue():
    """Where .NET adds it, an older one makes the row poison for ever."""
    async with open_world(number_of_retries=0) as world:
        world.backend.store.insert_raw(dotnet_row(world.clock.now(), Destination="gone"))
        await world.clock.advance(1)
        await world.endpoint.deliver_due()
        (copy,) = world.opened("error")
        assert copy.headers[h.FAILED_QUEUE] == "gone"
        assert world.rows == {}


@pytest.mark.parametrize("destination", [None, "", " ", "@far", "orders@nowhere", "no/queue?", 7])
async def test_a_row_whose_destination_is_none_goes_to_the_error_queue_and_blocks_nobody(destination):
    async with open_world(number_of_retries=0) as world:
        world.backend.store.insert_raw(dotnet_row(world.clock.now(), 1, Destination=destination))
        world.backend.store.insert_raw(dotnet_row(world.clock.now(), 2))
        await world.clock.advance(1)
        result = await world.endpoint.deliver_due()
        assert (result.handed_over, result.moved_to_error_queue) == (1, 1)
        assert world.rows == {}


async def lags(poison):
    """How late each of 1,000 healthy messages is handed over, behind so many that can't be read or sent."""
    async with open_world(lookahead=0, number_of_retries=5, send_concurrency=16) as world:
        send = world.backend.sender.send

        async def slow(*args, **options):
            await world.clock.sleep(0.01)
            return await send(*args, **options)

        world.backend.sender.send = slow
        due = world.clock.now() + timedelta(seconds=10)
        await world.backend.sender.create("gone")
        await world.endpoint.schedule_many(Outgoing("gone", n, at=due) for n in range(poison))
        due += timedelta(seconds=0.001)
        await world.endpoint.schedule_many(Outgoing("orders", n, at=due) for n in range(1000))
        await world.backend.sender.delete("gone")
        await serve(world, 60)
        assert len(world.in_queue("orders")) == 1000
        return sorted((e.handed_over_at - e.due_at).total_seconds() for e in world.log.of(HandedOver))


async def test_poison_rows_at_the_head_of_the_table_delay_no_other():
    control, with_one, with_sixty = await lags(0), await lags(1), await lags(60)
    for late in (with_one, with_sixty):
        assert late[989] < 2 * control[989]


async def test_a_page_of_nothing_but_rows_in_back_off_costs_no_pass_of_its_own():
    async with open_world(lookahead=0, number_of_retries=50, **NEVER_CRITICAL) as world:
        await world.backend.sender.create("gone")
        await world.endpoint.schedule_many(Outgoing("gone", n, delay=2) for n in range(60))
        await world.backend.sender.delete("gone")
        running = asyncio.create_task(world.endpoint.run())
        await world.clock.advance(300)
        passes = len(world.log.of(PassFinished))
        await world.clock.advance(60)
        assert len(world.log.of(PassFinished)) - passes <= 60 + 6
        await world.endpoint.schedule("orders", "healthy", delay=1)
        await world.clock.advance(1.1)
        assert len(world.in_queue("orders")) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
