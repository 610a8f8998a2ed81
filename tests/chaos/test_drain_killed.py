"""A real `postdate legacy drain` that is killed again and again, and the same command until it is through."""

import asyncio
import json
import signal
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

from postdate import Endpoint
from postdate.concurrency import for_each
from postdate.demo.processes import environment_of
from postdate.model import headers as h
from postdate.model.legacy_timeout import LegacyTimeout

TIMEOUTS = 450
KILLS = 3
DUE = datetime(2031, 1, 1, tzinfo=UTC)


def timeout(owner: str, number: int) -> LegacyTimeout:
    due_at = DUE + number * timedelta(minutes=1)
    return LegacyTimeout(
        id=f"3f0d7f3e-6a1c-4f0b-9a55-{number:012d}",
        destination="drained-orders",
        due_at=due_at,
        headers={h.MESSAGE_ID: f"m{number:05d}", h.TIMEOUT_EXPIRE: h.format_instant(due_at)},
        body=b"{}",
        owner=owner,
    )


async def start(settings, path):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "postdate", "legacy", "drain", "--json", "--verbose", "--undo-file", str(path)),
        env=environment_of(settings),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )


async def kill_after(process, text: bytes) -> None:
    """Kill it when it says this."""
    async with asyncio.timeout(60):
        async for line in process.stderr:
            if text in line:
                process.send_signal(signal.SIGKILL)
                break
        await process.communicate()


async def test_a_drain_that_is_killed_again_and_again_moves_each_timeout_once(azurite_settings, tmp_path):
    settings = azurite_settings.model_copy(
        update={
            "endpoint": "drained",
            "timeout_table": "Drained",
            "timeout_manager_table": "DrainedManager",
            "timeout_state_container": "drained-states",
        }
    )
    path = tmp_path / "undo"
    async with Endpoint(settings) as endpoint:
        await endpoint.setup("drained-orders")
        timeouts = endpoint.parts.backend.timeouts
        await timeouts.create()
        numbers = range(TIMEOUTS)
        await for_each(numbers, 16, lambda n: timeouts.add(timeout(settings.endpoint, n)))

        for kill in range(KILLS):
            process = await start(settings, path)
            await kill_after(process, b"timeouts_moved")
            assert process.returncode == -signal.SIGKILL
            rows = [message.message_id async for message in endpoint.upcoming()]
            left = [one.headers[h.MESSAGE_ID] async for one in timeouts.all()]
            assert set(rows) | set(left) == {f"m{n:05d}" for n in numbers}, kill
            assert max(Counter(rows).values()) == 1
            assert left

        process = await start(settings, path)
        out, said = await process.communicate()
        assert process.returncode == 0, said
        told = json.loads(out)
        assert (told["verified"], told["found"], told["possible_duplicates"]) == (True, TIMEOUTS, [])
        rows = [message.message_id async for message in endpoint.upcoming()]
        assert rows == [f"m{n:05d}" for n in numbers]
        assert [one async for one in timeouts.all()] == []
        print(f"{TIMEOUTS} timeouts, killed {KILLS} times; the last run moved {told['moved']}")
