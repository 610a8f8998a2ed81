"""`postdate bench`, with tiny numbers."""

import json
import signal
import subprocess
import sys

from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

from postdate.bench.ground import PREFIX
from postdate.settings import child_environment


def left(connection: str) -> list[str]:
    """What a benchmark made and did not delete."""
    with TableServiceClient.from_connection_string(connection) as tables:
        names = [table.name for table in tables.list_tables()]
    with QueueServiceClient.from_connection_string(connection, api_version="2025-11-05") as queues:
        names += [str(queue.name) for queue in queues.list_queues()]
    return [name for name in names if name.startswith(PREFIX)]


def test_on_an_azurite_of_its_own_it_measures_and_writes(cli, tmp_path):
    out = tmp_path / "bench.json"
    done = cli("bench", "--local", "--messages", "50", "--yes", "--json", "--out", str(out))
    assert (done.code, done.object["failures"]) == (0, [])
    assert json.loads(out.read_text()) == done.object
    assert set(done.object["ratios"]) == {
        "drain_vs_classic",
        "drain_vs_limit",
        "requests_per_message",
        "cpu_vs_sdk_loop",
    }
    drained = {one["name"]: one["drain"]["messages"] for one in done.object["contenders"]}
    assert drained == {"classic": 50, "sdk_loop": 50, "postdate": 50}
    assert done.object["limit"]["puts"]["per_s"] > 0


def test_it_says_what_it_will_cost_and_does_nothing_unasked(cli, storage, azurite_connection):
    before = left(azurite_connection)
    done = cli("bench", "--messages", "100")
    assert done.code == 2
    told, refused = done.err.splitlines()
    assert "requests: " in told
    assert "queue put message" in told
    assert "USD" in told
    assert "--yes" in refused
    assert left(azurite_connection) == before


def test_on_the_configured_account_it_leaves_nothing_and_prints_a_table(cli, storage, azurite_connection):
    before = left(azurite_connection)
    done = cli("bench", "--messages", "50", "--yes")
    assert done.code == 0
    assert "drain_vs_classic" in done.out
    assert "limit: " in done.out
    assert left(azurite_connection) == before


def test_ctrl_c_in_the_middle_leaves_nothing_either(storage, azurite_connection):
    before = left(azurite_connection)
    process = subprocess.Popen(
        [sys.executable, "-m", "postdate", "bench", "--messages", "5000", "--yes"],
        env=child_environment(POSTDATE_CONNECTION=azurite_connection, POSTDATE_ENDPOINT=storage),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    assert any("[1/4] limit" in line for line in process.stderr)
    for _ in range(1000):
        if left(azurite_connection) != before:
            break
    else:
        process.kill()
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 130
    assert "is deleted" in rest
    assert left(azurite_connection) == before


def test_memory_is_no_account_to_measure(cli, monkeypatch):
    monkeypatch.setenv("POSTDATE_BACKEND", "memory")
    done = cli("bench", "--yes")
    assert done.code == 2
    assert "--local" in done.complaint
