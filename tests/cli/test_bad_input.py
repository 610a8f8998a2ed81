"""A user's mistake: one clear line, the right exit code, and nothing changed."""

import pytest
from cli_cases import DOWN, on_endpoint, snapshot

from postdate.model.names import delays_table

NAIVE = "2030-01-01T00:00:00"
BAD = {
    "naive due time": (["schedule", "QUEUE", "x", "--at", NAIVE], 2, "has no time zone"),
    "no instant": (["schedule", "QUEUE", "x", "--at", "tomorrow"], 2, "write ISO 8601 with a zone"),
    "delay nan": (["schedule", "QUEUE", "x", "--delay", "nan"], 2, "not a number"),
    "delay infinite": (["schedule", "QUEUE", "x", "--delay", "inf"], 2, "is not a duration"),
    "no delay": (["schedule", "QUEUE", "x", "--delay", "soon"], 2, "1m30s"),
    "beyond 9998": (["schedule", "QUEUE", "x", "--delay", "3000000d"], 2, "beyond the year 9998"),
    "year 1": (["schedule", "QUEUE", "x", "--at", "0001-01-01T00:00:00Z"], 2, "years 1601 to 9998"),
    "year 9999": (["schedule", "QUEUE", "x", "--at", "9999-12-31T23:59:59Z"], 2, "years 1601 to 9998"),
    "neither": (["schedule", "QUEUE", "x"], 2, "--delay"),
    "both": (["schedule", "QUEUE", "x", "--delay", "1", "--at", f"{NAIVE}Z"], 2, "either --delay"),
    "empty queue": (["send", "", "x"], 2, "names no queue"),
    "64 characters": (["send", "q" * 64, "x"], 2, "has 64 characters; it takes 3 to 63"),
    "upper case": (["send", "Orders", "x"], 2, "did you mean 'orders'?"),
    "connection string as queue": (["send", "q@AccountKey=c2VjcmV0", "x"], 2, "POSTDATE_ALIASES"),
    "unknown alias": (["send", "orders@elsewhere", "x"], 2, "'elsewhere'"),
    "header without =": (["send", "QUEUE", "x", "--header", "noequals"], 2, "write name=value"),
    "header without name": (["send", "QUEUE", "x", "--header", "=x"], 2, "write name=value"),
    "header not text": (["send", "QUEUE", "x", "--header", "a=\udcff"], 2, "valid Unicode"),
    "body not text": (["send", "QUEUE", "\udcff"], 2, "can't be encoded"),
    "no body": (["send", "QUEUE"], 2, "--body-file"),
    "no file": (["send", "QUEUE", "--body-file", "/no/such/file"], 2, "/no/such/file"),
    "not JSON": (["send", "QUEUE", "{", "--json-body"], 2, "is not JSON"),
    "empty message id": (["send", "QUEUE", "x", "--message-id", ""], 2, "message_id"),
    "expires at once": (["send", "QUEUE", "x", "--expires-after", "0"], 2, "more than zero"),
    "missing queue": (["send", "QUEUEx", "x"], 1, "Did you mean 'QUEUE'"),
    "missing queue, later": (["schedule", "QUEUEx", "x", "--delay", "1h"], 1, "setup --queue QUEUEx"),
    "no handle": (["cancel", "nonsense"], 2, "is not a handle"),
    "no handle to show": (["show", "nonsense"], 2, "is not a handle"),
    "no handle to move": (["reschedule", "nonsense", "--delay", "1"], 2, "is not a handle"),
    "naive start": (["list", "--start", NAIVE], 2, "has no time zone"),
    "end before start": (
        ["list", "--start", "2040-01-02T00:00:00Z", "--end", "2040-01-01T00:00:00Z"],
        2,
        "is not after --start",
    ),
    "empty endpoint": (["list", "--endpoint", ""], 2, "POSTDATE_ENDPOINT"),
    "endpoint not text": (["list", "--endpoint", "\udcff"], 2, "valid Unicode"),
    "no table name": (["list", "--delays-table", "no-table"], 2, "--delays-table: "),
    "no duration": (["list", "--lookahead", "long"], 2, "--lookahead: 'long' is not a duration"),
    "lease too short": (["run", "--lease-duration", "1"], 2, "15 to 60"),
    "connection string": (["list", "--connection", "nonsense"], 2, "is not a connection string"),
    "key not base64": (["list", "--connection", "AccountName=a;AccountKey=%"], 2, "is not base64"),
    "aliases not JSON": (["list", "--aliases", "a=b"], 2, "takes JSON"),
    "follow a peek": (["receive", "--follow", "--no-ack"], 2, "leave one out"),
    "no such queue to read": (["receive", "QUEUEx"], 1, "does not exist"),
    "storage down": (["list", "--connection", DOWN], 3, "`postdate azurite`"),
    "storage down, run": (["run", "--connection", DOWN], 3, "http://127.0.0.1:1"),
    "no such option": (["send", "--nonsense"], 2, "see `postdate send --help`"),
    "no such command": (["snd"], 2, "see `postdate --help`"),
    "missing argument": (["send"], 2, "Missing argument"),
    "too many arguments": (["run", "now"], 2, "unexpected extra argument"),
    "not a number": (["list", "--limit", "few"], 2, "--limit"),
}


