"""`postdate errors`, on Azurite."""

import json
import signal
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cli_cases import DOWN, on_endpoint, process, snapshot
from error_cases import FAILED_AT, failed, original

from postdate.core.error_groups import grouped
from postdate.core.error_selection import Selection
from postdate.engine.error_queue import ErrorQueue
from postdate.model.envelope import unwrap, wrap


@pytest.fixture
def place(storage, monkeypatch, tmp_path):
    """Queues of our own: `error`, `orders` and `invoices`; undo files go to a folder of their own."""
    names = {name: f"{name}-{storage[-8:]}" for name in ("error", "orders", "invoices")}
    monkeypatch.setenv("POSTDATE_ERROR_QUEUE", names["error"])
    monkeypatch.chdir(tmp_path)
    on_endpoint(lambda endpoint: endpoint.setup(*names.values()))
    return names


def put(queue, *texts):
    async def work(endpoint):
        for text in texts:
            await endpoint.parts.backend.sender.send(queue, text)

    on_endpoint(work)


def texts_in(queue):
    """All texts that are visible in a queue; they stay."""

    async def work(endpoint):
        texts = []
        await ErrorQueue(endpoint.parts.backend, endpoint.parts.clock, queue).look(
            Selection(), on_seen=lambda _, text: texts.append(text)
        )
        return texts

    return sorted(on_endpoint(work))


@pytest.fixture
def failures(place):
    """Five of one cause, two of another, and one that is no failure."""
    five = [failed(n, place["orders"], says=f"order {n} is closed") for n in range(5)]
    two = [failed(n, place["invoices"], error="System.TimeoutException", says="took long") for n in (5, 6)]
    put(place["error"], *five, *two, "just text")
    return [*five, *two, "just text"]


def groups(cli):
    return cli("errors", "groups", "--json").objects


# Looking


def test_list_shows_all_and_leaves_them_there(cli, place, failures):
    listed = cli("errors", "list", "--json").objects
    assert [one["message_id"] for one in listed[:7]] == [f"m{n:05d}" for n in range(7)]
    assert listed[0]["failed_queue"] == place["orders"]
    assert listed[0]["exception_type"] == "Contoso.OrderRefused"
    assert listed[0]["exception_message"] == "order 0 is closed"
    assert listed[0]["failed_at"] == "2026-03-01T07:08:09Z"
    assert (listed[0]["attempts"], listed[0]["message_type"]) == (24, "Contoso.Messages.ShipOrder")
    assert [one["state"] for one in listed] == ["failed"] * 7 + ["unexplained"]
    assert texts_in(place["error"]) == sorted(failures)


def test_list_for_people(cli, place, failures):
    shown = cli("errors", "list", "--limit", "6")
    assert shown.out.count("OrderRefused: order") == 5
    assert "TimeoutException: took long" in shown.out
    assert "there are more" in shown.err
    assert "(no fault headers)" in cli("errors", "list").out


def test_a_cause_that_is_cut_ends_in_dots(cli, place):
    put(place["error"], failed(1, says="closed " * 20))
    assert "closed cl…" in cli("errors", "list").out


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--type", "TimeoutException"], 2),
        (["--queue-failed", "ORDERS"], 5),
        (["--since", (FAILED_AT + timedelta(seconds=5)).isoformat()], 3),
        (["--until", (FAILED_AT + timedelta(seconds=5)).isoformat()], 5),
        (["--text", "just TEXT"], 1),
        (["--text", "took"], 2),
        (["--group", "1"], 5),
        (["--group", "2", "--limit", "1"], 1),
        (["--limit", "3"], 3),
    ],
)
def test_list_can_be_narrowed(cli, place, failures, options, found):
    options = [option.replace("ORDERS", place["orders"]) for option in options]
    assert len(cli("errors", "list", "--json", *options).objects) == found


