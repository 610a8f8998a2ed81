"""The command line with a delayed store of the user's own: the table service is not asked for anything."""

from collections import Counter

from cli_cases import DOWN


def test_messages_are_scheduled_listed_and_cancelled(cli, storage, store):
    orders = f"orders-{storage[-8:]}"
    assert "store postdate.backends.memory.table.MemoryTable" in cli("setup", "--queue", orders).out
    assert cli("setup", "--queue", orders, "--json").object["table"] is None
    handle = cli("schedule", orders, "x", "--delay", "1h", "--json").object["handle"]
    assert cli("list", "--json").object["handle"] == handle
    assert cli("stats", "--json").object["waiting"] == 1
    assert cli("cancel", handle, "--json").object["outcome"] == "cancelled"
    assert cli("list", "--json").out == ""


def test_doctor_checks_the_store_instead_of_the_table(cli, storage, store):
    found = {check["name"]: check for check in cli("doctor", "--json").object["checks"]}
    assert found["reach store"]["status"] == "ok"
    assert found["store"]["status"] == "failed"
    assert "postdate setup" in found["store"]["fix"]
    cli("setup")
    found = {check["name"]: check for check in cli("doctor", "--json").object["checks"]}
    assert {name for name, check in found.items() if check["status"] == "failed"} == set()
    assert found["read rows"]["found"] == "nothing waits"
    assert found["clock"]["status"] == "ok"
    assert store in found["names"]["found"]
    assert [name for name in found if "table" in name] == []


def test_doctor_reads_the_backlog_of_a_store_where_the_account_is_down(cli, storage, store):
    found = {c["name"]: c for c in cli("doctor", "--connection", DOWN, "--json").object["checks"]}
    assert found["reach store"]["status"] == "ok"
    assert found["reach queue"]["status"] == "failed"
    assert found["clock"]["found"] == "needs queue, see above"


def test_what_is_expected_to_cost_has_no_requests_to_tables(cli, storage, store):
    cli("setup")
    found = cli("stats", "--cost", "--json").object["expected"]
    services = Counter(operation.split()[0] for line in found for operation in line["counts"])
    assert set(services) == {"queue", "blob"}


def test_a_store_that_is_not_there_is_wrong_usage_in_one_line(cli, storage, monkeypatch):
    done = cli("list", "--store", "nowhere_at_all:open_store")
    assert done.code == 2
    assert done.complaint.startswith("POSTDATE_STORE=nowhere_at_all:open_store: there is no module")
    done = cli("list", "--store", "nowhere")
    assert (done.code, done.complaint.split(";")[0]) == (
        2,
        "--store: must be module:factory, like shop.delays:open_store",
    )


def test_config_shows_it(cli, store):
    (line,) = [line for line in cli("config", "--json").object["settings"] if line["name"] == "store"]
    assert (line["value"], line["source"]) == (store, "environment")
