"""A backlog of overdue rows, what came of it in the queues, and a driver in a process of its own."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from postdate import Endpoint, Outgoing
from postdate.clock import SystemClock
from postdate.engine.handover import know_the_time
from postdate.events import Observer
from postdate.model import headers as h
from postdate.model.envelope import unwrap
from postdate.settings import Settings, child_environment
from postdate.spark.reference import shared_with_tasks

CLOCK = SystemClock()
_ASIDE_SECONDS = 3600
_SOON = 150.0
#: Each look takes a while of a core, which what is looked at needs too.
_BETWEEN_LOOKS = 0.1
PROGRAM = Path(__file__).with_name("drain_program.py")


@dataclass(frozen=True)
class Copy:
    """One message in a queue."""

    message_id: str
    term: int
    body: bytes
    #: By the service, cut to whole seconds.
    inserted_at: datetime


class Account:
    """The endpoint as a client of its own."""

    def __init__(self, settings: Settings) -> None:
        update = {
            "error_queue": f"{settings.own_queue}-error",
            "direct_within": timedelta(0),
            "idle_interval": timedelta(seconds=1),
        }
        self.settings = settings.model_copy(update=update)
        #: Tests share the account, so each has a queue of its own.
        self.queue = settings.own_queue
        self.run(lambda endpoint: endpoint.setup(self.queue))

    def run(self, work: Callable[[Endpoint], Any]) -> Any:
        async def opened() -> Any:
            async with Endpoint(self.settings) as endpoint:
                return await work(endpoint)

        return asyncio.run(opened())

    def backlog(self, count: int, *, to: str | None = None, body: Any = "x", prefix: str = "m") -> None:
        """Rows that were due a second apart, the last one a minute ago."""

        async def store(endpoint: Endpoint) -> None:
            intake = endpoint.parts.intake
            await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
            first = endpoint.parts.clock.now() - timedelta(seconds=count + 60)
            accepted = [
                await intake.accept_unasked(
                    Outgoing(
                        to or self.queue, body, at=first + timedelta(seconds=n), message_id=f"{prefix}{n:05}"
                    )
                )
                for n in range(count)
            ]
            for outcome in await intake.store_rows(accepted):
                assert not isinstance(outcome, Exception), outcome

        self.run(store)

    def taken(self, queue: str | None = None) -> list[Copy]:
        """All messages of a queue; they stay hidden from then on."""

        async def take(endpoint: Endpoint) -> list[Copy]:
            receiver, copies = endpoint.parts.backend.receiver, []
            while page := await receiver.receive(queue or self.queue, count=32, visibility_s=_ASIDE_SECONDS):
                for one in page:
                    message = unwrap(one.text, one.native_id).message
                    copies.append(
                        Copy(
                            message.message_id,
                            int(message.headers.get(h.TERM) or 0),
                            message.body,
                            one.inserted_at,
                        )
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

    def in_queue(self) -> int:
        """How many messages lie in the queue."""
        found: int = self.run(lambda endpoint: endpoint.parts.backend.sender.approximate_count(self.queue))
        return found

    def next_attempts_are_due(self) -> bool:
        """Whether every row's back-off is over."""

        async def look(endpoint: Endpoint) -> bool:
            rows = [row.delayed async for row in endpoint.parts.backend.store.upcoming()]
            now = endpoint.parts.clock.now()
            return all(row.next_attempt_at is not None and row.next_attempt_at <= now for row in rows)

        return bool(self.run(look))

    def until(self, reached: Callable[[], bool], within: float = _SOON) -> None:
        """Look until it is so; each look asks the service."""
        ends = CLOCK.monotonic() + within
        while not reached():
            assert CLOCK.monotonic() < ends, f"not reached within {within:g} s"
            time.sleep(_BETWEEN_LOOKS)


@contextmanager
def serving(settings: Settings, observer: Observer) -> Iterator[None]:
    """An endpoint that serves, in a thread of its own."""
    stop = threading.Event()

    async def serve() -> None:
        async with Endpoint(settings, observers=[observer]) as endpoint:
            asked = asyncio.Event()
            running = asyncio.create_task(endpoint.run(asked))
            await asyncio.to_thread(stop.wait)
            asked.set()
            await running

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(asyncio.run, serve())
        try:
            yield
        finally:
            stop.set()
            running.result()


def duplicates(copies: list[Copy]) -> dict[str, int]:
    """Copies beyond the first, by message id."""
    return {name: count - 1 for name, count in Counter(one.message_id for one in copies).items() if count > 1}


class Driver:
    """`drain_program.py`: drains when it is told to, in a Spark session of its own."""

    def __init__(self, process: "subprocess.Popen[str]", control: Path) -> None:
        self.process = process
        self._control = control

    def begin(self, settings: Settings, *, fault: Path | None = None, **options: Any) -> None:
        """Have it drain, beside us from now on; the process that deletes the file `fault` fails."""
        self._shared = shared_with_tasks(settings)
        file = self._shared.__enter__().file
        self._control.write_text(json.dumps({"file": file, "fault": str(fault)}), encoding="utf-8")
        reference = {"file": file} if fault is None else {"factory": "drain_faults:settings"}
        self._say({"reference": reference, "options": options})

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

    def worker(self, settings: Settings) -> psutil.Process:
        """A Python worker that is amid a task: connected to the account's queues."""
        assert settings.connection is not None
        queues = int(
            re.findall(r"QueueEndpoint=http://[^:]+:(\d+)", settings.connection.get_secret_value())[0]
        )
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # ended meanwhile
                if any(c.raddr and c.raddr.port == queues for c in one.net_connections("tcp")):
                    return one
        raise AssertionError("no worker is amid a task")


@contextmanager
def driver(folder: Path) -> Iterator[Driver]:
    """One that waits for orders."""
    control = folder / "control.json"
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(DRAIN_CONTROL=str(control), PYTHONPATH=str(PROGRAM.parent)),
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield Driver(process, control)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)  # where a test failed in between
        process.wait(_SOON)
        process.stdout.close()
