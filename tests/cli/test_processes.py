"""Commands that run until they are told to stop: as processes, with signals."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli_cases import PATIENCE, on_endpoint, process

from postdate.local.ports import answers

QUICK = ("--lookahead", "0", "--idle-interval", "0.5", "--probe-interval", "0.2")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_delivers_and_stops_cleanly(cli, orders, number):
    with process("run", *QUICK) as running:
        assert "SIGTERM" in running.line_with("serves")
        assert "term=1" in running.line_with("term_began")
        cli("schedule", orders, "hello", "--delay", "1", "--lookahead", "0")
        received = cli("receive", orders, "--idle", "20", "--count", "1", "--json").object
        assert (received["body"], received["term"]) == ("hello", 1)
        assert cli("leader", "--json").object["leads"] is True
        assert running.stop(number) == 0
        assert "lease_released" in "\n".join(running.seen)
        assert "stopped" in running.seen[-1]
    assert cli("leader", "--json").object["leads"] is False
    assert cli("list", "--json").objects == []


def test_a_second_process_follows_and_takes_over_at_a_clean_stop(cli, orders):
    with process("run", *QUICK) as first:
        first.line_with("term_began")
        with process("run", *QUICK) as second:
            second.line_with("serves")
            assert str(first.pid) in cli("leader", "--json").object["holder"]
            assert first.stop() == 0
            assert "term=2" in second.line_with("term_began")
            assert str(second.pid) in cli("leader", "--json").object["holder"]
            assert second.stop() == 0


def test_the_log_can_be_json(cli, orders):
    with process("run", *QUICK, "--log-format", "json", "--verbose") as running:
        began = json.loads(running.line_with("term_began"))
        assert began["event"] == "term_began"
        assert (began["level"], began["logger"], began["term"]) == ("info", "postdate.events", 1)
        assert began["time"].endswith("Z")
        assert json.loads(running.line_with("pass_finished"))["level"] == "debug"
        assert running.stop() == 0
        for line in running.seen:
            json.loads(line)


def test_a_second_signal_ends_at_once(cli, orders, tmp_path):
    code = (
        "import asyncio, signal\n"
        "from postdate.cli.signals import stop_signals\n"
        "async def main():\n"
        "    with stop_signals() as stop:\n"
        "        print('ready', flush=True)\n"
        "        await stop.wait()\n"
        "        print('stopping', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == "ready\n"
        stubborn.terminate()
        assert stubborn.stdout.readline() == "stopping\n"
        stubborn.terminate()
        assert stubborn.wait(PATIENCE) == -signal.SIGTERM


def test_receive_follow_prints_what_comes_and_stops_cleanly(cli, orders):
    with process("receive", orders, "--follow", "--json") as running:
        for text in ("one", "two"):
            cli("send", orders, text)
            assert json.loads(running.line_with(text))["body"] == text
        assert running.stop() == 0
    assert cli("receive", orders, "--json").objects == []


def test_a_reader_that_goes_away_is_no_error_of_ours(cli, orders):
    for year in range(2100, 2130):
        cli("schedule", orders, "x" * 1000, "--at", f"{year}-01-01T00:00:00Z")
    pipe, end = os.pipe()
    os.close(pipe)
    done = subprocess.run(
        [sys.executable, "-m", "postdate", "list", "--json"],
        stdout=end,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
    )
    os.close(end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c_ends_any_command_with_130(cli, orders, tmp_path):
    # A server that takes the connection and never answers.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/devstoreaccount1"
        connection = (
            "AccountName=devstoreaccount1;AccountKey=YWJj;"
            f"TableEndpoint={url};QueueEndpoint={url};BlobEndpoint={url}"
        )
        with process("list", "--connection", connection) as running:
            asked, _ = silent.accept()
            assert running.stop(signal.SIGINT) == 130
            assert running.seen == ["postdate: error: interrupted"]
            asked.close()


def test_azurite_tells_its_connection_string_and_stops_with_sigterm(cli, monkeypatch, tmp_path):
    with process("azurite", "--free-ports", "--folder", str(tmp_path / "data"), "--json") as running:
        told = json.loads(running.line_with("connection_string"))
        assert told["folder"] == str(tmp_path / "data")
        monkeypatch.setenv("POSTDATE_CONNECTION", told["connection_string"])
        monkeypatch.setenv("POSTDATE_ENDPOINT", "orders")
        assert cli("setup").code == 0
        assert running.stop() == 0
    assert not any(answers(told[f"{service}_port"]) for service in ("blob", "queue", "table"))
    assert (tmp_path / "data").is_dir()


def test_azurite_tells_people_which_line_to_export(cli):
    with process("azurite", "--free-ports", "--in-memory") as running:
        line = running.line_with("export POSTDATE_CONNECTION=")
        connection = line.partition("'")[2].rstrip("'")
        assert on_endpoint(lambda e: e.setup(), endpoint="orders", connection=connection)
        assert running.stop(signal.SIGINT) == 0


def test_azurite_that_dies_is_a_failure(cli):
    with process("azurite", "--free-ports", "--json") as running:
        told = json.loads(running.line_with("connection_string"))
        os.kill(told["pid"], signal.SIGKILL)
        assert running.wait() == 1
        assert "Azurite ended by itself" in running.seen[-1]
    assert not Path(told["folder"]).exists()


def test_azurite_on_a_taken_port_names_it(cli):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 10001))
            taken.listen()
        except OSError:
            pass  # then somebody else has it, which does as well
        done = cli("azurite")
    assert done.code == 1
    assert "1000" in done.complaint


def test_run_tells_at_its_start_that_the_error_queue_is_missing(orders):
    missing = f"errors-{orders}"
    with process("run", *QUICK, "--error-queue", missing) as running:
        told = running.line_with("does not exist")
        assert f"error queue '{missing}' does not exist; create it with `postdate setup`" in told
        assert running.stop(signal.SIGTERM) == 0
        assert len([line for line in running.seen if "does not exist" in line]) == 1
    with process("run", *QUICK) as running:
        running.line_with("term_began")
        assert running.stop(signal.SIGTERM) == 0
        assert "does not exist" not in "\n".join(running.seen)
