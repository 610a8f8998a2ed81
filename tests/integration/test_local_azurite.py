"""The local storage service: it starts, keeps data, and never outlives the process that started it."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

from postdate.errors import ConfigurationError, PostdateError
from postdate.local import Azurite, AzuriteError
from postdate.local import azurite as module

PATIENCE_SECONDS = 30


def write(azurite: Azurite, count: int) -> None:
    with TableServiceClient.from_connection_string(azurite.connection_string) as tables:
        table = tables.create_table_if_not_exists("rows")
        for n in range(count):
            table.upsert_entity({"PartitionKey": "p", "RowKey": str(n)})
    with QueueServiceClient.from_connection_string(azurite.connection_string) as queues:
        queues.create_queue("messages")
        queue = queues.get_queue_client("messages")
        for n in range(count):
            queue.send_message(str(n))


def counted(azurite: Azurite) -> tuple[int, int]:
    """Rows and messages."""
    with TableServiceClient.from_connection_string(azurite.connection_string) as tables:
        rows = len(list(tables.get_table_client("rows").list_entities()))
    with QueueServiceClient.from_connection_string(azurite.connection_string) as queues:
        return rows, queues.get_queue_client("messages").get_queue_properties().approximate_message_count


def wait_for_end(pid: int) -> bool:
    """Wait until a process that is not our child has ended; False if it did not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], PATIENCE_SECONDS)[0])
    finally:
        os.close(descriptor)


