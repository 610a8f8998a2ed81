"""A `postdate errors retry` or `discard` that is killed in the middle loses no message."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from error_cases import failed

from postdate import Endpoint
from postdate.core.error_selection import Selection
from postdate.engine.error_moves import AT_ONCE
from postdate.engine.error_queue import HOLD_SECONDS, ErrorQueue
from postdate.settings import child_environment

MESSAGES = 300
KILLED_AFTER = 100
ALL = Counter(f"m{n:05d}" for n in range(MESSAGES))


@dataclass
class Place:
    endpoint: Endpoint
    orders: str
    folder: Path

    def command(self, *arguments):
        settings = self.endpoint.settings
        assert settings.connection is not None
        return {
            "args": [sys.executable, "-m", "postdate", "errors", *arguments, "--json"],
            "cwd": self.folder,
            "env": child_environment(
                POSTDATE_CONNECTION=settings.connection.get_secret_value(),
                POSTDATE_ENDPOINT=settings.endpoint,
                POSTDATE_ERROR_QUEUE=settings.error_queue,
            ),
        }

    def begin_and_kill(self, did):
        process = subprocess.Popen(
            **self.command(did, "--all", "--yes", "--undo-file", "undo"), stdout=subprocess.PIPE
        )
        try:
            for _ in range(KILLED_AFTER):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    async def undo(self):
        done = await asyncio.to_thread(
            subprocess.run, **self.command("undo", "undo"), capture_output=True, text=True, timeout=120
        )
        return done.returncode, Counter(json.loads(line)["outcome"] for line in done.stdout.splitlines())

    async def ids_in(self, queue):
        """Message ids of all that is in a queue; nothing may be hidden there. It counts as a receive."""
        parts = self.endpoint.parts
        look = await ErrorQueue(parts.backend, parts.clock, queue).look(Selection())
        assert look.hidden == 0
        return Counter(message.message_id for message in look.messages)

    @property
    def errors(self):
        return self.endpoint.settings.error_queue


@pytest.fixture
def place(postdate_settings, tmp_path):
    @asynccontextmanager
    async def opened(what):
        name = f"{what}-{postdate_settings.endpoint[-8:]}"
        settings = postdate_settings.model_copy(update={"error_queue": f"error-{name}"})
        async with Endpoint(settings) as endpoint:
            orders = f"orders-{name}"
            await endpoint.setup(orders)
            send = endpoint.parts.backend.sender.send
            await asyncio.gather(*(send(settings.error_queue, failed(n, orders)) for n in range(MESSAGES)))
            folder = tmp_path / what
            folder.mkdir()
            yield Place(endpoint, orders, folder)

    return opened


async def test_a_killed_command_loses_nothing_and_can_be_undone(place):
    """What is held shows up by itself after a minute: three are killed side by side, and wait together."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_killed_and_left(place))
        for did in ("retry", "discard"):
            tasks.create_task(_killed_and_undone(place, did))


async def _killed_and_left(place):
    async with place("left") as here:
        here.begin_and_kill("retry")
        await here.endpoint.parts.clock.sleep(HOLD_SECONDS + 2)
        there, moved = await here.ids_in(here.errors), await here.ids_in(here.orders)
        doubled = there & moved
        print(f"{len(there)} still there, {len(moved)} moved, {len(doubled)} in both")
        assert there | moved == ALL
        assert sum(doubled.values()) <= AT_ONCE
        assert len(moved) >= KILLED_AFTER
        assert len(there) <= len(ALL) - KILLED_AFTER


async def _killed_and_undone(place, did):
    async with place(did) as here:
        here.begin_and_kill(did)
        code, outcomes = await here.undo()  # at once: it waits for what is hidden
        print(f"{did}: {dict(outcomes)}")
        assert code == 0
        assert sum(outcomes.values()) >= KILLED_AFTER
        assert await here.ids_in(here.errors) == ALL
        # A copy that was sent right before the kill, and not written down: no more than were under way.
        assert sum((await here.ids_in(here.orders)).values()) <= AT_ONCE