def test_groups_are_by_cause_with_times_and_an_example(cli, place, failures):
    first, second, third = groups(cli)
    assert (first["count"], first["failed_queue"]) == (5, place["orders"])
    assert (first["exception_type"], first["message"]) == ("Contoso.OrderRefused", "order <n> is closed")
    assert first["first_at"] == "2026-03-01T07:08:09Z"
    assert first["last_at"] == "2026-03-01T07:08:13Z"
    assert first["example"] == "m00000"
    assert (second["count"], third["state"]) == (2, "unexplained")
    assert groups(cli) == [first, second, third]
    table = cli("errors", "groups").out
    assert first["group"] in table
    assert "OrderRefused: order <n> is closed" in table
    key = second["group"][:5]
    assert {m["group"] for m in cli("errors", "list", "--group", key, "--json").objects} == {second["group"]}


def test_an_empty_queue_is_told(cli, place):
    for command in ("list", "groups"):
        assert "nothing found" in cli("errors", command).out
        assert cli("errors", command, "--json").objects == []


def test_show_tells_why_with_trace_headers_and_body(cli, place, failures):
    shown = cli("errors", "show", "m00003", "--json").object
    assert shown["headers"]["Contoso.Note"] == "Größe"
    assert "at Contoso.Handler.Handle()" in shown["stack_trace"]
    assert (shown["body"], shown["body_encoding"], shown["no_body"]) == ('{"order": 7}', "text", None)
    text = cli("errors", "show", shown["native_id"]).out
    assert "   at Contoso.Handler.Handle()" in text
    assert '{"order": 7}' in text
    assert cli("errors", "show", "m00003", "--body").out == '{"order": 7}'
    assert texts_in(place["error"]) == sorted(failures)


def test_show_of_what_is_not_there_is_exit_code_1(cli, place, failures):
    done = cli("errors", "show", "m99999")
    assert done.code == 1
    assert "m99999" in done.complaint
    assert place["error"] in done.complaint
    assert "`postdate errors list`" in done.complaint


def test_show_of_a_large_body_and_of_one_that_is_gone(cli, place, tmp_path):
    file = tmp_path / "body"
    file.write_bytes(b"\xff" * 60_000)
    cli("send", place["error"], "--body-file", str(file), "--message-id", "big")
    assert cli("errors", "show", "big", "--json").object["body_encoding"] == "base64"
    cli("errors", "discard", "big", "--yes", "--undo-file", "u1")
    cli("errors", "undo", "u1")
    assert cli("errors", "show", "big", "--json").object["body_encoding"] == "base64"
    # As another endpoint's would be: the body is not in our container.
    other = cli("errors", "show", "big", "--json", "--endpoint", "other")
    assert "of another endpoint" in other.object["no_body"]


def test_control_characters_of_others_do_not_reach_the_terminal(cli, place):
    put(place["error"], failed(1, place["orders"], says="red \x1b[31m"))
    for command in (["list"], ["groups"], ["show", "m00001"]):
        done = cli("errors", *command)
        assert "\x1b" not in done.out
        assert "\\x1b[" in done.out


# Retry


def test_a_group_is_retried_and_nothing_else(cli, place, failures):
    key = groups(cli)[0]["group"]
    done = cli("errors", "retry", "--group", key, "--json")
    assert done.code == 0
    *moved, summary = done.objects
    assert {(m["outcome"], m["destination"]) for m in moved} == {("retried", place["orders"])}
    assert (summary["selected"], summary["done"], summary["left"]) == (5, 5, 0)
    assert texts_in(place["orders"]) == sorted(wrap(original(n)) for n in range(5))
    assert texts_in(place["error"]) == sorted(failures[5:])
    received = cli("receive", place["orders"], "--count", "1", "--json").object
    assert not {name for name in received["headers"] if "Exception" in name or "Retries" in name}


def test_single_messages_are_retried_by_their_ids(cli, place, failures):
    done = cli("errors", "retry", "m00001", "m00005", "nonsense")
    assert done.code == 1
    assert "nonsense: not found" in done.err
    assert texts_in(place["orders"]) == [wrap(original(1))]
    assert texts_in(place["invoices"]) == [wrap(original(5))]


