"""Finding Node and installing the pinned Azurite, with stand-ins for npm."""

import importlib.util
import json
from pathlib import Path

import pytest

from postdate.errors import ConfigurationError
from postdate.local import Azurite, AzuriteError, node
from postdate.local.ports import checked_ports
from postdate.settings import cache_folder, child_environment, in_ci


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "postdate"


def npm(tmp_path: Path, script: str) -> node.Node:
    """A Node whose npm is a shell script."""
    binary = tmp_path / "node"
    binary.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    binary.chmod(0o755)
    return node.Node(binary, tmp_path / "npm-cli.js")


INSTALLS = "mkdir -p node_modules/azurite/dist/src && touch node_modules/azurite/dist/src/azurite.js"


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(AzuriteError, match=r"run: pip install 'postdate\[azurite\]'$"):
        node.find_node()


def test_npm_runs_once(cache, tmp_path):
    count = f"echo run >> {tmp_path}/runs"
    entry = node.ensure_azurite(npm(tmp_path, f"{count}; {INSTALLS}"))
    assert entry.is_file()
    assert entry.is_relative_to(
        cache / f"azurite-{node.azurite_version()}-{node.install_folder().name[-12:]}"
    )
    assert node.ensure_azurite(npm(tmp_path, count)) == entry
    assert (tmp_path / "runs").read_text() == "run\n"


def test_npm_gets_the_pins(cache, tmp_path):
    node.ensure_azurite(npm(tmp_path, f'echo "$@" > arguments; {INSTALLS}'))
    folder = node.install_folder()
    assert (folder / "arguments").read_text().split()[1:4] == ["ci", "--omit=dev", "--ignore-scripts"]
    for name in ("package.json", "package-lock.json"):
        assert (folder / name).read_bytes() == (node.PINS / name).read_bytes()


def test_the_last_lines_of_a_failed_npm_are_shown(cache, tmp_path):
    with pytest.raises(AzuriteError) as caught:
        node.ensure_azurite(npm(tmp_path, "seq 1 20; echo 'no network' >&2; exit 7"))
    assert str(caught.value) == (
        "npm could not install Azurite 3.36.0 (exit status 7); it said: "
        "14 | 15 | 16 | 17 | 18 | 19 | 20 | no network"
    )
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_an_npm_that_hangs_is_given_up(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(node, "_INSTALL_SECONDS", 0.1)
    with pytest.raises(AzuriteError, match="is its registry reachable"):
        node.ensure_azurite(npm(tmp_path, "exec tail -f /dev/null"))


def test_an_npm_that_installs_nothing_is_noticed(cache, tmp_path):
    with pytest.raises(AzuriteError, match="without"):
        node.ensure_azurite(npm(tmp_path, "true"))


def test_a_damaged_installation_is_replaced(cache, tmp_path):
    node.install_folder().mkdir(parents=True)
    (node.install_folder() / "half").touch()
    assert node.ensure_azurite(npm(tmp_path, INSTALLS)).is_file()
    assert not (node.install_folder() / "half").exists()
    assert len(list(cache.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(AzuriteError, match="Not a directory; set XDG_CACHE_HOME"):
        node.ensure_azurite(npm(tmp_path, INSTALLS))


def test_each_package_is_pinned_by_hash_and_by_no_address():
    text = (node.PINS / "package-lock.json").read_text(encoding="utf-8")
    packages = json.loads(text)["packages"]
    assert packages["node_modules/azurite"]["version"] == node.azurite_version()
    assert all("integrity" in package for path, package in packages.items() if path)
    assert '"resolved"' not in text
    assert not any(package.get("hasInstallScript") for package in packages.values())


@pytest.mark.parametrize("ports", ["some", (1, 2), (1, 1, 2), (0, 1, 2), (1, 2, 65536)])
def test_ports_that_cannot_be_are_refused(ports):
    with pytest.raises(ConfigurationError, match="three different ports: blob, queue, table"):
        checked_ports(ports)


def test_options_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="leave out in_memory or folder"):
        Azurite(in_memory=True, folder=tmp_path)
    with pytest.raises(ConfigurationError, match="'Account-B' is not valid"):
        Azurite(accounts=("Account-B",))


def test_before_its_start_it_has_neither_pid_nor_ports():
    azurite = Azurite()
    azurite.stop()
    azurite.kill()
    assert repr(azurite) == "<Azurite on free ports, not running>"
    assert azurite.folder is None
    for name in ("pid", "blob_port", "connection_string"):
        with pytest.raises(AzuriteError, match="call start"):
            getattr(azurite, name)


@pytest.mark.parametrize("value", [None, "", "relative/folder"])
def test_the_cache_is_in_the_home_folder_by_default(value, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_folder() == tmp_path / ".cache" / "postdate"


def test_a_child_gets_our_environment_with_changes(monkeypatch):
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("DROPPED", "1")
    environment = child_environment(DROPPED=None, ADDED="2")
    assert (environment["KEPT"], environment["ADDED"]) == ("1", "2")
    assert "DROPPED" not in environment


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("1", True), ("", False), ("False", False)])
def test_ci_is_known_by_its_variable(value, expected, monkeypatch):
    monkeypatch.setenv("CI", value)
    assert in_ci() is expected
