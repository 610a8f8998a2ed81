"""Scheduling the lines of a file or a pipe."""

import base64
import io
import json
import os
import signal
from datetime import timedelta

import pytest
from cli_cases import DOWN, on_endpoint, process
from rich.console import Console
from rich.progress import Progress

from postdate.cli.message_lines import parse_line
from postdate.cli.progress import Bar, Lines
from postdate.errors import UsageError
from postdate.model.names import delays_table
from postdate.testing.clock import VirtualClock


def lines(*messages):
    return b"".join((m if isinstance(m, bytes) else json.dumps(m).encode()) + b"\n" for m in messages)


def listed(cli):
    return cli("list", "--json").objects


def test_each_line_is_a_message_and_refused_lines_are_told_by_number(cli, orders, tmp_path):
    file = tmp_path / "messages.jsonl"
    file.write_bytes(
        lines(
            {"destination": orders, "body": "one", "delay": "1h", "message_id": "m1"},
            b"",
            b"{nonsense",
            {"destination": orders, "body": "two", "delay": 7200, "message_id": "m2"},
            {"destination": f"{orders}x", "body": "x", "delay": 60},
            {"destination": orders, "body": "x", "at": "2030-01-01T00:00:00"},
            {"destination": orders, "body": "three", "at": "2030-01-01T00:00:00Z", "message_id": "m3"},
        ).rstrip(b"\n")
    )
    done = cli("schedule-many", str(file))
    assert done.code == 1
    told = dict(line.split(": ", 1) for line in done.err.splitlines())
    assert sorted(told) == ["line 3", "line 5", "line 6"]
    assert "malformed" in told["line 3"]
    assert "Did you mean" in told["line 5"]
    assert "no time zone" in told["line 6"]
    assert [line.split()[:2] for line in done.out.splitlines()][:2] == [["accepted", "3"], ["refused", "3"]]
    assert [message["message_id"] for message in listed(cli)] == ["m1", "m2", "m3"]


def test_json_tells_refused_lines_and_a_summary(cli, orders):
    given = lines(
        {"destination": orders, "body": "x", "delay": "1h"},
        {"destination": orders, "body": "x", "delay": "soon"},
    )
    done = cli("schedule-many", "-", "--json", stdin=given)
    assert done.code == 1
    refused, summary = done.objects
    assert refused["line"] == 2
    assert "1m30s" in refused["reason"]
    assert (summary["accepted"], summary["refused"], summary["stopped_at_line"]) == (1, 1, None)
    assert summary["seconds"] >= 0
    assert done.err == ""


def test_all_accepted_is_exit_code_0_and_nothing_given_too(cli, orders):
    one = lines({"destination": orders, "body": "x", "delay": "1h"})
    assert cli("schedule-many", "-", "--json", stdin=one).code == 0
    done = cli("schedule-many", "-", "--json", stdin=b"\n\n")
    assert (done.code, done.object["accepted"]) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "body", "content_type"),
    [
        ({"body": "Größe"}, "Größe".encode(), "text/plain"),
        ({"body": {"n": [1, None]}}, b'{"n": [1, null]}', "application/json"),
        ({"body": None}, b"null", "application/json"),
        ({"body": 7, "headers": {"NServiceBus.ContentType": "text/x"}}, b"7", "text/x"),
        (
            {"body": base64.b64encode(b"\x00\xff").decode(), "body_encoding": "base64"},
            b"\x00\xff",
            "application/octet-stream",
        ),
    ],
)
def test_a_body_is_text_or_json_as_written_or_bytes(cli, orders, fields, body, content_type):
    done = cli("schedule-many", "-", "--json", stdin=lines({"destination": orders, "delay": 0, **fields}))
    assert done.code == 0

    async def receive(endpoint):
        async for delivery in endpoint.receive(orders, idle=timedelta(0)):
            await delivery.ack()
            return delivery
        raise AssertionError("nothing came")

    delivery = on_endpoint(receive)
    assert delivery.body == body
    assert delivery.headers["NServiceBus.ContentType"] == content_type


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"[]", "Expected `object`"),
        (b"7", "Expected `object`"),
        (b'{"body": "x", "delay": 1}', "destination"),
        (b'{"destination": "q", "delay": 1}', "body"),
        (b'{"destination": "q", "body": "x", "dealy": 1}', "dealy"),
        (b'{"destination": "q", "body": "x", "delay": [1]}', "delay"),
        (b'{"destination": "q", "body": "x", "headers": {"a": 1}}', "headers"),
        (b'{"destination": "q", "body": "x", "at": "tomorrow"}', "ISO 8601"),
        (b'{"destination": "q", "body": {"a": "\xff"}, "delay": 1}', "not a message"),
        (b'{"destination": "q", "body": "!", "body_encoding": "base64"}', "base64"),
        (b'{"destination": "q", "body": "x", "body_encoding": "rot13"}', "rot13"),
        (b'{"destination": "q", "body": ' + b"[" * 100_000, "not a message"),
    ],
)
def test_a_line_that_is_no_message_says_what_is_wrong(line, says):
    with pytest.raises(UsageError, match=says) as refused:
        parse_line(line)
    assert "\n" not in str(refused.value)


