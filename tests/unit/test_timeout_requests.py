"""Messages to the timeout manager that can't be handled: tried again, or in the error queue with the reason."""

import base64
import json
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
    notice,
    open_old_world,
    put,
    serving,
    store,
    timeout,
)

from postdate.errors import AccessDenied, DestinationNotFound, ServiceBusy, StorageError
from postdate.events import ErrorQueueRefused, MovedToErrorQueue, PoisonMoved, TimeoutMessageFailed
from postdate.model import headers as h
from postdate.model.envelope import unwrap, wrapper_json

SOON = START + timedelta(hours=1)


async def taken_by_the_manager(world, message, queue=REQUESTS, by=MINUTE):
    """Put it into the queue, and let the manager work; what is in the error queue then."""
    await put(world, queue, message)
    async with serving(world.endpoint):
        await world.clock.advance(by)
    return world.opened("error")


HOPELESS = {
    "missing expiry": (asking(SOON, **{h.TIMEOUT_EXPIRE: None}), "Timeout.Expire is missing"),
    "expiry of another form": (
        asking(SOON, **{h.TIMEOUT_EXPIRE: "2026-03-01T07:08:09Z"}),
        "is not an instant",
    ),
    "expiry that is no instant": (
        asking(SOON, **{h.TIMEOUT_EXPIRE: "2026-13-41 07:08:09:987654 Z"}),
        "is not an instant",
    ),
    "no destination": (asking(SOON, **{h.TIMEOUT_DESTINATION: None}), "ReplyToAddress are missing"),
    "destination without a queue": (asking(SOON, **{h.TIMEOUT_DESTINATION: "@there"}), "names no queue"),
    "clear without a saga id": (asking(SOON, **{h.CLEAR_TIMEOUTS: "True"}), "empty or not a GUID"),
    "clear with an empty saga id": (
        asking(SOON, **{h.CLEAR_TIMEOUTS: "True", h.SAGA_ID: "00000000-0000-0000-0000-000000000000"}),
        "empty or not a GUID",
    ),
    "clear with something else": (
        asking(SOON, **{h.CLEAR_TIMEOUTS: "True", h.SAGA_ID: "saga"}),
        "empty or not a GUID",
    ),
}


@pytest.mark.parametrize(("message", "why"), HOPELESS.values(), ids=HOPELESS)
async def test_what_no_repeat_can_help_goes_to_the_error_queue_at_once(message, why):
    async with open_old_world() as world:
        await store(world, timeout(saga_id=SAGA))
        (failed,) = await taken_by_the_manager(world, message, by=1)
        assert why in failed.headers[h.EXCEPTION_MESSAGE]
        assert failed.headers[h.FAILED_QUEUE] == REQUESTS
        assert failed.body == message.body
        assert {name: failed.headers[name] for name in message.headers} == message.headers
        assert world.in_queue(REQUESTS) == []
        assert await world.backend.timeouts.count() == 1
        (event,) = world.log.of(MovedToErrorQueue)
        assert (event.destination, event.attempts) == (REQUESTS, 1)


@pytest.mark.parametrize(
    ("message", "why"),
    [(notice(""), "Timeout.Id is missing"), (asking(SOON), "Timeout.Id is missing")],
)
async def test_a_notice_without_an_id_goes_to_the_error_queue(message, why):
    async with open_old_world() as world:
        (failed,) = await taken_by_the_manager(world, message, NOTICES, by=1)
        assert why in failed.headers[h.EXCEPTION_MESSAGE]
        assert failed.headers[h.FAILED_QUEUE] == NOTICES


async def test_a_notice_of_a_timeout_that_cannot_be_read_goes_to_the_error_queue_and_that_stays():
    async with open_old_world() as world:
        await store(world, timeout())
        main = world.account.timeouts["TimeoutDataTableName"].rows[timeout().id, ""]
        world.backend.timeouts.insert_raw({**main, "Destination": 7})
        (failed,) = await taken_by_the_manager(world, notice(timeout().id), NOTICES, by=1)
        assert "column Destination holds int" in failed.headers[h.EXCEPTION_MESSAGE]
        assert failed.headers[h.TIMEOUT_ID] == timeout().id
        assert await world.backend.timeouts.count() == 1


