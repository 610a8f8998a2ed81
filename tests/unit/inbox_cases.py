"""Consumers with an inbox, on the memory backend: an endpoint for each process, one account for all."""

from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from engine_cases import open_world

from postdate.backends.memory import MemoryAccount
from postdate.errors import PostdateError, TryLater
from postdate.inbox import Inbox
from postdate.testing.clock import VirtualClock

CLAIM = 30.0
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
AT_ONCE = timedelta(0)


@asynccontextmanager
async def open_processes(count, **settings):
    """So many processes of one endpoint, with queues `orders` and `invoices`."""
    account, clock = MemoryAccount(), VirtualClock()
    async with AsyncExitStack() as stack:
        worlds = [
            await stack.enter_async_context(open_world(account=account, clock=clock, **settings))
            for _ in range(count)
        ]
        await worlds[0].endpoint.setup("invoices")
        yield worlds


def inbox_of(world, consumer="billing", **options):
    return Inbox(world.endpoint, consumer=consumer, **options)


def once_of(world, message_id="order-7", *, consumer="billing", **options):
    return inbox_of(world, consumer, **options).once(message_id, at=world.clock.now())


async def consume(world, inbox, handle, queue="orders"):
    """As a careful consumer does it, until nothing is visible: what is not acknowledged comes again."""
    handled = 0
    async for delivery in world.endpoint.receive(queue, idle=AT_ONCE, batch=1):
        try:
            async with inbox.once_for(delivery) as once:
                if once.fresh:
                    await handle(delivery, once)
        except TryLater as busy:
            await delivery.nack(timedelta(seconds=busy.delay))
        except PostdateError:
            continue
        else:
            await delivery.ack()
            handled += once.fresh
    return handled


async def bill(delivery, once):
    """The handler of most tests: one message, one record."""
    once.send("invoices", {"order": delivery.message_id, "attempt": once.attempt})
    once.upsert("bill", {"attempt": once.attempt})
