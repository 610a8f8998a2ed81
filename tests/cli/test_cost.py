"""stats --cost, and what a log says that was asked."""

import json
import signal

import pytest
from cli_cases import process

from postdate.cli.cost import MONTH_HOURS
from postdate.settings import list_prices

COMMANDS = ["doctor", "stats", "list", "leader", "setup", "deliver-due", "receive"]


def record(**fields):
    values = {
        "time": "2026-03-01T12:00:00Z",
        "level": "info",
        "event": "requests_counted",
        "covered_s": 300.0,
    }
    return json.dumps({**values, "requests": 0, "counts": {}, "handed_over": 0, **fields}) + "\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(
        "Traceback of something else\n"
        + json.dumps({"event": "handed_over", "message_id": "m", "counts": 7})
        + "\n"
        + record(
            counts={"table query": {"ok": 30_000, "throttled": 5}, "queue put message": {"ok": 1000}},
            handed_over=500,
        )
        + record(counts={"table query": {"refused": 10_000}, "blob unknown": {"ok": 2}}),
        encoding="utf-8",
    )
    return path


def test_what_a_log_says_is_summed_and_priced(cli, log):
    told = cli("stats", "--requests", str(log), "--json").object
    assert told["covered_s"] == 600
    assert told["requests"] == 41_007
    assert told["handed_over"] == 500
    assert told["cost"] == pytest.approx(4 * 0.00036 + 0.0004)
    assert told["cost_per_million"] == pytest.approx(2000 * told["cost"])
    assert told["unpriced"] == ["blob unknown"]
    assert told["currency"] == "USD"
    operations = {one["operation"]: (one["requests"], one["throttled"]) for one in told["operations"]}
    assert operations == {"blob unknown": (2, 0), "queue put message": (1000, 0), "table query": (40_005, 5)}


def test_logs_of_several_processes_are_one_and_one_may_come_by_stdin(cli, log):
    more = record(counts={"table query": {"ok": 10_000}}).encode()
    told = cli("stats", "--requests", str(log), "--requests", "-", "--json", stdin=more).object
    assert told["requests"] == 51_007
    assert told["covered_s"] == 900


def test_without_hand_overs_there_is_no_cost_of_one(cli, tmp_path):
    path = tmp_path / "log"
    path.write_text(record(counts={"table query": {"ok": 1}}), encoding="utf-8")
    assert cli("stats", "--requests", str(path), "--json").object["cost_per_million"] is None


def test_people_see_each_operation(cli, log):
    shown = cli("stats", "--requests", str(log)).out
    assert "table query" in shown
    assert "40005" in shown
    assert "0.001840" in shown


def test_prices_of_ones_own_count(cli, log, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(
        list_prices().replace('"queue class 1" = 0.004', '"queue class 1" = 4'), encoding="utf-8"
    )
    told = cli("stats", "--requests", str(log), "--prices", str(prices), "--json").object
    assert told["cost"] == pytest.approx(4 * 0.00036 + 0.4)


@pytest.mark.parametrize("text", ["", "no log\n", '{"event": "removed", "count": 1}\n'])
def test_a_log_without_records_is_told(cli, tmp_path, text):
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    done = cli("stats", "--requests", str(path))
    assert done.code == 2
    assert done.complaint.startswith(f"no requests_counted records in {path}; ")


def test_a_log_that_is_not_there_is_told(cli, tmp_path):
    done = cli("stats", "--requests", str(tmp_path / "none"))
    assert done.code == 2
    assert "No such file" in done.complaint


def test_a_table_of_prices_with_a_mistake_is_told(cli, orders, tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text("price = 1\n", encoding="utf-8")
    done = cli("stats", "--cost", "--prices", str(path))
    assert done.code == 2
    assert done.complaint.startswith(f"POSTDATE_PRICES={path} is not a table of prices: ")


def test_what_the_settings_will_cost_and_what_waits(cli, orders):
    for _ in range(3):
        cli("schedule", orders, "x", "--delay", "1h")
    told = cli("stats", "--cost", "--json").object
    assert told["waiting"] == 3
    lines = {line["what"]: line for line in told["expected"]}
    assert lines["hand over what waits"]["counts"]["queue put message"] == 3
    follower = lines["each follower"]
    assert follower["per"] == "hour"
    assert follower["cost_per_month"] == pytest.approx(MONTH_HOURS * follower["cost"])
    slower = cli("stats", "--cost", "--json", "--probe-interval", "6s").object["expected"]
    assert next(li for li in slower if li["what"] == "each follower")["requests"] == pytest.approx(
        follower["requests"] / 2
    )
    assert all(line["unpriced"] == [] for line in told["expected"])
    assert lines["schedule and hand over, by rows"]["cost_per_month"] is None
    assert "each destination that is scheduled to" in lines
    unchecked = cli("stats", "--cost", "--json", "--no-check-destinations").object["expected"]
    assert "each destination that is scheduled to" not in {line["what"] for line in unchecked}


def test_people_see_it_as_a_table(cli, orders):
    shown = cli("stats", "--cost").out
    assert "leader, nothing due" in shown
    assert f"a month ({MONTH_HOURS} h)" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_a_command_asks_has_a_price(cli, orders, command):
    said = cli(command, *([orders] if command == "receive" else []), "--verbose").err
    (line,) = [line for line in said.splitlines() if " requests_counted " in line]
    assert "unpriced=()" in line
    assert "currency='USD'" in line


def test_the_log_of_a_process_that_served_can_be_priced(cli, orders, tmp_path):
    cli("schedule", orders, "x", "--delay", "2s", "--lookahead", "0")
    with process("run", "--log-format", "json", "--verbose", "--lookahead", "0") as serving:
        serving.line_with('"event":"handed_over"')
        assert serving.stop(signal.SIGTERM) == 0
    path = tmp_path / "log"
    path.write_text("\n".join(serving.seen), encoding="utf-8")
    told = cli("stats", "--requests", str(path), "--json").object
    assert told["handed_over"] == 1
    assert told["unpriced"] == []
    operations = {one["operation"]: one["requests"] for one in told["operations"]}
    assert operations["queue put message"] == 1
    assert operations["blob acquire lease"] >= 1
    assert told["cost"] > 0


@pytest.mark.parametrize(("form", "seen"), [("json", True), ("text", False)])
def test_lines_for_people_leave_the_sums_out(orders, form, seen):
    with process("run", "--log-format", form) as serving:
        serving.line_with("term_began")
        assert serving.stop(signal.SIGTERM) == 0
    assert any("requests_counted" in line for line in serving.seen) is seen
