"""Redis and PostgreSQL as Debian packages them, started on loopback in a temporary folder, and stopped."""

import os
import pwd
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import redis

from bench.peers.processes import Child, PeerFailed, child
from postdate.clock import SystemClock
from postdate.local.ports import HOST, pick_ports

_START_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_POSTGRESQL_FOLDERS = "/usr/lib/postgresql"
_DATABASE: LiteralString = "bench"
_COUNT_STATEMENTS = """
    SELECT coalesce(sum(calls), 0)::bigint
    FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = %s AND toplevel
"""


class Server(ABC):
    """What a peer stands on, empty after `reset`."""

    def __init__(self, process: Child, port: int) -> None:
        self.process = process
        self.port = port

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it."""

    @abstractmethod
    def version(self) -> str:
        """Its name and version; fails as long as it does not answer."""

    @abstractmethod
    def reset(self) -> None:
        """Forget all that was stored."""

    @abstractmethod
    def requests(self) -> int:
        """How many requests it was sent since it started or was last reset, without ours."""


class Redis(Server):
    """Redis that loses at most a second of writes in a crash: appendonly, fsynced every second."""

    NOTE = "Redis as installed, with appendonly yes (appendfsync everysec)"

    def __init__(self, process: Child, port: int, *, scripted: bool) -> None:
        super().__init__(process, port)
        self._scripted = scripted
        self.client = redis.Redis(host=HOST, port=port)

    @property
    def url(self) -> str:
        """Database 0."""
        return f"redis://{HOST}:{self.port}/0"

    def version(self) -> str:
        """As INFO says."""
        return f"Redis {self._info('server')['redis_version']}"

    def reset(self) -> None:
        """Forget all keys and counts."""
        self.client.flushall()
        self.client.config_resetstat()

    def requests(self) -> int:
        """Commands; where clients call scripts, calls of these, since Redis counts what they do as well."""
        calls: dict[str, int] = {
            name.removeprefix("cmdstat_"): stats["calls"]
            for name, stats in self._info("commandstats").items()
        }
        if self._scripted:
            return sum(calls.get(name, 0) for name in ("eval", "evalsha", "script|load"))
        return sum(calls.values()) - sum(calls.get(name, 0) for name in ("info", "config|resetstat"))

    def _info(self, section: str) -> dict[str, Any]:
        info: dict[str, Any] = self.client.info(section)
        return info


class PostgreSQL(Server):
    """PostgreSQL as installed, so with fsync and synchronous commits."""

    NOTE = "PostgreSQL as installed (fsync and synchronous_commit on), with pg_stat_statements to count"

    @property
    def url(self) -> str:
        """The database that `reset` makes anew."""
        return f"postgresql://{_DATABASE}@{HOST}:{self.port}/{_DATABASE}"

    def version(self) -> str:
        """As it says."""
        return f"PostgreSQL {self._ask('SHOW server_version')[0][0].split()[0]}"

    def reset(self) -> None:
        """Make the database anew."""
        self._ask(f"DROP DATABASE IF EXISTS {_DATABASE} WITH (FORCE)")
        self._ask(f"CREATE DATABASE {_DATABASE}")
        self._ask("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def requests(self) -> int:
        """Statements in that database, BEGIN and COMMIT among them, without those inside functions."""
        return int(self._ask(_COUNT_STATEMENTS, parameters=(_DATABASE,))[0][0])

    def rows(self, query: LiteralString) -> list[tuple[Any, ...]]:
        """What a query answers in that database."""
        return self._ask(query, _DATABASE)

    def _ask(
        self, query: LiteralString, database: str = "postgres", parameters: tuple[str, ...] = ()
    ) -> list[tuple[Any, ...]]:
        with psycopg.connect(
            host=HOST, port=self.port, user=_DATABASE, dbname=database, autocommit=True
        ) as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []


@asynccontextmanager
async def run_redis(*, scripted: bool = False) -> AsyncIterator[Redis]:
    """A Redis until the block ends.

    Raises:
        PeerFailed: it is not installed, or does not answer.
    """
    binary = shutil.which("redis-server")
    if binary is None:
        raise PeerFailed("there is no redis-server; on Debian and Ubuntu: apt-get install redis-server")
    port = pick_ports()[0]
    with tempfile.TemporaryDirectory(prefix="postdate-bench-redis-") as folder:
        command = [binary, "--bind", HOST, "--port", str(port), "--dir", folder, "--appendonly", "yes"]
        async with child(command, Path(folder), name="redis") as process:
            server = Redis(process, port, scripted=scripted)
            await _answering(server)
            yield server


@asynccontextmanager
async def run_postgresql() -> AsyncIterator[PostgreSQL]:
    """A PostgreSQL until the block ends; it refuses root, so then it runs as the user that Debian made.

    Raises:
        PeerFailed: it is not installed, or does not answer.
    """
    binaries = _postgresql_binaries()
    user = _unprivileged_user() if os.geteuid() == 0 else None
    port = pick_ports()[0]
    with tempfile.TemporaryDirectory(prefix="postdate-bench-postgresql-") as name:
        folder = Path(name)
        if user:
            shutil.chown(folder, user)
        data = folder / "data"
        initdb = [
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            _DATABASE,
            "--auth=trust",
            "--encoding=UTF8",
        ]
        async with child(initdb, folder, name="initdb", user=user) as making:
            await making.succeeded()
        settings = {
            "listen_addresses": HOST,
            "port": port,
            "unix_socket_directories": "",
            "shared_preload_libraries": "pg_stat_statements",
        }
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(data), *options]
        async with child(command, folder, name="postgres", user=user, stop_by=signal.SIGINT) as process:
            server = PostgreSQL(process, port)
            await _answering(server)
            yield server


def _postgresql_binaries() -> Path:
    """Debian keeps them out of PATH, one folder for each version."""
    found = shutil.which("postgres")
    if found:
        return Path(found).parent
    folders = sorted(
        (path.parent for path in Path(_POSTGRESQL_FOLDERS).glob("*/bin/postgres")),
        key=lambda path: int(path.parent.name),
    )
    if not folders:
        raise PeerFailed("there is no PostgreSQL server; on Debian and Ubuntu: apt-get install postgresql")
    return folders[-1]


def _unprivileged_user() -> str:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise PeerFailed("PostgreSQL refuses to run as root, and there is no user postgres or nobody")


async def _answering(server: Server) -> None:
    clock = SystemClock()
    until = clock.monotonic() + _START_SECONDS
    while True:
        server.process.check()
        try:
            server.version()
        except (redis.ConnectionError, redis.BusyLoadingError, psycopg.OperationalError) as error:
            if clock.monotonic() > until:
                raise PeerFailed(f"no answer within {_START_SECONDS:.0f} s: {error}") from None
            await clock.sleep(_LOOK_SECONDS)
        else:
            return
