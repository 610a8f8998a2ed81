"""A real `postdate legacy drain` that is killed again and again, and the same command until it is through."""

import asyncio
import json
import signal
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

from chaos_cases import CLOCK

from postdate import Endpoint
from postdate.concurrency import for_each
from postdate.demo.processes import environment_of
from postdate.legacy.undo_lines import Batch, batches, read_lines
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
        *("-m", "postdate", "legacy", "drain", "--json", "--undo-file", str(path)),
        env=environment_of(settings),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )


async def kill_while_removing(process, path, timeouts) -> None:
    """Kill it when it has added a further batch, and begun to take that out of the timeout store."""
    before = len(moved(path))
    async with asyncio.timeout(60):
        while not (batch := next(iter(moved(path)[before:]), None)) or not batch.added:
            await CLOCK.sleep(0.002)
        while await timeouts.get(next(iter(batch.timeouts))) is not None:
            pass
        process.send_signal(signal.SIGKILL)
        await process.communicate()


def moved(path) -> list[Batch]:
    """The batches that the undo file tells of."""
    return list(batches(read_lines(path))) if path.exists() else []


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

        twice: list[int] = []
        for kill in range(KILLS):
            process = await start(settings, path)
            await kill_while_removing(process, path, timeouts)
            assert process.returncode == -signal.SIGKILL
            rows = [message.message_id async for message in endpoint.upcoming()]
            found = [one async for one in timeouts.all()]
            left = [one.headers[h.MESSAGE_ID] for one in found if await timeouts.get(one.id)]
            assert set(rows) | set(left) == {f"m{n:05d}" for n in numbers}, kill
            assert max(Counter(rows).values()) == 1
            twice.append(len(set(rows) & set(left)))

        # So they came in the middle of it.
        assert any(0 < count < 100 for count in twice), twice
        process = await start(settings, path)
        out, said = await process.communicate()
        assert process.returncode == 0, said
        told = json.loads(out)
        assert (told["verified"], told["found"], told["possible_duplicates"]) == (True, TIMEOUTS, [])
        rows = [message.message_id async for message in endpoint.upcoming()]
        assert rows == [f"m{n:05d}" for n in numbers]
        assert [one async for one in timeouts.all()] == []
        print(
            f"{TIMEOUTS} timeouts, killed {KILLS} times with {twice} in both stores; the last run moved {told['moved']}"
        )
