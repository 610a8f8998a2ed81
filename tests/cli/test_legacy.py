"""postdate legacy: what is left of a timeout manager, moving it, and back."""

import json
import signal
from datetime import UTC, datetime, timedelta

import pytest
from cli_cases import documented_keys, on_endpoint, process, snapshot

from postdate.concurrency import for_each
from postdate.events import TimeoutsMoved
from postdate.model import headers as h
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.model.names import delays_table

NEXT_YEAR = datetime(2031, 1, 1, tzinfo=UTC)


@pytest.fixture
def legacy(orders, storage, monkeypatch, tmp_path):
    """Puts timeouts into a store of this test's own; commands run in an empty folder."""
    own = f"T{storage[-8:]}"
    monkeypatch.setenv("POSTDATE_TIMEOUT_TABLE", own)
    monkeypatch.setenv("POSTDATE_TIMEOUT_MANAGER_TABLE", f"M{own}")
    monkeypatch.setenv("POSTDATE_TIMEOUT_STATE_CONTAINER", own.lower())
    monkeypatch.chdir(tmp_path)

    def put(*changes):
        async def fill(endpoint):
            timeouts = endpoint.parts.backend.timeouts
            await timeouts.create()
            made = (
                timeout(storage, number, **{"destination": orders, **change})
                for number, change in enumerate(changes)
            )
            await for_each(made, 16, timeouts.add)

        on_endpoint(fill)

    return put


def timeout(owner, number, *, destination, due_at=None):
    due_at = due_at or NEXT_YEAR + timedelta(minutes=number)
    return LegacyTimeout(
        id=f"3f0d7f3e-6a1c-4f0b-9a55-{number:012d}",
        destination=destination,
        due_at=due_at,
        headers={h.MESSAGE_ID: f"m{number}", h.TIMEOUT_EXPIRE: h.format_instant(due_at)},
        body=b"{}",
        owner=owner,
    )


def left(cli):
    return cli("legacy", "show", "--json").object["waiting"]


def test_show_without_a_timeout_manager(cli, legacy, storage):
    found = cli("legacy", "show", "--json").object
    assert set(found) == documented_keys("legacy show") - {"destination", "count", "name"}
    assert (found["store"], found["waiting"], found["can_be_switched_off"]) == (False, 0, True)
    assert found["deletable"] == []
    assert [queue["count"] for queue in found["queues"]] == [None, None]


def test_show_tells_what_is_left_and_what_may_go(cli, legacy, orders, storage):
    legacy({}, {}, {"destination": "elsewhere"})
    done = cli("legacy", "show", "--json")
    assert done.code == 0
    found = done.object
    assert (found["store"], found["waiting"], found["overdue"]) == (True, 3, 0)
    assert found["can_be_switched_off"] is False
    assert {group["destination"]: group["count"] for group in found["by_destination"]} == {
        orders: 2,
        "elsewhere": 1,
    }
    assert found["earliest_due_at"] == "2031-01-01T00:00:00Z"
    assert any("if no other endpoint has timeouts there" in name for name in found["deletable"])
    text = cli("legacy", "show")
    assert "elsewhere" in text.out
    assert "postdate legacy drain" in text.err


def test_show_names_who_does_away_with_what_is_left(cli, legacy, storage):
    legacy()
    queue = f"{storage}-timeouts"
    assert cli("setup", "--queue", queue).code == 0
    assert f"nothing waits for endpoint {storage!r}; its name counts" in cli("legacy", "show").err
    assert cli("send", queue, "x").code == 0
    told = cli("legacy", "show").err
    assert "`postdate run` takes up the messages" in told
    assert "drain" not in told
    legacy({})
    assert "`postdate legacy drain` moves the timeouts; `postdate run`" in cli("legacy", "show").err


def test_a_preview_changes_nothing_and_makes_no_file(cli, legacy, orders, tmp_path):
    legacy({}, {"destination": f"{orders}x"})
    before = on_endpoint(snapshot)
    done = cli("legacy", "drain", "--preview", "--json")
    assert done.code == 1
    found = done.object
    assert (found["movable"], found["too_soon"]) == (1, 0)
    assert [one["id"][-1] for one in found["refused"]] == ["1"]
    assert "Did you mean" in found["refused"][0]["reason"]
    assert any("postdate run" in warning for warning in found["warnings"])
    assert on_endpoint(snapshot) == before
    assert left(cli) == 2
    assert list(tmp_path.iterdir()) == []
    text = cli("legacy", "drain", "--preview")
    assert "can't be moved" in text.out
    assert "warning: " in text.err


def test_drain_and_undo(cli, legacy, orders, storage, tmp_path):
    legacy({}, {}, {})
    done = cli("legacy", "drain", "--json")
    assert (done.code, done.err) == (0, "")
    found = done.object
    assert found["undo_file"] == f"postdate-drain-{delays_table(storage)}.jsonl"
    assert (found["moved"], found["verified"], found["expected"], found["found"]) == (3, True, 3, 3)
    assert found["checksum_expected"] == found["checksum_found"]
    assert found["by_destination"][0]["count"] == 3
    assert left(cli) == 0
    assert cli("legacy", "show", "--json").object["can_be_switched_off"] is True
    listed = cli("list", "--json").objects
    assert [(m["message_id"], m["destination"]) for m in listed] == [(f"m{n}", orders) for n in range(3)]
    assert listed[2]["due_at"] == "2031-01-01T00:02:00Z"

    back = cli("legacy", "undo", found["undo_file"], "--json")
    assert (back.code, back.object["back"], back.object["delivered"]) == (0, 3, [])
    assert left(cli) == 3
    assert cli("list", "--json").objects == []


