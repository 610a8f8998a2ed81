"""stats, doctor and config."""

import json
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from cli_cases import DOWN, on_endpoint, snapshot, with_signature

from postdate.cli.stats import Backlog
from postdate.engine.lookup import ScheduledMessage, State
from postdate.settings import Settings

NOW = datetime(2030, 1, 1, 12, 30, tzinfo=UTC)


def message(due_at, state=State.WAITING):
    return ScheduledMessage("h", state, "orders", due_at)


def test_the_backlog_is_counted_by_hour():
    backlog = Backlog(NOW, hours=2)
    for minutes in (-90, -1, 0, 1, 29, 30, 89, 120, 150, 10_000):
        backlog.add(message(NOW + timedelta(minutes=minutes)))
    backlog.add(message(NOW + timedelta(minutes=1), State.FAILING))
    backlog.add(message(None, State.UNREADABLE))
    assert (backlog.waiting, backlog.overdue, backlog.later) == (12, 4, 2)
    assert (backlog.failing, backlog.unreadable) == (1, 1)
    assert backlog.oldest_due_at == NOW - timedelta(minutes=90)
    assert backlog.next_due_at == NOW + timedelta(minutes=1)
    assert {hour.hour: n for hour, n in backlog.by_hour.items()} == {12: 3, 13: 2, 14: 1}


def test_counting_takes_the_same_memory_for_any_backlog():
    def peak(rows):
        tracemalloc.start()
        backlog = Backlog(NOW, hours=24)
        for n in range(rows):
            backlog.add(message(NOW + timedelta(minutes=n)))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(100)
    assert peak(20_000) < 1.2 * peak(2_000) + 2_000


def test_stats_tells_backlog_queues_and_leader(cli, orders, storage):
    cli("setup")
    for delay in ("10m", "20m", "40d"):
        cli("schedule", orders, "x", "--delay", delay)
    cli("schedule", orders, "x", "--delay", "0.1", "--lookahead", "0")
    cli("send", storage, "x")
    stats = cli("stats", "--json").object
    # The last one is overdue as soon as its tenth of a second is over, by the service's clock.
    assert stats["waiting"] == 4
    assert stats["overdue"] + sum(hour["count"] for hour in stats["by_hour"]) == 3
    assert stats["later"] == 1
    assert (stats["failing"], stats["unreadable"]) == (0, 0)
    assert stats["own_queue_count"] == 1
    assert (stats["leads"], stats["holder"]) == (False, None)
    text = cli("stats").out
    assert "#" in text
    assert "oldest overdue" in text


def test_stats_without_own_queue(cli, orders):
    assert cli("stats", "--own-queue", "nowhere-at-all", "--json").object["own_queue_count"] is None


def checks(cli, *options):
    done = cli("doctor", *options, "--json")
    found = done.object
    assert (done.code == 0) is found["ok"]
    assert all(c["fix"] for c in found["checks"] if c["status"] == "failed")
    return {check["name"]: check for check in found["checks"]}


def test_doctor_is_content_with_a_healthy_endpoint(cli, orders):
    cli("setup")
    cli("schedule", orders, "x", "--delay", "1h")
    found = checks(cli)
    assert {name for name, check in found.items() if check["status"] == "failed"} == set()
    assert found["reach table"]["found"].startswith("http://127.0.0.1:")
    assert found["clock"]["status"] == "ok"
    assert found["backlog"]["found"].startswith("1 messages wait")
    assert found["lookahead"]["status"] == "ok"
    assert found["leader"]["fix"] == "start `postdate run`"
    assert "-> start `postdate run`" in cli("doctor").out


def test_doctor_changes_nothing(cli, orders):
    cli("schedule", orders, "x", "--delay", "1h")
    before = on_endpoint(snapshot)
    cli("doctor")
    assert on_endpoint(snapshot) == before


def test_doctor_finds_what_is_not_set_up(cli, storage):
    found = checks(cli)
    assert {name for name, c in found.items() if c["status"] == "failed"} >= {"table", "lease"}
    assert "postdate setup" in found["table"]["fix"]
    assert found["backlog"]["status"] == "skipped"


def test_doctor_finds_queues_missing_for_waiting_messages(cli, orders):
    for _ in range(2):
        cli("schedule", orders, "x", "--delay", "1h")
    on_endpoint(lambda endpoint: endpoint.parts.backend.sender.delete(orders))
    missing = checks(cli)[f"destination {orders}"]
    assert missing["status"] == "failed"
    assert "2 waiting messages" in missing["found"]
    assert missing["fix"] == f"`postdate setup --queue {orders}`"


def test_doctor_warns_of_a_lookahead_that_a_crash_outlasts(cli, orders):
    short = checks(cli, "--lookahead", "5")["lookahead"]
    assert short["status"] == "warning"
    assert "POSTDATE_LOOKAHEAD" in short["fix"]


def test_doctor_finds_a_lease_that_net_endpoints_do_not_see(cli, orders):
    cli("schedule", orders, "x", "--delay", "1h")

    async def as_net_writes_it(endpoint):
        table = endpoint.parts.backend._table
        (entity,) = [entity async for entity in table.list_entities()]
        entity.pop("ScheduledTime", None)
        await table.update_entity(entity, mode="replace")

    on_endpoint(as_net_writes_it)
    assert checks(cli)[".NET"]["status"] == "ok"
    apart = checks(cli, "--lease-target", "blob")[".NET"]
    assert apart["status"] == "failed"
    assert "POSTDATE_LEASE_TARGET=container" in apart["fix"]


