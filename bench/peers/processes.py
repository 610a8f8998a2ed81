"""The processes that are measured: started, watched, and never left behind."""

import asyncio
import json
import os
import pwd
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from bench.peers.scheduling import DONE, READY
from bench.peers.wiring import Message, Wiring
from postdate.errors import PostdateError
from postdate.settings import child_environment

ROOT = Path(__file__).parents[2]
_STOP_SECONDS = 10.0
_TAIL_BYTES = 600
_MEGABYTE = 1 << 20


class PeerFailed(PostdateError):
    """A peer, or its server, did not do what the benchmark needs; the text says what, in one line."""


def tree(pid: int) -> list[psutil.Process]:
    """The process and all that it started; empty once it has ended."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of these processes and of what they started, also of what has ended since."""
    seconds = 0.0
    for pid in pids:
        for process in tree(pid):
            with suppress(psutil.NoSuchProcess):
                seconds += sum(process.cpu_times()[:4])  # user, system, and both of the children that ended
    return seconds


def memory_mb(pids: Iterable[int]) -> float:
    """Resident memory, in MiB, of these processes and of what they started.

    What several of them share is counted once (Linux's proportional set size); elsewhere, once for each.
    """
    size = 0
    for pid in pids:
        for process in tree(pid):
            with suppress(psutil.NoSuchProcess):
                memory = process.memory_full_info()
                size += getattr(memory, "pss", memory.rss)
    return size / _MEGABYTE


class Child:
    """A process in a folder of its own, in which it finds its wiring and leaves its log."""

    def __init__(
        self, process: asyncio.subprocess.Process, name: str, log: Path, stop_by: signal.Signals
    ) -> None:
        self._process = process
        self._name = name
        self._log = log
        self._stop_by = stop_by

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Refuse to go on without it.

        Raises:
            PeerFailed: it has ended; the text ends with what it said last.
        """
        if self._process.returncode is not None:
            raise PeerFailed(
                f"{self._name} ended with status {self._process.returncode}: {last_words(self._log)}"
            )

    async def succeeded(self) -> None:
        """Wait for its end.

        Raises:
            PeerFailed: it failed; the text ends with what it said last.
        """
        if await self._process.wait():
            self.check()

    async def hear(self, expected: str) -> None:
        """Wait until it says a line.

        Raises:
            PeerFailed: it ended, or said something else.
        """
        assert self._process.stdout is not None
        said = (await self._process.stdout.readline()).decode().strip()
        if said != expected:
            raise PeerFailed(f"{self._name} said {said!r} instead of {expected!r}: {last_words(self._log)}")

    async def schedule(self, messages: Sequence[Message]) -> None:
        """Have it schedule messages, and wait until it has."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(messages).encode() + b"\n")
        await self._process.stdin.drain()
        await self.hear(DONE)

    async def kill(self) -> None:
        """SIGKILL it and all that it started, at once."""
        for process in tree(self.pid):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """Ask it to, and SIGKILL what is left after some seconds."""
        everybody = tree(self.pid)
        with suppress(ProcessLookupError):
            self._process.send_signal(self._stop_by)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            for process in everybody:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        await self._process.wait()


@asynccontextmanager
async def child(
    command: Sequence[str],
    folder: Path,
    *,
    name: str,
    user: str | None = None,
    talks: bool = False,
    stop_by: signal.Signals = signal.SIGTERM,
) -> AsyncIterator[Child]:
    """Run a command in `folder` until the block ends, as `user` if given; one that talks can be heard."""
    log = folder / f"{name}.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=child_environment(PYTHONPATH=str(ROOT)),
            stdin=asyncio.subprocess.PIPE if talks else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if talks else errors,
            stderr=errors,
            start_new_session=True,  # Ctrl-C reaches us alone, and we stop them in order
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )
    one = Child(process, name, log, stop_by)
    try:
        yield one
    finally:
        await one.stop()


@asynccontextmanager
async def scheduling(app: str, folder: Path, wiring: Wiring) -> AsyncIterator[Child]:
    """A process that schedules with an app, ready to."""
    wiring.write(folder)
    command = (sys.executable, "-m", "bench.peers.scheduling", app)
    async with child(command, folder, name="client", talks=True) as client:
        await client.hear(READY)
        yield client


def last_words(log: Path) -> str:
    """The end of a log, on one line."""
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return " | ".join(file.read().decode(errors="replace").split("\n")).strip(" |") or "it said nothing"