def test_preview_says_what_would_be_done_and_does_nothing(cli, place, failures):
    done = cli("errors", "retry", "--all", "--preview", "--json")
    assert done.object["preview"] is True
    assert done.object["destinations"] == {place["orders"]: 5, place["invoices"]: 2}
    assert done.object["undo_file"] is None
    assert texts_in(place["error"]) == sorted(failures)
    assert list(Path().iterdir()) == []
    shown = cli("errors", "discard", "--all", "--preview").out
    assert "preview    yes" in shown
    assert "TimeoutException: took long" in shown
    assert texts_in(place["error"]) == sorted(failures)


def test_all_is_asked_about_and_what_names_no_queue_stays(cli, place, failures):
    assert "--yes" in cli("errors", "retry", "--all").err
    assert cli("errors", "retry", "--all", stdin=b"n\n").code == 2
    assert texts_in(place["error"]) == sorted(failures)
    done = cli("errors", "retry", "--all", stdin=b"y\n")
    assert f"{place['orders']} (5)" in done.err
    assert done.code == 1
    assert "no queue" in done.err
    assert texts_in(place["error"]) == ["just text"]
    done = cli("errors", "retry", "--all", "--to", place["orders"], "--yes", "--json")
    assert (done.code, done.objects[-1]["outcomes"]) == (0, {"retried": 1})
    assert "just text" in texts_in(place["orders"])


def test_a_missing_destination_is_refused_before_anything_moves(cli, place, failures):
    missing = place["orders"] + "x"
    put(place["error"], failed(9, missing))
    before = on_endpoint(snapshot)
    done = cli("errors", "retry", "--all", "--yes")
    assert done.code == 1
    assert f"1 of 9 messages can't go back: destination queue {missing!r} does not exist" in done.complaint
    assert f"Did you mean {place['orders']!r}" in done.complaint
    assert "Nothing was moved" in done.complaint
    assert on_endpoint(snapshot) == before
    assert list(Path().iterdir()) == []
    assert cli("errors", "retry", "m00009", "--to", place["orders"]).code == 0


def test_an_undo_file_undoes_a_retry(cli, place, failures):
    done = cli("errors", "retry", "--queue-failed", place["orders"], "--yes", "--json")
    file = Path(done.objects[-1]["undo_file"])
    assert file.name.startswith("postdate-errors-2")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text().splitlines()[0])["did"] == "retry"
    cli("receive", place["orders"], "--count", "1")
    undone = cli("errors", "undo", str(file), "--json")
    assert undone.code == 1
    assert sorted(one["outcome"] for one in undone.objects) == ["too late"] + ["withdrawn"] * 4
    assert texts_in(place["orders"]) == []
    assert len(texts_in(place["error"])) == 7
    people = cli("errors", "undo", str(file))
    assert "undone before   4" in people.out
    assert "too late" in people.err


# Discard


def test_discarded_messages_are_gone_and_can_be_restored(cli, place, failures):
    assert "--yes" in cli("errors", "discard", "m00001").err
    assert texts_in(place["error"]) == sorted(failures)
    done = cli("errors", "discard", "--type", "OrderRefused", "--undo-file", "undo", stdin=b"y\n")
    assert (done.code, "Delete 5 messages" in done.err) == (0, True)
    assert texts_in(place["error"]) == sorted(failures[5:])
    undone = cli("errors", "undo", "undo", "--json")
    assert (undone.code, {one["outcome"] for one in undone.objects}) == (0, {"restored"})
    assert texts_in(place["error"]) == sorted(failures)


def test_undo_wants_the_same_endpoint(cli, place, failures):
    cli("errors", "discard", "m00001", "--yes", "--undo-file", "undo")
    done = cli("errors", "undo", "undo", "--endpoint", "another")
    assert done.code == 2
    assert "--endpoint" in done.complaint


def test_another_queue_can_be_looked_at(cli, place):
    put(place["invoices"], failed(1, place["orders"]))
    assert len(cli("errors", "list", "--queue", place["invoices"], "--json").objects) == 1
    assert cli("errors", "retry", "m00001", "--queue", place["invoices"]).code == 0
    assert texts_in(place["orders"]) == [wrap(original(1))]


# Mistakes