def encoded(**members):
    return base64.b64encode(json.dumps(members).encode()).decode()


@pytest.mark.parametrize("queue", [REQUESTS, NOTICES])
@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        encoded(Id="1", Body="", MessageIntent=1),  # no Headers
        encoded(Id="1", Headers={"a": 1}, Body=""),
        encoded(Id="1", Headers={}, Body="not base64!"),
        encoded(order=7),
    ],
)
async def test_what_is_no_envelope_goes_to_the_error_queue_as_it_is(queue, text):
    async with open_old_world() as world:
        await put(world, queue, text)
        async with serving(world.endpoint):
            await world.clock.advance(1)
        assert [stored.text for stored in world.in_queue("error")] == [text]
        assert world.in_queue(queue) == []
        assert [event.queue for event in world.log.of(PoisonMoved)] == [queue]


async def test_a_body_that_is_null_is_an_empty_one():
    async with open_old_world() as world:
        wrapper = {**json.loads(wrapper_json(asking(SOON))), "Body": None}
        receipt = await put(world, REQUESTS, encoded(**wrapper))
        async with serving(world.endpoint):
            await world.clock.advance(1)
            found = await world.backend.timeouts.get(receipt.native_id)
            assert found.body == b""
            await world.clock.advance(SOON - world.clock.now() + timedelta(seconds=1))
        assert [m.body for m in world.opened("orders")] == [b""]


async def test_a_missing_destination_costs_five_deliveries_and_then_the_error_queue():
    async with open_old_world() as world:
        message = asking(START, **{h.TIMEOUT_DESTINATION: "nowhere"})
        (failed,) = await taken_by_the_manager(world, message)
        assert failed.headers[h.ATTEMPTS] == "5"
        assert failed.headers[h.FAILED_QUEUE] == REQUESTS
        assert "'nowhere' does not exist" in failed.headers[h.EXCEPTION_MESSAGE]
        assert [event.attempts for event in world.log.of(TimeoutMessageFailed)] == [1, 2, 3, 4]
        # Whoever sends it back to the queue it failed in has it tried anew.
        assert {name: failed.headers[name] for name in message.headers} == message.headers


@pytest.mark.parametrize("time_to_live", [None, 90], ids=["for ever", "expires"])
async def test_a_busy_service_costs_nothing_but_time(time_to_live):
    async with open_old_world() as world:
        add = world.backend.timeouts.add

        async def busy(one):
            raise ServiceBusy("503")

        world.backend.timeouts.add = busy
        await put(world, REQUESTS, asking(SOON), time_to_live)
        async with serving(world.endpoint):
            await world.clock.advance(20 * MINUTE)
            assert world.in_queue("error") == []
            assert 5 < len(world.log.of(TimeoutMessageFailed)) < 80
            world.backend.timeouts.add = add
            await world.clock.advance(MINUTE)
            assert await world.backend.timeouts.count() == 1
            assert world.in_queue(REQUESTS) == []


@pytest.mark.parametrize("message", [asking(SOON, **{h.TIMEOUT_EXPIRE: None}), "plain text"])
async def test_without_an_error_queue_it_stays_where_it_is_until_there_is_one(message):
    async with open_old_world() as world:
        await world.backend.sender.delete("error")
        await put(world, REQUESTS, message)
        async with serving(world.endpoint):
            await world.clock.advance(10 * MINUTE)
            assert len(world.in_queue(REQUESTS)) == 1
            assert 5 <= len(world.log.of(ErrorQueueRefused)) <= 11
            await world.backend.sender.create("error")
            await world.clock.advance(3 * MINUTE)
        assert world.in_queue(REQUESTS) == []
        assert len(world.in_queue("error")) == 1


async def test_what_is_too_large_with_its_fault_headers_goes_with_its_body_in_a_blob():
    async with open_old_world() as world:
        large = replace(asking(START, 1), body=bytes(36_500))
        hopeless = replace(large, headers={k: v for k, v in large.headers.items() if k != h.TIMEOUT_EXPIRE})
        await put(world, REQUESTS, hopeless)
        async with serving(world.endpoint):
            await world.clock.advance(5 * MINUTE)
        (copy,) = world.opened("error")
        assert await world.backend.payloads.get(copy.headers[h.PAYLOAD]) == bytes(36_500)
        assert world.in_queue(REQUESTS) == []


