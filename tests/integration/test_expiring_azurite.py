"""Messages that expire, on a real storage service: a retry outlives the expiry, and attempts are counted on."""

import asyncio
from datetime import timedelta

from postdate import Endpoint
from postdate.events import MessageFailed
from postdate.model.envelope import wrap
from postdate.model.message import Message
from postdate.testing.signals import EventLog


async def test_a_retry_outlives_the_expiry_of_its_message(postdate_settings):
    settings = postdate_settings.model_copy(
        update={
            "immediate_retries": 1,
            "delayed_retries": 1,
            "delayed_retry_increase": timedelta(seconds=3),
            "error_queue": f"{postdate_settings.own_queue}-error",
        }
    )
    log, stop, calls = EventLog(), asyncio.Event(), []
    async with Endpoint(settings, observers=[log]) as endpoint, asyncio.TaskGroup() as tasks:

        @endpoint.handler
        async def fail(body: bytes, context) -> None:
            calls.append((context.attempt, context.delayed_retries))
            raise RuntimeError("no")

        await endpoint.setup()
        text = wrap(Message("m1", {}, b"{}"))
        queues = endpoint.parts.backend
        await queues.sender.send(settings.own_queue, text, time_to_live=2)
        tasks.create_task(endpoint.run(stop))
        async with asyncio.timeout(60):
            failed = await log.wait(MessageFailed)
        stop.set()
        assert failed.attempts == 4
        assert calls == [(1, 0), (2, 0), (3, 1), (4, 1)]
        assert await queues.sender.approximate_count(settings.own_queue) == 0
        assert await queues.sender.approximate_count(settings.error_queue) == 1