@pytest.fixture(scope="module")
def place(azurite):
    """One endpoint for all: nothing here may change it."""
    settings = {"endpoint": "bad-input", "connection": azurite.connection_string}

    async def fill(endpoint):
        await endpoint.setup("bad-orders")
        await endpoint.schedule("bad-orders", "x", delay="1h")
        await endpoint.send("bad-orders", "x")

    on_endpoint(fill, **settings)
    return settings


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.setenv("POSTDATE_CONNECTION", place["connection"])
    monkeypatch.setenv("POSTDATE_ENDPOINT", place["endpoint"])
    return place


@pytest.mark.parametrize("case", BAD)
def test_one_line_and_nothing_changed(cli, here, case):
    arguments, code, says = BAD[case]
    before = on_endpoint(snapshot)
    done = cli(*(argument.replace("QUEUE", "bad-orders") for argument in arguments))
    assert done.code == code
    assert says.replace("QUEUE", "bad-orders") in done.complaint
    assert on_endpoint(snapshot) == before


def test_a_body_too_large_is_refused_where_claim_check_is_off(cli, here, tmp_path):
    file = tmp_path / "body"
    file.write_bytes(b"x" * 10_000_000)
    before = on_endpoint(snapshot)
    done = cli(
        "schedule", "bad-orders", "--body-file", str(file), "--delay", "1h", "--large-bodies", "refuse"
    )
    assert done.code == 2
    assert "10,000,000 bytes" in done.complaint
    assert "POSTDATE_LARGE_BODIES" in done.complaint
    assert on_endpoint(snapshot) == before


def test_a_wrong_key_names_the_account_and_not_the_key(cli, here):
    good = here["connection"]
    wrong = good.replace("AccountKey=Eby8", "AccountKey=AAAA")
    assert wrong != good
    for arguments in (["list"], ["send", "bad-orders", "x"], ["leader"], ["run"]):
        done = cli(*arguments, "--connection", wrong)
        assert done.code == 1
        assert "403" in done.complaint
        assert "devstoreaccount1" in done.complaint
        assert "AAAA" not in done.complaint


def test_no_account_at_all(cli, monkeypatch):
    monkeypatch.setenv("POSTDATE_ENDPOINT", "x")
    done = cli("list")
    assert done.code == 2
    assert "POSTDATE_CONNECTION" in done.complaint
    assert "postdate azurite" in done.complaint


def test_a_missing_table_names_the_way_out(cli, storage):
    for arguments in (["list"], ["run"], ["stats"], ["schedule", "error", "x", "--delay", "1h"]):
        on_endpoint(lambda endpoint: endpoint.parts.backend.sender.create("error"))
        done = cli(*arguments)
        assert done.code == 1
        assert delays_table(storage) in done.complaint
        assert "postdate setup" in done.complaint


def test_switched_off_says_so(cli, here, monkeypatch):
    monkeypatch.setenv("POSTDATE_DISABLE_DELAYED_DELIVERY", "true")
    for arguments in (["run"], ["list"], ["schedule", "bad-orders", "x", "--delay", "1h"]):
        done = cli(*arguments)
        assert done.code == 1
        assert "POSTDATE_DISABLE_DELAYED_DELIVERY" in done.complaint