def test_handles_are_printed_where_they_are_wanted(cli, orders):
    given = lines(*({"destination": orders, "body": n, "delay": "1h"} for n in range(3)))
    done = cli("schedule-many", "-", "--handles", stdin=given)
    found = dict(line.split() for line in done.out.splitlines()[:3])
    assert list(found) == ["1", "2", "3"]
    assert cli("cancel", *found.values()).code == 0
    *handles, _ = cli("schedule-many", "-", "--handles", "--json", stdin=given).objects
    assert [told["line"] for told in handles] == [1, 2, 3]
    assert {told["handle"] for told in handles} == {message["handle"] for message in listed(cli)}


def test_it_begins_where_it_is_told(cli, orders):
    given = lines(
        *({"destination": orders, "body": n, "delay": "1h", "message_id": str(n)} for n in (1, 2, 3))
    )
    assert cli("schedule-many", "-", "--first-line", "3", stdin=given).code == 0
    assert [message["message_id"] for message in listed(cli)] == ["3"]


def test_when_the_service_fails_the_line_to_go_on_at_is_told(cli, storage):
    on_endpoint(lambda endpoint: endpoint.parts.backend.sender.create("error"))
    given = lines(b"nonsense", *({"destination": "error", "body": n, "delay": "1h"} for n in range(3)))
    done = cli("schedule-many", "-", stdin=given)
    assert done.code == 1
    assert "line 2: " in done.err
    assert delays_table(storage) in done.err
    assert "--first-line 2" in done.err
    down = cli("schedule-many", "-", "--json", "--connection", DOWN, stdin=given)
    assert down.code == 3
    assert down.objects[-1]["stopped_at_line"] == 2


def test_a_file_that_is_not_there_is_wrong_usage(cli, orders):
    done = cli("schedule-many", "nothing.jsonl")
    assert done.code == 2
    assert "nothing.jsonl" in done.complaint


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_pipe_is_stored_while_it_goes_on_and_a_signal_ends_it_in_order(cli, orders, tmp_path, number):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opening a pipe to write waits for who reads it.
    with process("schedule-many", str(pipe), "--handles") as running, pipe.open("wb", buffering=0) as source:
        source.write(lines({"destination": orders, "body": "x", "delay": "1h", "message_id": "m1"}))
        running.line_with("1  ")  # stored, although the pipe goes on
        source.write(lines({"destination": orders, "body": "x", "delay": "2h", "message_id": "m2"}))
        running.line_with("2  ")
        assert running.stop(number) == 130
    assert any("stopped at line" in line and line.split()[-1] == "3" for line in running.seen)
    assert [message["message_id"] for message in listed(cli)] == ["m1", "m2"]


async def test_progress_is_a_line_every_ten_seconds_where_there_is_no_terminal(capsys):
    clock = VirtualClock()
    display = Lines(clock)
    display.update("line 1: 1 scheduled, 0 refused", 10)
    assert capsys.readouterr().err == ""
    await clock.advance(10)
    display.update("line 9: 9 scheduled, 0 refused", 90)
    display.update("line 10: 10 scheduled, 0 refused", 100)
    assert capsys.readouterr().err == "line 9: 9 scheduled, 0 refused\n"


def test_progress_on_a_terminal_is_a_bar_by_bytes_below_what_is_noted():
    screen = io.StringIO()
    with Progress(console=Console(file=screen, force_terminal=True, width=100)) as progress:
        bar = Bar(progress, 200)
        bar.update("line 5: 5 scheduled, 0 refused", 100)
        bar.note("line 6: \x1b[2Jno")
        progress.refresh()
    assert "50%" in screen.getvalue()
    assert "line 5: 5 scheduled" in screen.getvalue()
    assert "line 6: \\x1b[2Jno" in screen.getvalue()
