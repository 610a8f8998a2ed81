"""An endpoint with a legacy: store and queues of its older instances, in memory, on a clock that stands still."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from engine_cases import open_world

from postdate.model import headers as h
from postdate.model.envelope import wrap
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.model.message import Message

OWNER = "Contoso.Orders"
REQUESTS, NOTICES = "contoso-orders-timeouts", "contoso-orders-timeoutsdispatcher"
SAGA = "7c1f3b52-9a40-4c43-8b7e-b3f2007a11c6"
#: When a `VirtualClock` begins.
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@asynccontextmanager
async def open_old_world(*, legacy=True, **settings):
    """As `open_world`, with the store and the queues of the timeout manager, unless there is no `legacy`."""
    async with open_world(**{"endpoint": OWNER, **settings}) as world:
        if legacy:
            await world.endpoint.setup(timeout_manager=True)
        yield world


@asynccontextmanager
async def serving(*endpoints):
    """The endpoints serve meanwhile."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for endpoint in endpoints:
            tasks.create_task(endpoint.run(stop))
        try:
            yield
        finally:
            stop.set()


def timeout(number=1, due_at=START + 10 * MINUTE, **more):
    made = LegacyTimeout(
        id=f"3f0d7f3e-6a1c-4f0b-9a55-{number:012d}",
        destination="orders",
        due_at=due_at,
        headers={
            h.MESSAGE_ID: f"m{number}",
            h.CORRELATION_ID: f"m{number}",
            h.MESSAGE_INTENT: "Send",
            h.TIME_SENT: "2026-02-01 00:00:00:000000 Z",
            h.TIMEOUT_EXPIRE: h.format_instant(due_at),
            h.TIMEOUT_DESTINATION: "orders",
        },
        body=b"body",
        owner=OWNER,
    )
    return replace(made, **more)


async def store(world, *timeouts):
    for one in timeouts:
        await world.backend.timeouts.add(one)


def asking(due_at, number=1, **more):
    """What an older instance sends to its timeouts queue."""
    headers = {
        h.MESSAGE_ID: f"m{number}",
        h.MESSAGE_INTENT: "Send",
        h.TIMEOUT_EXPIRE: h.format_instant(due_at),
        h.TIMEOUT_DESTINATION: "orders",
        **more,
    }
    kept = {name: value for name, value in headers.items() if value is not None}
    return Message(f"m{number}", kept, b"body")


def notice(timeout_id):
    """What the poller of an older instance sends to its dispatcher's queue."""
    headers = {h.CONTROL_MESSAGE: "True", h.MESSAGE_INTENT: "Send", h.TIMEOUT_ID: timeout_id}
    return Message("notice", headers)


async def put(world, queue, message, time_to_live=None):
    text = message if isinstance(message, str) else wrap(message)
    return await world.backend.sender.send(queue, text, time_to_live=time_to_live)


def left(world):
    """Rows and bodies that are still in the store."""
    slot = world.account.timeouts["TimeoutDataTableName"]
    return len(slot.rows) + len(slot.states)
