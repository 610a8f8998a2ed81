"""Scheduling: what becomes a row, what goes straight to its queue, and what is refused."""

import dataclasses
import enum
from datetime import UTC, datetime, timedelta

import pytest
from engine_cases import open_world
from pydantic import BaseModel

from postdate import DelayedDeliveryDisabled, Endpoint, Outgoing
from postdate.errors import (
    DestinationNotFound,
    InvalidBody,
    InvalidDestination,
    InvalidDueTime,
    InvalidHandle,
    InvalidHeader,
    MessageTooLarge,
    PostdateError,
    UsageError,
)
from postdate.events import Expired, Scheduled
from postdate.model import headers as h
from postdate.testing.clock import VirtualClock


@dataclasses.dataclass
class Order:
    number: int


class Invoice(BaseModel):
    total: float


async def test_a_long_delay_becomes_a_row_and_a_short_one_goes_to_its_queue():
    async with open_world() as world:
        await world.endpoint.schedule("orders", "long", delay=31)
        await world.endpoint.schedule("orders", "short", delay=29.5)
        assert len(world.rows) == 1
        (hidden,) = world.in_queue("orders")
        assert hidden.visible_at == world.clock.now() + timedelta(seconds=30)  # whole seconds, never early
        assert [e.path for e in world.log.of(Scheduled)] == ["row", "queue"]


@pytest.mark.parametrize("delay", [0, -5, timedelta(0), timedelta(days=-400), "0s"])
async def test_a_delay_of_zero_or_less_is_sent_at_once(delay):
    async with open_world(lookahead=0) as world:
        await world.endpoint.schedule("orders", "x", delay=delay)
        assert [m.body for m in await world.take("orders")] == [b"x"]


async def test_an_instant_past_is_sent_at_once():
    async with open_world() as world:
        await world.endpoint.schedule("orders", "x", at=datetime(1999, 1, 1, tzinfo=UTC))
        assert len(await world.take("orders")) == 1


async def test_the_same_id_destination_and_time_twice_is_one_message_as_a_row():
    async with open_world() as world:
        at = world.clock.now() + timedelta(hours=1)
        one = await world.endpoint.schedule("orders", "x", at=at, message_id="id-1")
        two = await world.endpoint.schedule("orders", "x", at=at, message_id="id-1")
        assert one == two
        assert len(world.rows) == 1


async def test_the_same_id_destination_and_time_twice_is_one_message_in_the_queue():
    async with open_world() as world:
        at = world.clock.now() + timedelta(seconds=5)
        one = await world.endpoint.schedule("orders", "x", at=at, message_id="id-1")
        two = await world.endpoint.schedule("orders", "x", at=at, message_id="id-1")
        assert one == two
        assert len(world.in_queue("orders")) == 1


async def test_a_repeat_that_comes_within_the_lookahead_finds_the_waiting_row():
    async with open_world() as world:
        at = world.clock.now() + timedelta(seconds=40)
        one = await world.endpoint.schedule("orders", "x", at=at, message_id="id-1")
        await world.clock.advance(20)
        assert await world.endpoint.schedule("orders", "x", at=at, message_id="id-1") == one
        assert world.in_queue("orders") == []


@pytest.mark.parametrize(
    ("body", "content", "kind"),
    [
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        ("Größe", "Größe".encode(), "text/plain"),
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        (Order(7), b'{"number":7}', "application/json"),
        (Invoice(total=1.5), b'{"total":1.5}', "application/json"),
        (None, b"null", "application/json"),
    ],
)
async def test_bodies_of_every_kind_become_bytes_with_their_content_type(body, content, kind):
    async with open_world() as world:
        await world.endpoint.send("orders", body)
        (message,) = await world.take("orders")
        assert message.body == content
        assert message.headers[h.CONTENT_TYPE] == kind