def test_what_people_read(cli, legacy, orders, tmp_path):
    legacy({}, {"destination": f"{orders}x"}, {"due_at": datetime(2020, 1, 1, tzinfo=UTC)})
    done = cli("legacy", "drain", "--undo-file", "mine.jsonl")
    assert done.code == 1
    lines = {" ".join(line.split()[:-1]): line.split()[-1] for line in done.out.splitlines() if line}
    assert (lines["moved"], lines["too soon"], lines["refused"]) == ("1", "1", "1")
    assert lines["verified"] == "yes"
    assert "can't be moved, and stay where they are" in done.out
    assert f"'{orders}x' does not exist" in done.out
    assert "stay with the timeout manager" in done.err
    assert json.loads((tmp_path / "mine.jsonl").read_text().splitlines()[0])["kind"] == "began"
    undone = cli("legacy", "undo", "mine.jsonl")
    assert undone.code == 0
    assert undone.out.splitlines()[0].split() == ["back", "1"]


def test_the_cut_off_and_the_margin_choose(cli, legacy):
    soon = datetime.now(UTC) + timedelta(minutes=20)  # noqa: TID251 - by the service's clock
    legacy({}, {"due_at": soon}, {"due_at": soon - timedelta(days=400)})
    chosen = cli("legacy", "drain", "--preview", "--from", "2031-01-01T01:00:00+02:00", "--json").object
    assert (chosen["movable"], chosen["too_soon"]) == (1, 0)
    chosen = cli("legacy", "drain", "--preview", "--margin", "1h", "--json").object
    assert (chosen["movable"], chosen["too_soon"]) == (1, 2)
    chosen = cli("legacy", "drain", "--preview", "--margin", "0", "--json").object
    assert (chosen["movable"], chosen["too_soon"]) == (3, 0)
    assert any("due already" in warning for warning in chosen["warnings"])


BAD = {
    "naive cut-off": (["drain", "--from", "2031-01-01T00:00:00"], "has no time zone"),
    "no instant": (["drain", "--from", "today"], "write ISO 8601"),
    "no margin": (["drain", "--margin", "short"], "--margin 'short' is not a duration"),
    "margin below zero": (["drain", "--margin", "-5m"], "from 0 to 3650 days"),
    "no such folder": (["drain", "--undo-file", "no/such/folder"], "No such file"),
    "no such file": (["undo", "no-such-file"], "No such file"),
    "not an undo file": (["undo", "notes"], "line 1 is not one of an undo file"),
    "no file": (["undo"], "Missing argument"),
    "no such option": (["drain", "--nonsense"], "see `postdate legacy drain --help`"),
    "no such command": (["drian"], "No such command"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_line_and_nothing_changed(cli, legacy, case, tmp_path):
    arguments, says = BAD[case]
    legacy({})
    (tmp_path / "notes").write_text("# Notes\n")
    done = cli("legacy", *arguments)
    assert done.code == 2
    assert says in done.complaint
    assert left(cli) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    assert (tmp_path / "notes").read_text() == "# Notes\n"


def test_without_a_delays_table_the_way_out_is_named(cli, legacy, monkeypatch):
    legacy({})
    monkeypatch.setenv("POSTDATE_DELAYS_TABLE", "notthere")
    done = cli("legacy", "drain")
    assert done.code == 1
    assert "postdate setup" in done.complaint


def test_switched_off_delayed_delivery_moves_nothing(cli, legacy, monkeypatch):
    legacy({})
    monkeypatch.setenv("POSTDATE_DISABLE_DELAYED_DELIVERY", "true")
    for arguments in (["--preview"], []):
        done = cli("legacy", "drain", *arguments)
        assert done.code == 1
        assert "POSTDATE_DISABLE_DELAYED_DELIVERY" in done.complaint
    assert left(cli) == 1


def test_ctrl_c_ends_it_after_a_batch_and_the_same_command_goes_on(cli, legacy):
    legacy(*[{} for _ in range(500)])
    with process("legacy", "drain", "--verbose") as running:
        running.line_with("timeouts_moved")
        assert running.stop(signal.SIGINT) == 130
        assert "postdate: error: interrupted" in running.seen
    assert 0 < left(cli) < 500
    done = cli("legacy", "drain", "--json").object
    assert (done["verified"], done["found"], done["possible_duplicates"]) == (True, 500, [])
    assert left(cli) == 0


def test_the_group_alone_prints_its_help(cli):
    done = cli("legacy")
    assert done.code == 2
    assert "drain" in done.out + done.err


def test_progress_is_told_now_and_then(capsys):
    from postdate.cli.legacy.drain import _Progress

    progress = _Progress()
    for number in range(1, 21):
        progress(TimeoutsMoved("run", 100, 0, number * 100))
    assert capsys.readouterr().err.splitlines() == ["1,000 timeouts moved", "2,000 timeouts moved"]
