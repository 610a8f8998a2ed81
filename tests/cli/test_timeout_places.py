"""setup and doctor, on what older instances leave behind."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from azure.data.tables import TableClient
from cli_cases import on_endpoint

from postdate.model.legacy_timeout import LegacyTimeout


@pytest.fixture
def places(monkeypatch):
    """A store of this test's own; its names."""
    unique = uuid.uuid4().hex[:12]
    names = {
        "POSTDATE_TIMEOUT_TABLE": f"Timeouts{unique}",
        "POSTDATE_TIMEOUT_MANAGER_TABLE": f"Manager{unique}",
        "POSTDATE_TIMEOUT_STATE_CONTAINER": f"state-{unique}",
    }
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    return list(names.values())


def doctor(cli):
    checks = {check["name"]: check for check in cli("doctor", "--json").object["checks"]}
    return checks["timeout manager"]


def test_setup_makes_the_places_of_the_timeout_manager_only_when_asked(cli, storage, places):
    assert not set(cli("setup", "--json").object["created"]) & {f"table {places[0]}"}
    requests, notices = on_endpoint(_settings).timeout_queues
    made = cli("setup", "--timeout-manager", "--json").object
    table, manager, container = places
    assert made["created"] == [
        f"table {table}",
        f"table {manager}",
        f"container {container}",
        f"queue {requests}",
        f"queue {notices}",
    ]
    assert {requests, notices} <= set(made["queues"])
    assert cli("setup", "--timeout-manager").out == "everything is there already\n"


async def _settings(endpoint):
    return endpoint.settings


def test_doctor_tells_that_there_is_no_legacy(cli, storage, places):
    cli("setup")
    assert doctor(cli) == {
        "name": "timeout manager",
        "status": "ok",
        "found": "older instances left nothing, nor any queue",
        "fix": None,
    }


def test_doctor_tells_what_waits_and_when_the_manager_can_go(cli, storage, places):
    cli("setup", "--timeout-manager")
    settings = on_endpoint(_settings)
    empty = doctor(cli)
    assert empty["status"] == "ok"
    table, manager, container = places
    others = "if no other endpoint has timeouts there"
    requests, notices = settings.timeout_queues
    assert empty["fix"] == (
        f"set POSTDATE_DISABLE_TIMEOUT_MANAGER=true, then delete queue {requests}; queue {notices}; "
        f"table {table}, {others}; table {manager}, {others}; container {container}, {others}"
    )
    due_at = datetime(2030, 1, 1, tzinfo=UTC)

    async def add(endpoint):
        for n in range(3):
            await endpoint.parts.backend.timeouts.add(
                LegacyTimeout(
                    str(uuid.uuid4()), "orders", due_at + timedelta(n), {}, b"", settings.endpoint, None
                )
            )

    on_endpoint(add)
    waiting = doctor(cli)
    assert waiting["fix"] is None
    assert waiting["found"].startswith(f"3 timeouts wait in table {places[0]}; 0 messages in ")


def test_doctor_warns_of_messages_without_a_store(cli, storage, places):
    cli("setup")
    requests, _ = on_endpoint(_settings).timeout_queues

    async def send(endpoint):
        await endpoint.setup(requests)
        await endpoint.parts.backend.sender.send(requests, "x")

    on_endpoint(send)
    found = doctor(cli)
    assert found["status"] == "warning"
    assert "--timeout-manager" in found["fix"]


def test_doctor_warns_of_timeouts_that_a_migration_tool_has_hidden(
    cli, storage, places, golden, azurite_connection
):
    cli("setup", "--timeout-manager")
    assert "POSTDATE_DISABLE_TIMEOUT_MANAGER" in doctor(cli)["fix"]
    tool = golden["legacy_migration_to_asq"]["source_time_row_after_hiding"]
    owner = tool["OwningTimeoutManager"].removesuffix("Contoso.Orders") + storage
    row = {**tool, "OwningTimeoutManager": owner, "Time": datetime(2030, 1, 1, tzinfo=UTC)}
    with TableClient.from_connection_string(azurite_connection, places[0]) as table:
        table.create_entity(row)
        warned = doctor(cli)
        assert warned["status"] == "warning"
        assert warned["found"].startswith(f"0 timeouts wait in table {places[0]}; ")
        assert warned["found"].endswith("; 1 are hidden by a migration tool")
        assert "end or abort that migration" in warned["fix"]
        table.delete_entity(row["PartitionKey"], row["RowKey"])
    assert "POSTDATE_DISABLE_TIMEOUT_MANAGER" in doctor(cli)["fix"]


def test_doctor_does_not_count_what_a_tool_hid_of_another_endpoint(
    cli, storage, places, golden, azurite_connection
):
    cli("setup", "--timeout-manager")
    tool = golden["legacy_migration_to_asq"]["source_time_row_after_hiding"]
    with TableClient.from_connection_string(azurite_connection, places[0]) as table:
        table.create_entity({**tool, "Time": datetime(2030, 1, 1, tzinfo=UTC)})  # of Contoso.Orders
    assert doctor(cli)["status"] == "ok"


def test_doctor_skips_it_beside_a_store_of_ones_own(cli, storage, places, store):
    cli("setup")
    assert doctor(cli) == {
        "name": "timeout manager",
        "status": "skipped",
        "found": "it does not run beside a store of your own",
        "fix": None,
    }


def test_doctor_says_when_it_is_switched_off(cli, storage, places, monkeypatch):
    cli("setup")
    monkeypatch.setenv("POSTDATE_DISABLE_TIMEOUT_MANAGER", "true")
    assert doctor(cli)["status"] == "skipped"
    assert "POSTDATE_DISABLE_TIMEOUT_MANAGER" in doctor(cli)["found"]


def test_setup_of_what_is_switched_off_is_one_line(cli, storage, places, monkeypatch):
    monkeypatch.setenv("POSTDATE_DISABLE_TIMEOUT_MANAGER", "true")
    done = cli("setup", "--timeout-manager")
    assert done.code == 2
    assert "unset POSTDATE_DISABLE_TIMEOUT_MANAGER" in done.complaint


def test_a_partition_scope_that_cannot_be_is_one_line(cli, storage):
    done = cli("setup", "--timeout-partition-scope", "ddMMyyyy")
    assert done.code == 2
    assert done.complaint.startswith(
        "--timeout-partition-scope: the partition scope 'ddMMyyyy' can't be used"
    )
