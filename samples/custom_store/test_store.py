"""The store keeps the contract: in one process, in several at once, and where one of them is killed."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlite_store import SqliteStore, open_store
from store_worker import BATCH, FOUGHT_FOR, LATER, ids, messages

from postdate import Endpoint
from postdate.errors import ServiceBusy, StorageError, StorageUnreachable
from postdate.settings import load_settings
from postdate.testing.clock import VirtualClock
from postdate.testing.conformance import (
    DelayedStoreChangesConformance,
    DelayedStoreConformance,
    StoreHarness,
)

HERE = Path(__file__).parent
PATIENCE = 60
ROUNDS = 3


# --- the contract ---------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "delayed.db"


@pytest.fixture
async def store(path):
    async with SqliteStore(path) as opened:
        await opened.create()
        yield opened


@pytest.fixture
async def store_harness(store, path, tmp_path):
    async def spoil(key):
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE delayed_message SET headers = 'not json' WHERE row_key = ?", (key.row,))

    async with SqliteStore(tmp_path / "absent.db") as absent:
        yield StoreHarness(store, absent, spoil)


class TestSqliteStore(DelayedStoreConformance):
    @pytest.fixture
    def harness(self, store_harness):
        return store_harness


class TestSqliteStoreChanges(DelayedStoreChangesConformance):
    @pytest.fixture
    def harness(self, store_harness):
        return store_harness


# --- processes ------------------------------------------------------------------------------------


@contextmanager
def worker(what, path):
    """A process that works on the store; killed at the end, if it has not ended by then."""
    with subprocess.Popen(
        [sys.executable, HERE / "store_worker.py", what, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def hear(process):
    return json.loads(process.stdout.readline())


def together(processes):
    """Let all go on at once; what each says next."""
    assert [hear(process) for process in processes] == ["ready"] * len(processes)
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return [hear(process) for process in processes]


def heard_until_killed(process, lines):
    """What a process says until, after so many lines, it is killed in the middle of whatever it does."""
    heard = [hear(process) for _ in range(lines)]
    process.kill()
    rest, _ = process.communicate(timeout=PATIENCE)
    whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return heard + [json.loads(line) for line in whole]


async def what_is_there(path):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    async with SqliteStore(path) as store:
        return ids([row async for row in store.upcoming()])


def test_of_processes_that_create_it_one_does(path):
    with worker("create", path) as a, worker("create", path) as b, worker("create", path) as c:
        assert sorted(together([a, b, c])) == [False, False, True]


async def test_of_two_processes_one_adds_each_row_and_one_removes_it(store, path):
    with worker("fight", path) as one, worker("fight", path) as other:
        for _ in range(2):
            ours, theirs = together([one, other])
            assert sorted(map(int, [*ours, *theirs])) == list(range(FOUGHT_FOR))
        assert one.wait(PATIENCE) == other.wait(PATIENCE) == 0
    assert await store.next_due() is None


@pytest.mark.parametrize("lines", range(2, 2 + ROUNDS))
async def test_what_was_added_survives_kill_9_and_half_a_batch_is_never_seen(store, path, lines):
    with worker("add", path) as process:
        told = heard_until_killed(process, lines)[-1]
    there = await what_is_there(path)
    assert len(there) in (told, told + BATCH)
    assert there == [str(n) for n in range(len(there))]


@pytest.mark.parametrize("lines", range(2, 2 + ROUNDS))
async def test_what_was_removed_stays_removed_after_kill_9_and_nothing_else_is_missing(store, path, lines):
    count = 60 * BATCH
    await store.add(messages(0, count))
    with worker("remove", path) as process:
        told = [number for batch in heard_until_killed(process, lines) for number in batch]
    assert len(told) < count, "it was done before it was killed"
    there = await what_is_there(path)
    gone = {str(n) for n in range(count)} - set(there)
    assert len(there) == len(set(there))
    assert set(told) <= gone
    assert len(gone) - len(told) in (0, BATCH)


# --- what its user sees ---------------------------------------------------------------------------


async def test_a_writer_that_takes_too_long_makes_it_busy_and_readers_go_on(path, store):
    await store.add(messages(0, 1))
    async with SqliteStore(path, busy_timeout=timedelta(milliseconds=50)) as hasty:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                ServiceBusy, match=r"delayed\.db is busy: somebody has been writing for 0\.05 s"
            ):
                await hasty.add(messages(1, 1))
            assert len([page async for page in hasty.due(LATER)]) == 1
        assert (await hasty.add(messages(1, 1)))[0].created


async def test_a_file_that_is_none_of_ours_is_told(tmp_path):
    (tmp_path / "letter.txt").write_text("Dear database, " * 100, encoding="utf-8")
    with pytest.raises(StorageUnreachable, match=r"letter\.txt can't be opened"):
        await SqliteStore(tmp_path / "letter.txt").__aenter__()


async def test_a_folder_that_is_missing_is_told(tmp_path):
    with pytest.raises(StorageUnreachable, match="nowhere"):
        await SqliteStore(tmp_path / "nowhere" / "delayed.db").__aenter__()


async def test_a_full_disk_is_told_and_what_was_there_stays(path, store):
    await store.add(messages(0, 1))
    store._sql.execute(f"PRAGMA max_page_count = {store._sql.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.raises(StorageError, match="full; nothing was changed"):
        await store.add(messages(1, BATCH))
    assert len([row async for row in store.upcoming()]) == 1


async def test_an_endpoint_delivers_what_lies_there_after_a_restart(path):
    clock, due = VirtualClock(), timedelta(days=14)
    async with (
        SqliteStore(path) as store,
        Endpoint("Orders", backend="memory", clock=clock, store=store) as endpoint,
    ):
        assert "store sqlite_store.SqliteStore" in await endpoint.setup("invoices")
        await endpoint.schedule("invoices", {"order": 7}, delay=due)
    await clock.advance(due)
    async with (
        SqliteStore(path) as store,
        Endpoint("Orders", backend="memory", clock=clock, store=store) as endpoint,
    ):
        await endpoint.setup("invoices")
        assert (await endpoint.deliver_due()).handed_over == 1
        assert [d.json() async for d in endpoint.receive("invoices", idle=timedelta(0))] == [{"order": 7}]


async def test_the_setting_opens_a_file_of_the_endpoints_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTDATE_STORE", f"{open_store.__module__}:open_store")
    async with Endpoint(load_settings(endpoint="Orders", backend="memory")) as endpoint:
        await endpoint.setup()
        assert (tmp_path / f"{endpoint.settings.table_name}.db").exists()


@pytest.mark.parametrize("options", [[], ["--azurite"]], ids=["memory", "azurite"])
def test_the_program_runs(options, request):
    if options:
        request.getfixturevalue("azurite")  # skips where it can't be started here, as all such tests
    done = subprocess.run(
        [sys.executable, HERE / "main.py", *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "created store sqlite_store.SqliteStore" in done.stdout
    assert "3 messages wait in delayed.db\norder 2: cancelled\norder 1: delivered" in done.stdout
    assert "order 3: delivered" in done.stdout
    assert done.stdout.endswith("0 messages wait\n")