@contextmanager
def python(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `script`; it is killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_data_survives_a_restart_and_stays_in_a_given_folder(tmp_path):
    folder = tmp_path / "a folder" / "that is new"
    with Azurite(folder=folder) as azurite:
        ports = azurite.blob_port, azurite.queue_port, azurite.table_port
        write(azurite, 50)
        pid = azurite.pid
        azurite.restart()
        assert azurite.pid != pid
        assert (azurite.blob_port, azurite.queue_port, azurite.table_port) == ports
        assert counted(azurite) == (50, 50)
        assert azurite.folder == folder
    with Azurite(folder=folder) as another:
        assert counted(another) == (50, 50)


def test_a_temporary_folder_is_removed_at_the_end():
    with Azurite() as azurite:
        folder, pid = azurite.folder, azurite.pid
        assert any(folder.iterdir())
    assert not folder.parent.exists()
    assert not azurite.running
    assert not psutil.pid_exists(pid)
    azurite.close()  # twice does no harm


def test_after_a_kill_it_starts_again_on_the_same_ports():
    with Azurite() as azurite:
        port, pid = azurite.table_port, azurite.pid
        azurite.kill()
        assert not azurite.running
        assert not psutil.pid_exists(pid)
        azurite.start()
        assert azurite.table_port == port
        write(azurite, 1)


def test_two_at_once_share_nothing():
    with Azurite() as one, Azurite() as two:
        write(one, 1)
        with TableServiceClient.from_connection_string(two.connection_string) as tables:
            assert list(tables.list_tables()) == []


def test_two_on_one_folder_are_refused(tmp_path):
    refused = pytest.raises(AzuriteError, match="another Azurite uses the folder")
    with Azurite(folder=tmp_path), refused, Azurite(folder=tmp_path):
        pass
    with Azurite(folder=tmp_path):
        pass


def test_further_accounts_have_keys_and_data_of_their_own():
    with Azurite(accounts=("accountb",)) as azurite:
        for account in ("devstoreaccount1", "accountb"):
            with QueueServiceClient.from_connection_string(azurite.connection_string_for(account)) as queues:
                assert list(queues.list_queues()) == []
                queues.create_queue("messages")
        with pytest.raises(
            ConfigurationError, match="no account 'accountc'; it has devstoreaccount1, accountb"
        ):
            azurite.connection_string_for("accountc")
        assert azurite.connection_string_for("accountb").split("AccountKey=")[1][:20] not in repr(azurite)


def test_in_memory_it_serves_and_has_no_folder():
    with Azurite(in_memory=True) as azurite:
        assert azurite.folder is None
        write(azurite, 1)
        assert counted(azurite) == (1, 1)


async def test_it_is_an_async_context_manager_too():
    async with Azurite() as azurite:
        assert azurite.running
    assert not azurite.running


async def test_a_start_that_is_cancelled_leaves_nothing_running(monkeypatch):
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    azurite = Azurite()
    launch = azurite._launch

    def launch_and_tell(*arguments):
        launch(*arguments)
        loop.call_soon_threadsafe(started.set)

    monkeypatch.setattr(azurite, "_launch", launch_and_tell)
    starting = asyncio.create_task(azurite.__aenter__())
    await started.wait()
    pid = azurite.pid
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not azurite.running
    assert not psutil.pid_exists(pid)


START_AND_WAIT = """
import sys
from pathlib import Path
from postdate.local import Azurite
azurite = Azurite(folder=Path(sys.argv[1]), ports=tuple(map(int, sys.argv[2:])) or "free").start()
print(azurite.pid, azurite.blob_port, azurite.queue_port, azurite.table_port, flush=True)
sys.stdin.read()
"""


def test_it_ends_and_saves_when_its_parent_is_killed(tmp_path):
    with python(START_AND_WAIT, str(tmp_path)) as parent:
        pid, *ports = map(int, parent.stdout.readline().split())
        write(Azurite(ports=tuple(ports)), 50)
        scratch = Path(psutil.Process(pid).cwd())
        assert scratch.name.startswith("postdate-azurite-")
        parent.send_signal(signal.SIGKILL)
        assert wait_for_end(pid)
    assert not scratch.exists()
    with Azurite(folder=tmp_path, ports=tuple(ports)) as azurite:
        assert counted(azurite) == (50, 50)


def test_it_ends_with_its_parent_though_another_child_holds_the_pipe(tmp_path):
    script = START_AND_WAIT.replace(
        "print(",
        "import os, signal\nchild = os.fork()\nif not child:\n    signal.pause()\nprint(child, ",
    )
    with python(script, str(tmp_path)) as parent:
        child, pid, *_ = map(int, parent.stdout.readline().split())
        try:
            parent.send_signal(signal.SIGKILL)
            assert wait_for_end(pid)
        finally:
            os.kill(child, signal.SIGKILL)


def test_it_ends_when_its_parent_is_killed_before_it_serves(tmp_path):
    script = START_AND_WAIT.replace(
        "azurite = Azurite(",
        "Azurite._wait_until_ready = lambda self, _: (print(self.pid, flush=True), sys.stdin.read())\nAzurite(",
    )
    with python(script, str(tmp_path)) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        assert wait_for_end(pid)


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_named_with_the_way_out():
    ports = module.pick_ports()
    with taken_port() as port, pytest.raises(PostdateError) as caught:
        Azurite(ports=(ports[0], port, ports[2])).start()
    assert str(caught.value) == (
        f"queue port {port} is already in use on 127.0.0.1; stop what uses it (another Azurite?), or choose "
        "other ports (`postdate azurite --free-ports`)"
    )


def test_a_port_that_is_taken_while_it_starts_is_named_too(monkeypatch):
    monkeypatch.setattr(module, "check_free", lambda *_: None)
    ports = module.pick_ports()
    with taken_port() as port:
        azurite = Azurite(ports=(ports[0], port, ports[2]))
        with pytest.raises(PostdateError, match=f"^port {port} is already in use"), azurite:
            pass
    assert not azurite.running


def test_free_ports_are_chosen_anew_if_one_is_taken_meanwhile(monkeypatch):
    good = module.pick_ports()
    monkeypatch.setattr(module, "check_free", lambda *_: None)
    with taken_port() as port:
        choices = iter([(good[0], good[1], port), good])
        monkeypatch.setattr(module, "pick_ports", lambda: next(choices))
        with Azurite() as azurite:
            assert azurite.table_port == good[2]


def test_the_well_known_ports_serve_the_short_connection_string():
    try:
        with Azurite(ports="well-known") as azurite:
            assert azurite.connection_string.count("http://127.0.0.1:1000") == 3
            with QueueServiceClient.from_connection_string(
                "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey="
                f"{module.ACCOUNT_KEY};QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1"
            ) as queues:
                assert list(queues.list_queues()) == []
    except AzuriteError as error:
        # Somebody's own Azurite runs on this machine; the message is then what is tested.
        assert "port 1000" in str(error)
        assert "already in use" in str(error)


INSTALL = "from postdate.local.node import ensure_azurite, find_node; print(ensure_azurite(find_node()))"


def test_two_processes_install_into_an_empty_cache_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with python(INSTALL) as one, python(INSTALL) as two:
        paths = {process.communicate(timeout=600)[0].strip() for process in (one, two)}
    (entry,) = map(Path, paths)
    assert entry.is_relative_to(tmp_path)
    folder = next(parent for parent in entry.parents if parent.name.startswith("azurite-"))
    assert sorted(p.name for p in folder.parent.iterdir()) == [folder.name, folder.name + ".lock"]
    with Azurite() as azurite:
        assert azurite.running


def stand_in(monkeypatch, tmp_path, script: str) -> None:
    (tmp_path / "azurite.js").write_text(script, encoding="utf-8")
    monkeypatch.setattr(module, "ensure_azurite", lambda _: tmp_path / "azurite.js")


def test_an_azurite_that_ends_at_once_is_quoted(monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, "console.log('out of order'); process.exit(3)")
    with pytest.raises(AzuriteError) as caught, Azurite():
        pass
    assert str(caught.value) == "Azurite ended with exit status 3; it said: out of order"


def test_an_azurite_that_never_answers_is_given_up(monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, "setInterval(() => {}, 1000)")
    azurite = Azurite(start_timeout=0.2)
    with (
        pytest.raises(AzuriteError, match=r"did not answer within 0\.2 s; it said: nothing"),
        azurite,
    ):
        pass
    assert not azurite.running


def test_an_azurite_that_does_not_stop_is_killed(monkeypatch, tmp_path, caplog):
    serving = """
        const http = require("http");
        process.on("SIGTERM", () => {});
        for (const name of ["blob", "queue", "table"]) {
          const port = process.argv[process.argv.indexOf(`--${name}Port`) + 1];
          http.createServer((q, a) => a.end()).listen(port, "127.0.0.1", () =>
            console.log("is successfully listening at"));
        }
    """
    stand_in(monkeypatch, tmp_path, serving)
    with Azurite(stop_timeout=0.2) as azurite:
        pid = azurite.pid
    assert not psutil.pid_exists(pid)
    assert "did not stop within 0.2 s and was killed" in caplog.text