def test_doctor_finds_what_waits_past_its_due_time(cli, orders):
    cli("schedule", orders, "x", "--delay", "0.1", "--lookahead", "0")
    impatient = ("--idle-interval", "0.1", "--probe-interval", "0.1", "--lookahead", "30")
    assert checks(cli, *impatient)["overdue"]["status"] == "ok"  # nobody is late before a lease is over

    async def long_ago(endpoint):
        from postdate.model.delayed import DelayedMessage
        from postdate.model.message import Message

        past = endpoint.parts.clock.now() - timedelta(hours=1)
        await endpoint.parts.backend.store.add([DelayedMessage(Message("m", {}), orders, past, past)])

    on_endpoint(long_ago)
    late = checks(cli, *impatient)["overdue"]
    assert late["status"] == "failed"
    assert "(1h" in late["found"]


def test_doctor_finds_a_missing_error_queue(cli, orders):
    found = checks(cli, "--error-queue", "no-such-error-queue")["error queue"]
    assert (found["status"], "postdate setup" in found["fix"]) == ("failed", True)


def test_doctor_finds_storage_that_is_down(cli, storage):
    found = checks(cli, "--connection", DOWN)
    for service in ("table", "queue", "blob"):
        assert "127.0.0.1:1" in found[f"reach {service}"]["found"]
        assert "postdate azurite" in found[f"reach {service}"]["fix"]
    assert found["backlog"]["status"] == "skipped"


def test_doctor_finds_a_wrong_key(cli, storage, azurite_connection):
    found = checks(cli, "--connection", azurite_connection.replace("AccountKey=Eby8", "AccountKey=AAAA"))
    assert "403" in found["reach table"]["found"]


def test_doctor_tells_which_operation_a_signature_does_not_allow(cli, orders, azurite_connection):
    assert checks(cli, "--connection", with_signature(azurite_connection, "rwdlacup"))
    found = checks(cli, "--connection", with_signature(azurite_connection, "rl"))
    assert found["read rows"]["status"] == "ok"
    assert found["remove messages"]["status"] == "failed"
    assert "403 AuthorizationPermissionMismatch" in found["remove messages"]["found"]
    assert "sig=" not in str(found)


def test_doctor_finds_wrong_settings(cli, storage, monkeypatch):
    assert checks(cli, "--lookahead", "soon")["settings"]["status"] == "failed"
    monkeypatch.delenv("POSTDATE_CONNECTION")
    assert "POSTDATE_CONNECTION" in checks(cli)["settings"]["fix"]


def test_config_tells_value_source_and_meaning(cli, monkeypatch, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('error_queue = "from-file"\nlookahead = "10s"\n')
    monkeypatch.setenv("POSTDATE_SETTINGS_FILE", str(file))
    monkeypatch.setenv("POSTDATE_LOOKAHEAD", "20s")
    monkeypatch.setenv("POSTDATE_ENDPOINT", "orders")
    done = cli("config", "--probe-interval", "5", "--json")
    found = {line["name"]: (line["value"], line["source"]) for line in done.object["settings"]}
    assert found["error_queue"] == ("from-file", "file")
    assert found["lookahead"] == ("20s", "environment")
    assert found["probe_interval"] == ("5s", "code")
    assert found["lease_duration"] == ("15s", "default")
    assert set(found) == set(Settings.model_fields)
    assert done.object["own_queue"] == "orders"
    assert done.object["account"] is None


def test_config_masks_secrets(cli, storage, monkeypatch, azurite_connection):
    monkeypatch.setenv("POSTDATE_ALIASES", json.dumps({"far": azurite_connection}))
    for options in ([], ["--json"]):
        done = cli("config", *options)
        assert done.code == 0
        assert "Eby8" not in done.out + done.err
        assert "********" in done.out


@pytest.mark.parametrize("where", ["before", "after"])
def test_settings_are_options_before_and_after_the_command(cli, where):
    option = ["--endpoint", "Contoso.Orders"]
    arguments = [*option, "config", "--json"] if where == "before" else ["config", "--json", *option]
    done = cli(*arguments)
    assert json.loads(done.out)["own_queue"] == "contoso-orders"


def test_what_stands_after_the_command_wins(cli):
    done = cli("--endpoint", "first", "--json", "config", "--endpoint", "second")
    assert json.loads(done.out)["own_queue"] == "second"


def test_a_variable_that_is_no_setting_is_told_with_the_nearest_one(cli, orders, monkeypatch):
    monkeypatch.setenv("POSTDATE_IMMEDIATE_RETRYS", "3")
    monkeypatch.setenv("POSTDATE_SETTINGS_FILE", "")
    monkeypatch.setenv("POSTDATE_LOG_FORMAT", "text")
    monkeypatch.setenv("POSTDATE_ERRORS_LIST_LIMIT", "3")
    said = "POSTDATE_IMMEDIATE_RETRYS is no setting; did you mean POSTDATE_IMMEDIATE_RETRIES?"
    assert said in cli("config").err
    assert cli("config", "--json").object["unread"] == [said]
    found = checks(cli)["variables"]
    assert (found["status"], found["found"]) == ("warning", said)
    monkeypatch.delenv("POSTDATE_IMMEDIATE_RETRYS")
    assert "variables" not in checks(cli)