MISTAKES = {
    "nothing named": (["retry"], 2, "say which messages"),
    "nothing named to discard": (["discard", "--yes"], 2, "say which messages"),
    "all and some": (["retry", "--all", "m00001"], 2, "not both"),
    "a number of a group": (["discard", "--group", "1"], 2, "by its key"),
    "no such group": (["retry", "--group", "zzzzzzzz"], 1, "no message of group"),
    "no such number": (["list", "--group", "99"], 2, "there is no group 99"),
    "two groups": (["retry", "--group", "", "--yes"], 2, "write more of the key"),
    "naive instant": (["list", "--since", "2026-03-01"], 2, "'2026-03-01' has no time zone; write it like"),
    "empty span": (
        ["groups", "--since", "2026-03-02T00:00:00Z", "--until", "2026-03-01T00:00:00Z"],
        2,
        "--until",
    ),
    "rate 0": (["retry", "--all", "--rate", "0"], 2, "--rate"),
    "to the error queue": (["retry", "--all", "--to", "ERROR"], 2, "is the error queue itself"),
    "to no queue's name": (["retry", "m00001", "--to", "No Queue"], 2, "not valid"),
    "to a missing queue": (["retry", "m00001", "--to", "no-such-queue"], 1, "does not exist"),
    "no queue to go back to": (["retry", "NATIVE"], 2, "--to QUEUE"),
    "an error queue that is missing": (["list", "--queue", "ERRORx"], 1, "Did you mean 'ERROR'"),
    "an error queue without a queue's name": (["list", "--queue", "Errors"], 2, "did you mean 'errors'"),
    "an undo file that is there": (["retry", "m00001", "--undo-file", "there"], 2, "is there already"),
    "an undo file nowhere": (["retry", "m00001", "--undo-file", "no/there"], 2, "No such file"),
    "to undo no file": (["undo", "nowhere"], 2, "No such file"),
    "to undo something else": (["undo", "there"], 2, "is not an undo file"),
    "storage down": (["list", "--connection", DOWN], 3, "`postdate azurite`"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(cli, place, failures, case):
    arguments, code, says = MISTAKES[case]
    Path("there").write_text("mine\n")
    native = next(one for one in cli("errors", "list", "--json").objects if one["state"] == "unexplained")
    replaced = {"ERROR": place["error"], "NATIVE": native["native_id"]}

    def meant(text):
        for name, value in replaced.items():
            text = text.replace(name, value)
        return text

    done = cli("errors", *(meant(argument) for argument in arguments))
    assert done.code == code
    complaint = done.err.splitlines()[-1]
    assert complaint.startswith("postdate: error: ")
    assert meant(says) in complaint
    assert len(done.err.splitlines()) == 1
    assert texts_in(place["error"]) == sorted(failures)
    assert [path.name for path in Path().iterdir()] == ["there"]


def test_groups_of_the_table_and_of_the_code_are_the_same(cli, place, failures):
    async def work(endpoint):
        queue = ErrorQueue(endpoint.parts.backend, endpoint.parts.clock, place["error"])
        return grouped((await queue.look(Selection())).messages)

    assert [group.key for group in on_endpoint(work)] == [group["group"] for group in groups(cli)]


def test_a_rate_paces_a_retry(cli, place, failures):
    done = cli("errors", "retry", "m00001", "m00002", "--rate", "20", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.objects[-1]["seconds"] >= 0.05
    assert {unwrap(text, "").message.message_id for text in texts_in(place["orders"])} == {"m00001", "m00002"}


@pytest.mark.parametrize("did", ["retry", "discard"])
def test_ctrl_c_finishes_what_is_under_way_and_leaves_the_rest_visible(cli, place, failures, did):
    to = ("--to", place["orders"]) if did == "retry" else ()
    with process("errors", did, "--all", *to, "--yes", "--rate", "1", "--json") as running:
        assert json.loads(running.line_with("outcome"))["outcome"] in ("retried", "discarded")
        assert running.stop(signal.SIGINT) == 130
    summary = json.loads(running.seen[-2])
    assert running.seen[-1] == "postdate: error: interrupted"
    assert summary["left"] == 8 - summary["done"] > 0
    assert len(texts_in(place["error"])) == summary["left"]
    assert len(texts_in(place["orders"])) == (summary["done"] if did == "retry" else 0)
