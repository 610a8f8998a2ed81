"""A real storage service on this machine: Azurite, as a context manager.

    with Azurite() as azurite:
        settings = load_settings(connection=azurite.connection_string)

It runs as a child process that never outlives this one: see `npm/watchdog.cjs`. By default its data is on
disk, in a temporary folder: with `in_memory` all its services stand still for seconds, sometimes minutes,
once thousands of messages were deleted.
"""

import asyncio
import base64
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from postdate.clock import SystemClock
from postdate.errors import AzuriteError, ConfigurationError
from postdate.local.locks import folder_lock
from postdate.local.node import WATCHDOG, Node, ensure_azurite, find_node, last_lines
from postdate.local.ports import (
    HOST,
    SERVICES,
    Ports,
    PortTaken,
    answers,
    check_free,
    checked_ports,
    pick_ports,
)
from postdate.settings import child_environment

ACCOUNT = "devstoreaccount1"
# Published by Microsoft, the same on every machine; it protects nothing.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_TRIES = 5
_LOOK_SECONDS = 0.05
_LISTENING = b"is successfully listening at"

_log = logging.getLogger("postdate.local")


class Azurite:
    """Azurite as a child process, on 127.0.0.1 only.

    Use it with `with` or `async with`, or call `start` and, at the end, `close`. The methods block for up
    to some seconds; in asyncio code call them through `asyncio.to_thread`.

    Args:
        ports: "free" (chosen at the first start and kept), "well-known" (10000 to 10002, which
            `UseDevelopmentStorage=true` means), or the blob, queue and table port.
        folder: where the data is and stays; None: a temporary folder that `close` removes.
        in_memory: keep no data on disk; a restart forgets it.
        skip_api_version_check: serve clients that are newer than this Azurite.
        accounts: names of further accounts, with keys of their own; see `connection_string_for`.
        start_timeout: seconds until all three services must answer.
        stop_timeout: seconds that it gets to save its data before it is killed.
    """

    def __init__(
        self,
        *,
        ports: Literal["free", "well-known"] | Ports = "free",
        folder: Path | None = None,
        in_memory: bool = False,
        skip_api_version_check: bool = True,
        accounts: tuple[str, ...] = (),
        start_timeout: float = 30.0,
        stop_timeout: float = 15.0,
    ) -> None:
        if in_memory and folder is not None:
            raise ConfigurationError("an Azurite in memory has no folder; leave out in_memory or folder")
        self._ports = checked_ports(ports)
        self._folder = folder.absolute() if folder else None
        self._in_memory = in_memory
        self._skip_api_version_check = skip_api_version_check
        self._keys = {ACCOUNT: ACCOUNT_KEY} | {_checked_account(name): _new_key() for name in accounts}
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._clock = SystemClock()
        self._scratch: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        where = f"on ports {self._ports}" if self._ports else "on free ports"
        return f"<Azurite {where}, {f'pid {self.pid}' if self.running else 'not running'}>"

    # Life

    def start(self) -> Self:
        """Start it and wait until its three services answer; installs it first if need be.

        Raises:
            AzuriteError: the extra is missing, npm failed, a port is taken, or it did not start.
        """
        if self.running:
            return self
        node = find_node()
        entry = ensure_azurite(node)
        for tries_left in reversed(range(_TRIES)):
            ports = self._ports or pick_ports()
            try:
                self._launch(node, entry, ports)
                self._wait_until_ready(ports)
            except PortTaken:
                self.kill()
                if self._ports or not tries_left:
                    raise
            except BaseException:
                self.kill()
                raise
            else:
                self._ports = ports
                break
        return self

    def stop(self) -> None:
        """Stop it; it saves its data first. Does nothing if it is not running."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            if sys.platform == "win32":
                assert process.stdin is not None
                process.stdin.close()  # terminate() would not let it save
            else:
                process.terminate()
        try:
            process.wait(self._stop_timeout)
        except subprocess.TimeoutExpired:
            _log.warning("Azurite did not stop within %g s and was killed", self._stop_timeout)
        self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL): what it did not save yet, up to 5 seconds of writes, is lost."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            if sys.platform == "win32":
                process.kill()
            else:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def restart(self) -> None:
        """Stop and start again, on the same ports and data. Leases come back as expired."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it and remove what was temporary."""
        self.stop()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except BaseException:
            # A thread can't be cancelled: let it finish, then undo what it did.
            await asyncio.wait({starting})
            await asyncio.to_thread(self.close)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.close))

    # Facts

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of its Node."""
        if self._process is None:
            raise AzuriteError("Azurite is not running; call start() or use it with `with`")
        return self._process.pid

    @property
    def folder(self) -> Path | None:
        """Where its data is; None in memory, and before the first start with a temporary folder."""
        if self._in_memory:
            return None
        return self._folder or (self._scratch / "data" if self._scratch else None)

    @property
    def blob_port(self) -> int:
        """Port of the blob service."""
        return self._known_ports()[0]

    @property
    def queue_port(self) -> int:
        """Port of the queue service."""
        return self._known_ports()[1]

    @property
    def table_port(self) -> int:
        """Port of the table service."""
        return self._known_ports()[2]

    @property
    def connection_string(self) -> str:
        """Connection string of the first account, with the addresses of all three services."""
        return self.connection_string_for(ACCOUNT)

    def connection_string_for(self, account: str) -> str:
        """Connection string of one of the accounts."""
        if account not in self._keys:
            raise ConfigurationError(
                f"this Azurite has no account {account!r}; it has {', '.join(self._keys)}"
            )
        services = zip(SERVICES, self._known_ports(), strict=True)
        endpoints = "".join(
            f"{name.title()}Endpoint=http://{HOST}:{port}/{account};" for name, port in services
        )
        key = self._keys[account]
        return f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};{endpoints}"

    def _known_ports(self) -> Ports:
        if self._ports is None:
            raise AzuriteError("Azurite has no ports yet; call start() or use it with `with`")
        return self._ports

    # The process

    def _launch(self, node: Node, entry: Path, ports: Ports) -> None:
        for name, port in zip(SERVICES, ports, strict=True):
            check_free(name, port)
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="postdate-azurite-"))
        command = [str(node.binary), "--require", str(WATCHDOG), str(entry), "--silent", "--disableTelemetry"]
        for name, port in zip(SERVICES, ports, strict=True):
            command += [f"--{name}Host", HOST, f"--{name}Port", str(port)]
        if self._skip_api_version_check:
            command.append("--skipApiVersionCheck")
        if self.folder is None:
            self._spawn([*command, "--inMemoryPersistence"], ())
            return
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                descriptors = held.enter_context(folder_lock(self.folder))
            except OSError as error:
                raise AzuriteError(f"can't use the folder {self.folder}: {error.strerror or error}") from None
            self._spawn([*command, "--location", str(self.folder)], descriptors)

    def _spawn(self, command: list[str], descriptors: tuple[int, ...]) -> None:
        with self._output_file().open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own files and numbers
                command,
                cwd=self._scratch,
                # A user's own AZURITE_ACCOUNTS would take the usual account away.
                env=child_environment(
                    AZURITE_ACCOUNTS=";".join(f"{name}:{key}" for name, key in self._keys.items()),
                    AZURITE_DB=None,
                    NODE_OPTIONS=None,
                ),
                stdin=subprocess.PIPE,  # the watchdog's end of it tells when we are gone
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that Ctrl-C reaches us alone, and we stop it in order
                pass_fds=descriptors,
            )

    def _wait_until_ready(self, ports: Ports) -> None:
        assert self._process is not None
        deadline = self._clock.monotonic() + self._start_timeout
        # The addresses may be answered by somebody else; so its own word is needed too.
        while self._output().count(_LISTENING) < len(ports) or not all(map(answers, ports)):
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_LOOK_SECONDS)
                if taken := re.search(rb"EADDRINUSE.*:(\d+)", self._output()):
                    raise PortTaken(int(taken[1]))
                raise AzuriteError(f"Azurite ended with exit status {status}; it said: {self._said()}")
            if self._clock.monotonic() > deadline:
                raise AzuriteError(
                    f"Azurite did not answer within {self._start_timeout:g} s; it said: {self._said()}"
                )

    def _output_file(self) -> Path:
        assert self._scratch is not None
        return self._scratch / "output.log"

    def _output(self) -> bytes:
        return self._output_file().read_bytes()

    def _said(self) -> str:
        return last_lines(self._output().decode(errors="replace"))


def _checked_account(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]{3,24}", name):
        raise ConfigurationError(f"account name {name!r} is not valid: 3 to 24 lower-case letters and digits")
    return name


def _new_key() -> str:
    return base64.b64encode(secrets.token_bytes(64)).decode()
