"""Two competing consumers, one of which is killed at each step of the receive cycle: no message is lost."""

import asyncio
import json
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from receiver_program import STEPS, effects

from postdate import Endpoint
from postdate.model import headers as h
from postdate.settings import child_environment

PROGRAM = Path(__file__).with_name("receiver_program.py")
MESSAGES = 6
SOON = 60.0


def options_of(settings):
    return {
        "endpoint": settings.endpoint,
        "connection": settings.connection.get_secret_value(),
        "error_queue": f"error-{settings.own_queue}"[:63],
        "visibility_timeout": "2s",
        "receive_idle_interval": "0.2s",
        "immediate_retries": 1,
        "delayed_retries": 1,
        "delayed_retry_increase": "1s",
        "disable_timeout_manager": True,
    }


@asynccontextmanager
async def consumer(options, step):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        PROGRAM,
        json.dumps(options),
        step,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(),
    )
    assert process.stdout
    try:
        async with asyncio.timeout(SOON):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def everything_in(endpoint, queue, *, count, within=SOON):
    """Messages until `count` different ones are there, and whatever else lies in the queue by then."""
    found = []
    async with asyncio.timeout(within):
        while len({delivery.message_id for delivery in found}) < count:
            async for delivery in endpoint.receive(queue, idle=endpoint.settings.receive_idle_interval):
                found.append(delivery)
                await delivery.ack()
    return found


@pytest.mark.parametrize("step", STEPS)
async def test_no_message_is_lost_when_a_consumer_is_killed(postdate_settings, step):
    options = options_of(postdate_settings)
    async with Endpoint(**options) as endpoint:
        queue = endpoint.settings.own_queue
        await endpoint.setup(effects(queue))
        async with consumer(options, step) as victim:
            for n in range(MESSAGES):
                body = "fail" if n % 2 else f"m{n}"
                await endpoint.send(queue, body, message_id=f"m{n}")
            async with asyncio.timeout(SOON):
                assert await victim.wait() == -signal.SIGKILL
            async with consumer(options, "never"):
                sent = await everything_in(endpoint, effects(queue), count=MESSAGES)
                failed = await everything_in(endpoint, options["error_queue"], count=MESSAGES // 2)
                await queue_is_empty(endpoint, queue)
    texts = Counter(delivery.text for delivery in sent)
    assert set(texts) == {f"m{n} {k}" for n in range(0, MESSAGES, 2) for k in (1, 2)}
    # A message that was handled twice sent the same ids twice.
    assert len({delivery.message_id for delivery in sent}) == MESSAGES
    assert {delivery.message_id for delivery in failed} == {f"m{n}" for n in range(1, MESSAGES, 2)}
    # Two attempts, a delayed retry, two attempts; the dead process's may be one of them, never one more.
    for delivery in failed:
        assert 1 <= int(delivery.headers[h.ATTEMPTS]) <= 5
        assert not set(h.RETRY_HEADERS) & set(delivery.headers)
    doubled = len(failed) - MESSAGES // 2
    assert doubled <= (MESSAGES // 2 if step == "moved" else 0)


async def queue_is_empty(endpoint, queue):
    async with asyncio.timeout(SOON):
        while await endpoint.parts.backend.sender.approximate_count(queue):
            await endpoint.parts.clock.sleep(0.1)
