"""An inbox around handlers that the real receiver runs."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from engine_cases import open_world
from inbox_cases import CLAIM, inbox_of, open_processes

from postdate import MessageContext
from postdate.errors import ConfigurationError, ServiceBusy, UsageError
from postdate.events import Handled, InboxRepeat, MessageFailed, MessageReturned
from postdate.inbox import Inbox, current
from postdate.model import headers as h

OWN = "unit-tests"
#: From where the clock stands at first, at noon.
SECONDS_TO_MIDNIGHT = 12 * 3600


@dataclass
class Order:
    number: int


@asynccontextmanager
async def running(world):
    task = asyncio.create_task(world.endpoint.run())
    try:
        yield
    finally:
        task.cancel()
        await world.clock.advance(10)
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def open_receiver(**settings):
    async with open_processes(1, **settings) as (world,):
        yield world


async def copy_all(world, queue=OWN):
    for stored in world.in_queue(queue):
        await world.backend.sender.send(queue, stored.text)


async def test_a_message_that_comes_twice_is_handled_once_and_what_it_sent_leaves_once():
    async with open_receiver() as world:
        orders = []

        @world.endpoint.handler
        @inbox_of(world).once_per_message
        async def place(order: Order, context: MessageContext) -> None:
            orders.append(order)
            context.send("invoices", {"order": order.number})
            current().upsert("bill", order.number)

        await world.endpoint.send(OWN, Order(7), message_id="order-7")
        await copy_all(world)
        async with running(world):
            await world.clock.advance(2 * CLAIM)
        assert orders == [Order(7)]
        assert [m.body for m in world.opened("invoices")] == [b'{"order":7}']
        assert len(world.log.of(Handled)) == 2
        assert world.log.of(InboxRepeat) == [InboxRepeat("billing", "order-7", 0)]
        recorded = await inbox_of(world).recorded("order-7", at=world.clock.now())
        assert recorded == {"bill": 7}


async def test_a_handler_may_take_the_message_alone():
    async with open_receiver() as world:
        orders = []

        @world.endpoint.handler
        @inbox_of(world).once_per_message
        async def place(order: Order) -> None:
            orders.append(order)
            current().send("invoices", "x")

        await world.endpoint.send(OWN, Order(7))
        await copy_all(world)
        async with running(world):
            await world.clock.advance(5)
        assert orders == [Order(7)]
        assert len(world.in_queue("invoices")) == 1


async def test_a_delayed_retry_finds_what_another_copy_has_done():
    """The one copy fails and is put off; the other one succeeds meanwhile. Sent, due and tried again on three days."""
    async with open_receiver(immediate_retries=0, delayed_retry_increase="25h") as world:
        attempts: list[Any] = []

        @world.endpoint.handler
        @inbox_of(world).once_per_message
        async def place(order: Order, context: MessageContext) -> None:
            attempts.append(context.headers.get(h.RETRIES))
            context.send("invoices", len(attempts))
            if len(attempts) == 1:
                raise RuntimeError("not today")

        await world.clock.advance(SECONDS_TO_MIDNIGHT - 0.5)
        await world.endpoint.schedule(OWN, Order(7), delay=1, message_id="order-7")
        (text,) = [stored.text for stored in world.in_queue(OWN)]
        async with running(world):
            await world.clock.advance(5)
            assert attempts == [None]
            await world.backend.sender.send(OWN, text)
            await world.clock.advance(5)
            assert attempts == [None, None]
            await world.clock.advance(26 * 3600)
        assert attempts == [None, None]
        assert [m.body for m in world.opened("invoices")] == [b"2"]
        assert len(world.log.of(InboxRepeat)) == 1
        assert world.in_queue(OWN) == []


async def test_a_message_that_another_process_works_on_is_given_back_and_has_not_failed():
    async with open_receiver(immediate_retries=0, delayed_retries=0) as world:
        inbox = inbox_of(world)
        handled = []

        @world.endpoint.handler
        @inbox.once_per_message
        async def place(order: Order, context: MessageContext) -> None:
            handled.append(order)

        await world.endpoint.send(OWN, Order(7), message_id="order-7")
        elsewhere = inbox_of(world).once("order-7", at=world.clock.now())
        await elsewhere.__aenter__()
        async with running(world):
            await world.clock.advance(CLAIM * 3)
            assert len(world.log.of(MessageReturned)) >= 3
            await elsewhere.__aexit__(ValueError, ValueError("it failed there"), None)
            await world.clock.advance(CLAIM + 5)
        assert handled == [Order(7)]
        assert world.log.of(MessageFailed) == []


async def test_what_was_committed_and_not_dispatched_is_dispatched_by_the_retry():
    async with open_receiver() as world:
        handled = []

        @world.endpoint.handler
        @inbox_of(world).once_per_message
        async def place(order: Order, context: MessageContext) -> None:
            handled.append(order)
            context.send("invoices", "x")

        await world.endpoint.send(OWN, Order(7))
        send, broken = world.backend.sender.send, [True, True]

        async def fail_at_first(destination, text, **options):
            if destination == "invoices" and broken:
                broken.pop()
                raise ServiceBusy("503")
            return await send(destination, text, **options)

        world.backend.sender.send = fail_at_first
        async with running(world):
            await world.clock.advance(60)
        assert handled == [Order(7)]
        assert len(world.in_queue("invoices")) == 1
        assert world.in_queue(OWN) == []


async def test_a_message_that_is_put_off_has_a_turn_of_its_own_with_messages_of_its_own():
    async with open_receiver() as world:
        turns = []

        @world.endpoint.handler
        @inbox_of(world).once_per_message
        async def place(order: Order, context: MessageContext) -> None:
            turns.append(context.headers.get(h.TURN))
            context.send("invoices", len(turns))
            if len(turns) < 3:
                context.defer(delay=5)

        await world.endpoint.send(OWN, Order(7), message_id="order-7")
        await copy_all(world)
        async with running(world):
            await world.clock.advance(60)
        assert turns == [None, "1", "2"]
        invoices = world.opened("invoices")
        assert [m.body for m in invoices] == [b"1", b"2", b"3"]
        assert len({m.message_id for m in invoices}) == 3
        assert world.in_queue(OWN) == []


async def test_two_endpoints_that_handle_the_same_message_send_other_messages():
    """Or an inbox downstream would drop the second one's."""
    ids = []
    async with open_receiver() as world, open_world(endpoint="Other.Tests", account=world.account) as other:
        for process in (world, other):

            @process.endpoint.handler
            async def place(order: Order, context: MessageContext) -> None:
                ids.append(context.send("invoices", "x"))

            await process.endpoint.send(process.endpoint.settings.own_queue, Order(7), message_id="order-7")
            async with running(process):
                await process.clock.advance(5)
    assert len(set(ids)) == 2


