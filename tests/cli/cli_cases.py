"""Runs the command line: inside this process where that is enough, as a process where signals matter."""

import asyncio
import base64
import hashlib
import hmac
import io
import json
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from postdate import Endpoint
from postdate.cli import main as app
from postdate.local.azurite import ACCOUNT, ACCOUNT_KEY
from postdate.settings import child_environment

#: Seconds until a process that says nothing counts as stuck.
PATIENCE = 30.0
#: Nobody listens there.
CLOSED = "http://127.0.0.1:1/devstoreaccount1"
DOWN = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=YWJj;"
    f"TableEndpoint={CLOSED};QueueEndpoint={CLOSED};BlobEndpoint={CLOSED}"
)


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def object(self) -> dict[str, Any]:
        (only,) = self.objects
        return only

    @property
    def complaint(self) -> str:
        """The one line that a failed command says."""
        (line,) = self.err.splitlines()
        assert line.startswith("postdate: error: ")
        assert self.out == ""
        return line.removeprefix("postdate: error: ")


def documented_keys(command: str) -> set[str]:
    """The keys that the reference promises for a command's JSON."""
    prints = app.COMMANDS[command].prints
    keys = set(re.findall(r"`([^`]+)`", prints))
    for other in re.findall(r"keys of `(\w+)`", prints):
        keys |= documented_keys(other)
    return keys


def command_of(arguments: tuple[str, ...]) -> str | None:
    """The command that arguments begin with; a group's has two words."""
    named = (" ".join(arguments[:words]) for words in (1, 2))
    return next((name for name in named if name in app.COMMANDS), None)


def run(capsys: Any, monkeypatch: Any, *arguments: str, stdin: bytes = b"") -> Done:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
    capsys.readouterr()
    code = app.main(list(arguments))
    captured = capsys.readouterr()
    done = Done(code, captured.out, captured.err)
    command = command_of(arguments)
    if "--json" in arguments and command is not None and captured.out:
        for record in done.objects:
            assert set(record) <= documented_keys(command), "a key that the reference does not name"
    return done


def with_signature(connection: str, permissions: str) -> str:
    """The connection string with an account signature of these permissions instead of the key."""
    fields = {
        "sv": "2020-12-06",
        "ss": "bqt",
        "srt": "sco",
        "sp": permissions,
        "se": "2099-01-01T00:00:00Z",
        "spr": "https,http",
    }
    names = ("sp", "ss", "srt", "", "se", "", "spr", "sv", "", "")
    text = "\n".join([ACCOUNT, *(fields.get(name, "") for name in names)])
    signed = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    query = urlencode({**fields, "sig": base64.b64encode(signed).decode()})
    return re.sub(r"AccountKey=[^;]*", lambda _: f"SharedAccessSignature={query}", connection)


def on_endpoint(work: Callable[[Endpoint], Awaitable[Any]], **settings: Any) -> Any:
    """Do something with the endpoint of the environment, behind the command line's back."""

    async def whole() -> Any:
        async with Endpoint(**settings) as endpoint:
            return await work(endpoint)

    return asyncio.run(whole())


async def snapshot(endpoint: Endpoint) -> dict[str, Any]:
    """All that a command could have changed."""
    backend = endpoint.parts.backend
    names = await backend.sender.names()
    return {
        "rows": [(row.key, row.etag) async for row in backend.store.upcoming()],
        "queues": {name: await backend.sender.approximate_count(name) for name in names},
        "leader": await backend.lease.holder(),
    }


class Process:
    """A `postdate` process whose lines can be waited for."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "postdate", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=child_environment(),
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.seen: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self._process.stdout, self._process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    @property
    def pid(self) -> int:
        return self._process.pid

    def line_with(self, text: str) -> str:
        """Wait for the next line that holds `text`."""
        ended = 0
        while ended < 2:
            line = self._lines.get(timeout=PATIENCE)
            if line is None:
                ended += 1
                continue
            self.seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"it ended without {text!r}; it said {self.seen}")

    def kill(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        code = self._process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        while not self._lines.empty():
            line = self._lines.get()
            if line is not None:
                self.seen.append(line)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.kill(number)
        return self.wait()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self.wait()


@contextmanager
def process(*arguments: str) -> Iterator[Process]:
    """A process that does not outlive the test."""
    started = Process(*arguments)
    try:
        yield started
    finally:
        started.end()