async def test_headers_tell_a_dotnet_receiver_what_it_expects():
    async with open_world(queue="orders") as world:
        at = world.clock.now() + timedelta(seconds=5)
        await world.endpoint.schedule(
            "orders", Order(1), at=at, message_id="id-1", headers={"Mine": "x", h.CORRELATION_ID: "c"}
        )
        (message,) = world.opened("orders")
        assert message.message_id == "id-1"
        assert message.headers[h.MESSAGE_ID] == "id-1"
        assert message.headers[h.MESSAGE_INTENT] == "Send"
        assert message.headers[h.CORRELATION_ID] == "c"
        assert message.headers[h.REPLY_TO] == "orders"
        assert message.headers[h.DELIVER_AT] == h.format_instant(at)
        assert message.headers[h.ENCLOSED_TYPES] == f"{Order.__module__}.Order"
        assert message.headers["Mine"] == "x"


NAIVE = datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"at": NAIVE}, InvalidDueTime, "no time zone"),
        ({"at": datetime(1, 1, 1, tzinfo=UTC)}, InvalidDueTime, "1601"),
        ({"at": datetime(9999, 12, 31, tzinfo=UTC)}, InvalidDueTime, "9998"),
        ({"delay": float("nan")}, InvalidDueTime, "nan"),
        ({"delay": float("inf")}, InvalidDueTime, "inf"),
        ({"delay": timedelta.max}, InvalidDueTime, "9998"),
        ({"delay": "soon"}, InvalidDueTime, "soon"),
        ({"delay": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}, InvalidDueTime, "either"),
        ({}, InvalidDueTime, "delay"),
        ({"delay": 1, "destination": ""}, InvalidDestination, "names no queue"),
        ({"delay": 1, "destination": "a" * 64}, InvalidDestination, "64 characters"),
        ({"delay": 1, "destination": "Orders"}, InvalidDestination, "'orders'"),
        ({"delay": 1, "destination": "orders@nobody"}, InvalidDestination, "nobody"),
        ({"delay": 1, "destination": "order"}, DestinationNotFound, "'orders'"),
        ({"delay": 1, "headers": {"a": 1}}, InvalidHeader, "'a'"),
        ({"delay": 1, "headers": {"a": "\ud800"}}, InvalidHeader, "surrogate"),
        ({"delay": 1, "headers": {"a": "x" * 40_000}}, (InvalidHeader, MessageTooLarge), "headers"),
        ({"delay": 1, "body": object()}, InvalidBody, "object"),
        ({"delay": 1, "message_id": ""}, UsageError, "message_id"),
        ({"delay": 1, "message_id": "\ud800"}, UsageError, "surrogate"),
        ({"delay": 1, "destination": 7}, InvalidDestination, "not text"),
        ({"delay": 1, "headers": {h.TIME_TO_BE_RECEIVED: "soon"}}, InvalidHeader, "soon"),
        ({"delay": 1, "headers": {h.TIME_TO_BE_RECEIVED: "00:00:00"}}, InvalidHeader, "more than zero"),
        ({"delay": 1, "expires_after": 0}, InvalidDueTime, "expires_after"),
    ],
)
async def test_bad_input_is_one_clear_line_and_changes_nothing(arguments, error, says):
    async with open_world() as world:
        call = {"destination": "orders", "body": "x", **arguments}
        destination, body = call.pop("destination"), call.pop("body")
        with pytest.raises(error) as refused:
            await world.endpoint.schedule(destination, body, **call)
        assert says in str(refused.value)
        assert "\n" not in str(refused.value)
        assert world.rows == {}
        assert world.in_queue("orders") == []
        assert not any(world.account.payloads.values())


async def test_a_queue_that_was_missing_is_asked_for_anew_each_time():
    async with open_world() as world:
        with pytest.raises(DestinationNotFound):
            await world.endpoint.schedule("invoices", "x", delay=60)
        await world.backend.sender.create("invoices")
        assert await world.endpoint.schedule("invoices", "x", delay=60)


