"""A consumer with an inbox, as a process of its own that ends, or stands still, at one step.

    python inbox_consumer.py loop|handler INVOICES [PART.METHOD WHEN SIGNAL]

Receives in a loop of its own, or with a handler of the endpoint. Says `ready`, begins at the first line of its input, and ends at the end of it. Of its calls to METHOD of the
storage port PART the first one sends SIGNAL to this very process, WHEN (before or after) it is applied.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta

from postdate import Endpoint, MessageContext, TryLater
from postdate.inbox import Inbox, Once, current
from postdate.settings import load_settings

CLAIM = timedelta(seconds=2)
#: Long enough that several consumers each get some of the messages.
WORK_SECONDS = 0.05


def arm(backend, step, when, number):
    part, _, method = step.partition(".")
    port = getattr(backend, part)
    inner = getattr(port, method)

    async def call(*args, **options):
        setattr(port, method, inner)
        if when == "before":
            os.kill(os.getpid(), signal.Signals[number])
        answer = await inner(*args, **options)
        if when == "after":
            os.kill(os.getpid(), signal.Signals[number])
        return answer

    setattr(port, method, call)


async def handle(endpoint: Endpoint, invoices: str, order: str, once: Once) -> None:
    once.send(invoices, {"order": order, "attempt": once.attempt})
    await endpoint.parts.clock.sleep(WORK_SECONDS)
    once.upsert("bill", {"attempt": once.attempt})


async def serve(endpoint: Endpoint, inbox: Inbox, invoices: str) -> None:
    @endpoint.handler
    @inbox.once_per_message
    async def bill(_: bytes, context: MessageContext) -> None:
        await handle(endpoint, invoices, context.message_id, current())

    await endpoint.run()


async def consume(endpoint: Endpoint, inbox: Inbox, invoices: str) -> None:
    async for delivery in endpoint.receive(batch=1):
        try:
            async with inbox.once_for(delivery) as once:
                if once.fresh:
                    await handle(endpoint, invoices, delivery.message_id, once)
        except TryLater as later:
            print(type(later).__name__, flush=True)
            await delivery.nack(timedelta(seconds=later.delay))
        else:
            await delivery.ack()


async def main(how: str, invoices: str, *trouble: str) -> None:
    async with Endpoint(load_settings()) as endpoint:
        inbox = Inbox(endpoint, consumer="billing", claim_for=CLAIM)
        if trouble:
            arm(endpoint.parts.backend, *trouble)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        work = consume if how == "loop" else serve
        working = asyncio.create_task(work(endpoint, inbox, invoices))
        ending = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        (outcome,) = await asyncio.gather(working, return_exceptions=True)
        if not isinstance(outcome, asyncio.CancelledError):
            raise SystemExit(f"the consumer failed: {outcome!r}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
