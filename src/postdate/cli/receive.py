"""`postdate receive`: messages out of a queue."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.render import body_fields, instant, preview
from postdate.cli.signals import stop_signals
from postdate.engine.destinations import Destinations
from postdate.engine.reception import Delivery, Reception
from postdate.errors import DestinationNotFound, UsageError
from postdate.model.durations import parse_duration
from postdate.model.limits import RECEIVE_MESSAGES


@command(
    prints="one object per line: `message_id`, `queue`, `due_at`, `received_at`, `dequeue_count`, `term`, "
    "`form`, `headers`, `body`, `body_encoding`"
)
async def receive(
    call: Call,
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="queue or queue@alias; default: the own queue.")
    ] = None,
    ack: Annotated[
        bool,
        typer.Option("--ack/--no-ack", help="Delete what was printed, or put it back at the end (a peek)."),
    ] = True,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    idle: Annotated[
        str, typer.Option(help="End when the queue was empty for so long; 0: as soon as it is empty.")
    ] = "0",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Print the messages of a queue, and delete them from it.

    Each is deleted after it was printed. With --no-ack they become visible again when the command ends.
    """
    if follow and not ack:
        raise UsageError("--follow --no-ack would print the same messages again and again; leave one out")
    pause = None if follow else parse_duration(idle)
    with stop_signals() as stop:
        async with call.endpoint() as endpoint:
            batch = min(count or RECEIVE_MESSAGES, endpoint.settings.receive_batch)
            deliveries = endpoint.receive(queue, idle=pause, batch=batch)
            try:
                reception = endpoint.parts.reception
                await _print(call, reception, deliveries, stop, ack=ack, count=count)
            except DestinationNotFound as error:
                parts = endpoint.parts
                await Destinations(parts.backend.sender, parts.clock).check(
                    error.destination
                )  # with near names
                raise


async def _print(
    call: Call,
    reception: Reception,
    deliveries: AsyncIterator[Delivery],
    stop: asyncio.Event,
    *,
    ack: bool,
    count: int | None,
) -> None:
    kept: list[Delivery] = []
    printed = 0
    try:
        while count is None or printed < count:
            delivery = await _next(deliveries, stop)
            if delivery is None:
                break
            printed += 1
            if not ack:
                kept.append(delivery)
            _print_one(call, delivery)
            if ack:
                await delivery.ack()
    finally:
        for delivery in kept:
            await reception.leave(delivery)
    if not printed:
        call.out.note("the queue is empty")


async def _next(deliveries: AsyncIterator[Delivery], stop: asyncio.Event) -> Delivery | None:
    """The next delivery; None at the end, or when asked to stop."""
    coming = asyncio.ensure_future(anext(deliveries, None))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        stopping.cancel()
        coming.cancel()
        await asyncio.wait({coming})


def _print_one(call: Call, delivery: Delivery) -> None:
    if not call.out.json:
        call.out.text(f"{instant(delivery.received_at)}  {delivery.message_id}  {preview(delivery.body)}")
        return
    call.out.line(
        {
            "message_id": delivery.message_id,
            "queue": delivery.received.queue,
            "due_at": delivery.due_at,
            "received_at": delivery.received_at,
            "dequeue_count": delivery.dequeue_count,
            "term": delivery.term,
            "form": delivery.form.value,
            "headers": delivery.headers,
            **body_fields(delivery.body),
        }
    )