async def test_what_an_outer_decorator_sends_is_the_receivers_to_send():
    async with open_receiver() as world:

        @inbox_of(world).once_per_message
        async def inner(order: Order, context: MessageContext) -> None:
            context.send("invoices", "inner")

        @world.endpoint.handler
        async def outer(order: Order, context: MessageContext) -> None:
            context.send("invoices", "outer")
            await inner(order, context)
            assert [o.body for o in context.outgoing] == ["outer"]

        await world.endpoint.send(OWN, Order(7))
        async with running(world):
            await world.clock.advance(5)
        assert sorted(m.body for m in world.opened("invoices")) == [b"inner", b"outer"]


def test_current_is_for_handlers_of_an_inbox():
    with pytest.raises(UsageError, match="no message is being handled here"):
        current()


async def test_a_plain_function_is_refused():
    async with open_receiver() as world:

        def place(order):
            raise AssertionError

        with pytest.raises(ConfigurationError, match="place of an inbox must be an async def"):
            Inbox(world.endpoint, consumer="billing").once_per_message(place)


@pytest.mark.parametrize("register", ["handler", "timeout_handler"])
async def test_a_handler_that_is_registered_without_its_inbox_is_refused(register):
    async with open_receiver() as world:
        with pytest.raises(ConfigurationError, match=r"@endpoint\.handler above @inbox\.once_per_message"):

            @inbox_of(world).once_per_message
            @getattr(world.endpoint, register)
            async def place(order: Order, context: MessageContext) -> None: ...
