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
#: Messages that a consumer handles at once.
CONCURRENCY = 4
SOON = 60.0


def options_of(settings):
    return {
        "endpoint": settings.endpoint,
        "connection": settings.connection.get_secret_value(),
        "error_queue": f"error-{settings.own_queue}"[:63],
        "visibility_timeout": "2s",
        "receive_idle_interval": "0.2s",
        "receive_concurrency": CONCURRENCY,
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
        stderr=asyncio.subprocess.PIPE if step == "blocks" else None,
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
    """Both compete from the beginning; messages are sent until the victim got one that takes it to its step."""
    options = options_of(postdate_settings)
    async with Endpoint(**options) as endpoint:
        queue = endpoint.settings.own_queue
        await endpoint.setup(effects(queue))
        async with consumer(options, step) as victim, consumer(options, "never"):
            count = 0
            async with asyncio.timeout(SOON):
                while victim.returncode is None:
                    body = "fail" if count % 2 else f"m{count}"
                    await endpoint.send(queue, body, message_id=f"m{count}")
                    count += 1
                    await endpoint.parts.clock.sleep(0.05)
            assert victim.returncode == -signal.SIGKILL
            good = range(0, count, 2)
            sent = await everything_in(endpoint, effects(queue), count=2 * len(good))
            failed = await everything_in(endpoint, options["error_queue"], count=count // 2)
            await queue_is_empty(endpoint, queue)
    texts = {delivery.text for delivery in sent}
    assert texts == {f"m{n} {k}" for n in good for k in (1, 2)}
    # A message that was handled twice sent the same ids twice.
    assert len({delivery.message_id for delivery in sent}) == 2 * len(good)
    attempts = Counter(int(delivery.headers[h.ATTEMPTS]) for delivery in failed)
    # Two attempts, a delayed retry, two attempts. Only what the dead process had in hand may have one more.
    assert {delivery.message_id for delivery in failed} == {f"m{n}" for n in range(1, count, 2)}
    assert set(attempts) <= {4, 5}
    assert attempts[5] <= CONCURRENCY
    for delivery in failed:
        assert not set(h.RETRY_HEADERS) & set(delivery.headers)
    assert len(failed) - count // 2 <= (1 if step == "moved" else 0)


async def test_a_handler_that_blocks_its_loop_is_named_and_others_serve_its_message_and_all_else(
    postdate_settings,
):
    options = options_of(postdate_settings)
    async with Endpoint(**options) as endpoint:
        queue = endpoint.settings.own_queue
        await endpoint.setup(effects(queue))
        async with consumer(options, "blocks") as blocked:
            await endpoint.send(queue, "block", message_id="block")
            async with asyncio.timeout(SOON):
                assert await blocked.stdout.readline() == b"blocking\n"
            async with consumer(options, "never"):
                for n in range(5):
                    await endpoint.send(queue, f"m{n}", message_id=f"m{n}")
                began = endpoint.parts.clock.monotonic()
                sent = await everything_in(endpoint, effects(queue), count=12)
                # The other process did it all, while this one was still blocked.
                assert endpoint.parts.clock.monotonic() - began < 9
                assert blocked.returncode is None
                async with asyncio.timeout(SOON):
                    line = await blocked.stderr.readline()
                assert b"the event loop is blocked" in line
                assert b"receiver_program.py" in line
                await queue_is_empty(endpoint, queue)
    assert {delivery.text for delivery in sent} >= {"block 1", "block 2", *(f"m{n} 1" for n in range(5))}


async def queue_is_empty(endpoint, queue):
    async with asyncio.timeout(SOON):
        while await endpoint.parts.backend.sender.approximate_count(queue):
            await endpoint.parts.clock.sleep(0.1)
