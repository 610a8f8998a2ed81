"""Serving processes, as an operator would start them: `postdate run`, and what they say."""

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from postdate.clock import SystemClock
from postdate.errors import PostdateError
from postdate.model.durations import format_duration
from postdate.settings import FILE_VARIABLE, PREFIX, Settings, child_environment

#: `postdate run`, whatever PATH and the current folder hold.
COMMAND = (
    sys.executable,
    "-P",
    "-c",
    "from postdate.cli.main import entry; entry()",
    "run",
    "--log-format=json",
    "--verbose",
)
_LINE_BYTES = 1 << 20
_REMEMBERED_LINES = 20
_STOP_SECONDS = 15.0


class ProcessFailed(PostdateError):
    """A serving process ended by itself; the text says what it said last."""


@dataclass(frozen=True, slots=True)
class Told:
    """One log record of a process, and when we heard it (monotonic seconds)."""

    #: Of the event; "log" for a record that is none.
    name: str
    values: Mapping[str, Any]
    heard_at: float


Listener = Callable[["ServingProcess", Told], None]


class ServingProcess:
    """One `postdate run`. What it says goes to the listener."""

    def __init__(self, process: asyncio.subprocess.Process, listener: Listener) -> None:
        self._process = process
        self._listener = listener
        self._said: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        #: The term in which it leads, by its own word.
        self.term: int | None = None
        self._reading = asyncio.create_task(self._read(), name=f"postdate-listen-{self.pid}")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode

    @property
    def said(self) -> str:
        """The end of what it said that was no event."""
        return " | ".join(self._said) or "nothing"

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self, within: float = _STOP_SECONDS) -> int:
        """Ask it to stop and wait; kill it after `within` seconds. Its exit status."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                return await self.ended()
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.ended()

    async def ended(self) -> int:
        """Wait for its end and the end of what it says; its exit status."""
        status = await self._process.wait()
        await asyncio.wait({self._reading})
        return status

    async def _read(self) -> None:
        assert self._process.stderr is not None
        clock = SystemClock()
        async for line in self._process.stderr:
            told = _parse(line, clock.monotonic())
            if told.name == "log":
                self._said.append(str(told.values["message"]))
            elif told.name == "term_began":
                self.term = told.values["term"]
            elif told.name in ("term_ended", "term_lost"):
                self.term = None
            self._listener(self, told)


def _parse(line: bytes, heard_at: float) -> Told:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        record = {"message": line.decode(errors="replace").strip()}
    return Told(record.get("event", "log"), {"message": "", **record}, heard_at)


async def start_process(settings: Settings, listener: Listener) -> ServingProcess:
    """Start `postdate run` with exactly these settings, whatever the environment holds."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        env=environment_of(settings),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES,
        start_new_session=True,  # Ctrl-C reaches us alone, and we stop them in order
    )
    return ServingProcess(process, listener)


def environment_of(settings: Settings) -> dict[str, str]:
    """Our environment with the settings that differ from the defaults, and no other of ours."""
    changes: dict[str, str | None] = {FILE_VARIABLE: None}
    for name, setting in Settings.model_fields.items():
        value = getattr(settings, name)
        default = setting.get_default(call_default_factory=True)
        changes[PREFIX + name.upper()] = None if value == default else _text(value)
    return child_environment(**changes)


def _text(value: Any) -> str:
    if hasattr(value, "get_secret_value"):
        return str(value.get_secret_value())
    return format_duration(value) if isinstance(value, timedelta) else str(value)


async def stop_all(processes: Iterable[ServingProcess]) -> list[int]:
    """Stop them together; their exit statuses. None is left, whatever happens meanwhile."""
    processes = list(processes)
    try:
        return await asyncio.gather(*(process.stop() for process in processes))
    finally:
        for process in processes:
            if process.exit_status is None:
                process.send(signal.SIGKILL)
