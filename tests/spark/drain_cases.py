"""A backlog of overdue rows, what came of it in the queues, and a driver in a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from postdate import Endpoint, Outgoing
from postdate.clock import SystemClock
from postdate.engine.handover import know_the_time
from postdate.model import headers as h
from postdate.model.envelope import unwrap
from postdate.settings import Settings, child_environment
from postdate.spark.reference import shared_with_tasks

CLOCK = SystemClock()
_ASIDE_SECONDS = 3600
_SOON = 60.0
PROGRAM = Path(__file__).with_name("drain_program.py")


@dataclass(frozen=True)
class Copy:
    """One message in a queue."""

    message_id: str
    term: int
    body: bytes


class Account:
    """The endpoint as a client of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def run(self, work: Callable[[Endpoint], Any]) -> Any:
        async def opened() -> Any:
            async with Endpoint(self.settings) as endpoint:
                return await work(endpoint)

        return asyncio.run(opened())

    def backlog(self, count: int, *, to: str = "target", body: Any = "x", prefix: str = "m") -> None:
        """Rows that were due a second apart, the last one a minute ago."""

        async def store(endpoint: Endpoint) -> None:
            intake = endpoint.parts.intake
            await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
            first = endpoint.parts.clock.now() - timedelta(seconds=count + 60)
            accepted = [
                await intake.accept_unasked(
                    Outgoing(to, body, at=first + timedelta(seconds=n), message_id=f"{prefix}{n:05}")
                )
                for n in range(count)
            ]
            for outcome in await intake.store_rows(accepted):
                assert not isinstance(outcome, Exception), outcome

        self.run(store)

    def taken(self, queue: str = "target") -> list[Copy]:
        """All messages of a queue; they stay hidden from then on."""

        async def take(endpoint: Endpoint) -> list[Copy]:
            receiver, copies = endpoint.parts.backend.receiver, []
            while page := await receiver.receive(queue, count=32, visibility_s=_ASIDE_SECONDS):
                for one in page:
                    message = unwrap(one.text, one.native_id).message
                    copies.append(
                        Copy(message.message_id, int(message.headers.get(h.TERM) or 0), message.body)
                    )
            return copies

        copies: list[Copy] = self.run(take)
        return copies

    def waiting(self) -> int:
        """Rows in the table."""

        async def count(endpoint: Endpoint) -> int:
            return len([row async for row in endpoint.parts.backend.store.upcoming()])

        rows: int = self.run(count)
        return rows

    def in_queue(self, queue: str = "target") -> int:
        """How many messages lie in a queue."""
        found: int = self.run(lambda endpoint: endpoint.parts.backend.sender.approximate_count(queue))
        return found

    def until(self, reached: Callable[[], bool], within: float = _SOON) -> None:
        """Look until it is so; each look asks the service."""
        ends = CLOCK.monotonic() + within
        while not reached():
            assert CLOCK.monotonic() < ends, f"not reached within {within:g} s"


def duplicates(copies: list[Copy]) -> dict[str, int]:
    """Copies beyond the first, by message id."""
    return {name: count - 1 for name, count in Counter(one.message_id for one in copies).items() if count > 1}


class Driver:
    """`drain_program.py`: drains when it is told to, in a Spark session of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def begin(self, settings: Settings, **options: Any) -> None:
        """Have it drain; it runs beside us from now on."""
        self._shared = shared_with_tasks(settings)
        reference = self._shared.__enter__()
        self._say({"file": reference.file, "options": options})

    def _say(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def told(self) -> dict[str, Any]:
        """What it says of the drain that was begun."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self._shared.__exit__(None, None, None)
        assert line, "the driver ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def workers(self) -> list[psutil.Process]:
        """Python processes that run its tasks: children of the daemon that Spark forks them from."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        pythons = [one for one in family if "pyspark.daemon" in " ".join(one.cmdline())]
        daemons = {one.pid for one in pythons if one.ppid() not in {other.pid for other in pythons}}
        return [one for one in pythons if one.pid not in daemons]


@contextmanager
def driver() -> Iterator[Driver]:
    """One that waits for orders."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(PYTHONUNBUFFERED="1"),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Driver(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.poll() is None:
            os.kill(process.pid, 18)  # SIGCONT, where a test failed in between
        process.wait(_SOON)