async def test_a_busy_service_counts_as_no_attempt():
    async with open_old_world(timeout_outage_limit="1h") as world:
        sender, send, calls = world.backend.sender, world.backend.sender.send, []

        async def failing(destination, text, **options):
            if destination != "nowhere":
                return await send(destination, text, **options)
            calls.append(destination)
            raise ServiceBusy("503") if len(calls) <= 7 else DestinationNotFound("nowhere")

        sender.send = failing
        message = asking(START, 1)
        await put(
            world, REQUESTS, replace(message, headers={**message.headers, h.TIMEOUT_DESTINATION: "nowhere"})
        )
        async with serving(world.endpoint):
            await world.clock.advance(60 * MINUTE)
        (copy,) = world.opened("error")
        assert len(calls) == 7 + 5
        assert copy.headers[h.ATTEMPTS] == "5"


@pytest.mark.parametrize("error", [StorageError("500"), ServiceBusy("503"), AccessDenied("403")], ids=str)
async def test_an_error_queue_or_blob_store_that_refuses_keeps_it_until_they_do_not(error):
    async with open_old_world() as world:
        large = replace(asking(START, 1), body=bytes(36_500))
        hopeless = replace(large, headers={k: v for k, v in large.headers.items() if k != h.TIMEOUT_EXPIRE})
        put_blob, send, refusing = world.backend.payloads.put, world.backend.sender.send, {"blob", "queue"}

        async def no_blob(*arguments, **options):
            if "blob" in refusing:
                raise error
            await put_blob(*arguments, **options)

        async def no_error_queue(destination, text, **options):
            if destination == "error" and "queue" in refusing:
                raise error
            return await send(destination, text, **options)

        await put(world, REQUESTS, hopeless)
        world.backend.payloads.put, world.backend.sender.send = no_blob, no_error_queue
        async with serving(world.endpoint):
            for what in ("blob", "queue"):
                await world.clock.advance(5 * MINUTE)
                assert len(world.in_queue(REQUESTS)) == 1
                assert world.in_queue("error") == []
                refusing.discard(what)
            await world.clock.advance(5 * MINUTE)
        assert len(world.opened("error")) == 1
        assert world.in_queue(REQUESTS) == []


async def test_a_poison_message_keeps_nobody_waiting():
    async with open_old_world() as world:
        for n in range(40):
            await put(world, REQUESTS, "plain text" if n % 2 else asking(START, n))
        async with serving(world.endpoint):
            await world.clock.advance(3)
        assert len(world.in_queue("orders")) == len(world.in_queue("error")) == 20


async def test_the_golden_control_message_is_understood(golden):
    async with open_old_world() as world:
        headers = golden["timeout_manager_headers"]["dispatch_request_headers"]
        one = timeout(due_at=START, id=headers[h.TIMEOUT_ID])
        await store(world, one)
        assert await taken_by_the_manager(world, replace(notice("x"), headers=headers), NOTICES, by=1) == []
        (message,) = world.in_queue("orders")
        assert unwrap(message.text, "").message.headers[h.RELATED_TO_TIMEOUT] == one.id


def test_the_queues_are_named_as_those_of_older_endpoints(golden):
    from postdate.settings import load_settings

    golden_headers = golden["timeout_manager_headers"]
    requests, notices = load_settings(endpoint="Contoso.Orders").timeout_queues
    assert requests == golden_headers["sent_to_queue"] == REQUESTS
    assert notices == golden_headers["dispatch_request_queue"] == NOTICES
    assert load_settings(endpoint="X", queue="my-orders").timeout_queues[0] == "my-orders-timeouts"
    long = "Contoso.Warehouse.Fulfilment.VeryLongEndpointName.ThatExceeds"
    names = load_settings(endpoint=long).timeout_queues
    assert all(3 <= len(name) <= 63 for name in names)
    assert len(set(names)) == 2
