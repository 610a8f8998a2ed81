"""A copy takes a message's place after midnight, and the inbox still knows it: its day is that of the original."""

from datetime import timedelta

from inbox_cases import inbox_of, open_processes
from test_inbox_handlers import OWN, SECONDS_TO_MIDNIGHT, running

from postdate.errors import ServiceBusy
from postdate.events import InboxRepeat
from postdate.model import headers as h
from postdate.model.envelope import unwrap, wrap
from postdate.model.message import Message

#: Of another sender: no header tells when it was sent.
BARE = wrap(Message("order-7", {}, b"{}"))


def handle_with(world, handled) -> None:
    """A handler that works for 40 s, prolonged meanwhile."""

    @world.endpoint.handler
    @inbox_of(world).once_per_message
    async def place(body: bytes, context) -> None:
        handled.append(context.message_id)
        context.send("invoices", "x")
        await world.clock.sleep(40)


async def test_a_copy_of_what_would_expire_is_the_same_message_to_the_inbox():
    async with open_processes(2) as (one, two):
        handled: list[str] = []
        handle_with(one, handled)
        handle_with(two, handled)
        await one.clock.advance(SECONDS_TO_MIDNIGHT - 5)
        await one.backend.sender.send(OWN, BARE, time_to_live=20)
        inserted = one.in_queue(OWN)[0].inserted_at

        ack, first = one.backend.receiver.ack, [True]

        async def killed_before_the_end(received):
            if first:
                first.pop()
                return await ack(received)
            raise ServiceBusy("503")

        one.backend.receiver.ack = killed_before_the_end
        async with running(one):
            await one.clock.advance(45)
        (left,) = one.in_queue(OWN)
        assert left.inserted_at.date() > inserted.date()
        async with running(two):
            await two.clock.advance(120)
        assert handled == ["order-7"]
        assert len(two.log.of(InboxRepeat)) == 1
        assert len(two.in_queue("invoices")) == 1
        assert two.in_queue(OWN) == []


async def test_what_comes_back_from_the_error_queue_is_the_same_message_to_the_inbox():
    async with open_processes(1, immediate_retries=0, delayed_retries=0) as (world,):
        calls: list[str] = []

        @world.endpoint.handler
        async def fail(body: bytes, context) -> None:
            calls.append(context.message_id)
            raise RuntimeError("no")

        await world.clock.advance(SECONDS_TO_MIDNIGHT - 5)
        await world.backend.sender.send(OWN, BARE)
        inserted = world.in_queue(OWN)[0].inserted_at
        async with running(world):
            await world.clock.advance(1)
        assert calls == ["order-7"]
        (failed,) = world.in_queue("error")
        headers = unwrap(failed.text, "").message.headers
        kept = headers[h.FIRST_INSTANT]
        assert kept is not None
        assert abs(h.parse_instant(kept) - inserted) < timedelta(milliseconds=1)