async def test_when_switched_off_scheduling_says_so_and_sending_works():
    async with open_world(disable_delayed_delivery=True) as world:
        for call in (
            lambda: world.endpoint.schedule("orders", "x", delay=60),
            lambda: world.endpoint.schedule_many([]),
            lambda: world.endpoint.deliver_due(),
            lambda: world.endpoint.run(),
        ):
            with pytest.raises(DelayedDeliveryDisabled, match="POSTDATE_DISABLE_DELAYED_DELIVERY"):
                await call()
        with pytest.raises(DelayedDeliveryDisabled):
            world.endpoint.schedule_each([])
        assert world.account.tables == {}
        assert world.account.leases == {}
        await world.endpoint.send("orders", "x")
        assert len(await world.take("orders")) == 1


async def test_many_are_stored_and_a_refused_one_is_told_by_its_index():
    async with open_world() as world:
        messages = [Outgoing("orders", n, delay=60 + n) for n in range(1200)]
        messages[7] = Outgoing("Orders", 7, delay=60)
        messages[900] = Outgoing("orders", 900, delay="never")
        result = await world.endpoint.schedule_many(messages)
        assert sorted(result.failures) == [7, 900]
        assert all(isinstance(e, PostdateError) for e in result.failures.values())
        assert [n for n, handle in enumerate(result.handles) if handle is None] == [7, 900]
        assert len(world.rows) == 1198


async def test_many_may_come_from_an_async_iterable_and_be_short():
    async def produce():
        for n in range(3):
            yield Outgoing("orders", n, delay=n)

    async with open_world() as world:
        result = await world.endpoint.schedule_many(produce())
        assert all(result.handles)
        assert len(world.in_queue("orders")) == 3


async def test_a_message_expires_so_long_after_its_due_time():
    async with open_world() as world:
        await world.endpoint.schedule("orders", "x", delay=10, expires_after=5)
        (hidden,) = world.in_queue("orders")
        assert hidden.expires_at == world.clock.now() + timedelta(seconds=15)


async def test_an_expired_row_is_dropped_and_told():
    async with open_world() as world:
        await world.endpoint.schedule("orders", "x", delay=60, expires_after=5)
        await world.clock.advance(66)
        result = await world.endpoint.deliver_due()
        assert result.handed_over == 1
        assert world.in_queue("orders") == []
        assert world.rows == {}
        assert len(world.log.of(Expired)) == 1


async def test_a_raw_destination_gets_the_body_alone():
    async with open_world(envelopes={"orders": "raw-text"}) as world:
        await world.endpoint.schedule("orders", {"a": 1}, delay=60)
        await world.clock.advance(60)
        await world.endpoint.deliver_due()
        assert [m.text for m in world.in_queue("orders")] == ['{"a":1}']
        with pytest.raises(InvalidBody, match="raw"):
            await world.endpoint.send("orders", b"\x00")
        with pytest.raises(MessageTooLarge, match="raw-text"):
            await world.endpoint.send("orders", "x" * 70_000)


async def test_an_endpoint_that_is_not_open_says_how_to_open_it():
    endpoint = Endpoint("x", backend="memory", clock=VirtualClock())
    with pytest.raises(UsageError, match="async with"):
        await endpoint.send("orders", "x")


async def test_a_text_that_is_no_handle_is_refused():
    async with open_world() as world:
        for text in ("", "abc", "zzzz" * 9, "ü"):
            with pytest.raises(InvalidHandle):
                await world.endpoint.cancel(text)


async def test_a_time_to_live_of_dotnets_maximum_means_never():
    async with open_world() as world:
        maximum = {h.TIME_TO_BE_RECEIVED: "10675199.02:48:05.4775807"}
        await world.endpoint.schedule("orders", "x", delay=10, headers=maximum)
        (hidden,) = world.in_queue("orders")
        assert hidden.expires_at is None


class Destination(enum.StrEnum):
    ORDERS = "orders"


async def test_an_enum_of_text_is_taken_as_its_text():
    async with open_world() as world:
        await world.endpoint.schedule(Destination.ORDERS, "x", delay=60, message_id=Destination.ORDERS)
        (message,) = [m async for m in world.endpoint.upcoming()]
        assert (type(message.destination), message.destination) == (str, "orders")
        assert message.message_id == "orders"
