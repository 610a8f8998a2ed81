"""Serving processes, as an operator would start them: `postdate run`, and what they say."""

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
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
    """One event that a process told, and when we heard it (monotonic seconds)."""

    name: str
    values: Mapping[str, Any]
    heard_at: float


Listener = Callable[["ServingProcess", Told], None]


@dataclass(eq=False)
class ServingProcess:
    """One `postdate run`. Its events go to the listener, and stay in `told` where that is asked for."""

    process: asyncio.subprocess.Process
    listener: Listener | None = None
    keep: bool = False
    told: list[Told] = field(default_factory=list)
    term: int | None = None
    _said: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_LINES))
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _reading: "asyncio.Task[None] | None" = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self.process.returncode is None

    @property
    def said(self) -> str:
        """The end of what it said that was no event."""
        return " | ".join(self._said)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it ended."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

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
        status = await self.process.wait()
        if self._reading is not None:
            await asyncio.wait({self._reading})
        return status

    async def wait_for(self, name: str, within: float, where: Callable[[Told], bool] | None = None) -> Told:
        """Wait for an event (kept ones count too); `TimeoutError` after `within` seconds."""

        def found() -> Told | None:
            return next((t for t in self.told if t.name == name and (where is None or where(t))), None)

        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(lambda: found() is not None)
        told = found()
        assert told is not None
        return told

    def listen(self) -> None:
        """Start reading what it says."""
        self._reading = asyncio.create_task(self._read(), name=f"postdate-listen-{self.pid}")

    async def _read(self) -> None:
        assert self.process.stderr is not None
        clock = SystemClock()
        async for line in self.process.stderr:
            told = _parse(line, clock.monotonic())
            if told is None:
                self._said.append(line.decode(errors="replace").strip())
                continue
            if told.name == "term_began":
                self.term = told.values["term"]
            elif told.name in ("term_ended", "term_lost"):
                self.term = None
            if self.listener is not None:
                self.listener(self, told)
            if self.keep:
                self.told.append(told)
                async with self._news:
                    self._news.notify_all()


def _parse(line: bytes, heard_at: float) -> Told | None:
    try:
        parsed = json.loads(line)
    except ValueError:
        return None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("event"), str):
        return None
    return Told(parsed["event"], parsed, heard_at)


async def start_process(
    settings: Settings, *, listener: Listener | None = None, keep: bool = False
) -> ServingProcess:
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
    serving = ServingProcess(process, listener, keep)
    serving.listen()
    return serving


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
            if process.running:
                process.send(signal.SIGKILL)
