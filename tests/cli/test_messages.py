"""Sending, scheduling, looking, changing and receiving, on Azurite."""

import json
from datetime import datetime, timedelta

import pytest
from cli_cases import on_endpoint

from postdate.clock import SystemClock


def instant(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


def schedule(cli, queue, *options):
    done = cli("schedule", queue, "hello", *options, "--json")
    assert (done.code, done.err) == (0, "")
    return done.object


def test_a_message_sent_now_can_be_received(cli, orders):
    sent = cli("send", orders, "hello", "--header", "Colour=blue=green", "--message-id", "m1", "--json")
    assert (sent.code, sent.err) == (0, "")
    assert sent.object == {"message_id": "m1", "destination": orders}
    received = cli("receive", orders, "--json").object
    assert received["message_id"] == "m1"
    assert (received["body"], received["body_encoding"]) == ("hello", "text")
    assert received["headers"]["Colour"] == "blue=green"
    assert received["headers"]["NServiceBus.ContentType"] == "text/plain"
    assert (received["queue"], received["dequeue_count"], received["due_at"]) == (orders, 1, None)
    instant(received["received_at"])
    assert cli("receive", orders, "--json").objects == []


def test_a_scheduled_message_is_listed_shown_moved_and_cancelled(cli, orders):
    scheduled = schedule(cli, orders, "--delay", "1h", "--message-id", "m1")
    assert scheduled["path"] == "row"
    listed = cli("list", "--json").object
    assert listed["handle"] == scheduled["handle"]
    assert (listed["state"], listed["destination"], listed["message_id"]) == ("waiting", orders, "m1")
    assert listed["due_at"] == scheduled["due_at"]
    # Never cut short: it counts from the latest that the service's clock can show, known to a second at first.
    waits = instant(listed["due_at"]) - instant(listed["scheduled_at"])
    assert timedelta(hours=1) <= waits <= timedelta(hours=1, seconds=5)

    shown = cli("show", scheduled["handle"], "--json").object
    assert shown["body"] == "hello"
    assert shown["headers"]["NServiceBus.MessageId"] == "m1"

    moved = cli("reschedule", scheduled["handle"], "--at", "2200-01-01T00:00:00+02:00", "--json")
    assert moved.code == 0
    assert moved.object["outcome"] == "moved"
    assert moved.object["due_at"] == "2199-12-31T22:00:00Z"
    assert cli("list", "--json").object["handle"] == moved.object["handle"] != scheduled["handle"]

    cancelled = cli("cancel", moved.object["handle"], "--json")
    assert cancelled.code == 0
    assert cancelled.object == {"handle": moved.object["handle"], "outcome": "cancelled"}
    assert cli("list", "--json").objects == []


def test_a_used_up_handle_says_so_with_exit_code_1(cli, orders):
    handle = schedule(cli, orders, "--delay", "1h")["handle"]
    assert cli("cancel", handle).out.strip() == "cancelled"
    again = cli("cancel", handle)
    assert (again.code, again.out.strip()) == (1, "unknown")
    moved = cli("reschedule", handle, "--delay", "2h", "--json")
    assert moved.code == 1
    assert moved.object == {"outcome": "unknown", "handle": None, "due_at": None}
    gone = cli("show", handle)
    assert gone.code == 1
    assert "no message waits under this handle" in gone.complaint


def test_cancelling_several_reports_each_and_fails_if_one_did(cli, orders):
    first, second = (schedule(cli, orders, "--delay", "1h")["handle"] for _ in range(2))
    cli("cancel", first)
    done = cli("cancel", first, second, "--json")
    assert done.code == 1
    assert [answer["outcome"] for answer in done.objects] == ["unknown", "cancelled"]


def test_what_the_leader_may_hold_is_too_late_to_cancel(cli, orders):
    handle = schedule(cli, orders, "--delay", "40", "--direct-within", "30")["handle"]
    done = cli("cancel", handle, "--lookahead", "60")
    assert (done.code, done.out.strip()) == (1, "too late")
    assert len(cli("list", "--json").objects) == 1


def test_a_handle_of_another_endpoint_is_unknown_there(cli, orders, monkeypatch, storage):
    handle = schedule(cli, orders, "--delay", "1h")["handle"]
    other = f"other-{storage[-8:]}"
    cli("setup", "--endpoint", other)
    assert cli("cancel", handle, "--endpoint", other).code == 1
    assert cli("show", handle, "--endpoint", other).code == 1
    assert cli("show", handle).code == 0


@pytest.mark.parametrize("delay", ["0", "-5", "-1d"])
def test_zero_and_negative_delays_are_sent_at_once(cli, orders, delay):
    scheduled = schedule(cli, orders, "--delay", delay)
    assert scheduled["path"] == "now"
    assert cli("list", "--json").objects == []
    assert cli("receive", orders, "--json").object["message_id"] == scheduled["message_id"]


def test_a_due_time_in_the_past_is_sent_at_once(cli, orders):
    assert schedule(cli, orders, "--at", "1999-12-31T23:59:59Z")["path"] == "now"
    assert cli("receive", orders, "--json").object["body"] == "hello"


def test_a_short_delay_waits_in_its_queue_and_can_be_withdrawn(cli, orders):
    scheduled = schedule(cli, orders, "--delay", "20")
    assert scheduled["path"] == "queue"
    assert cli("show", scheduled["handle"], "--json").object["state"] == "in queue"
    assert cli("receive", orders, "--json").objects == []
    assert cli("cancel", scheduled["handle"]).out.strip() == "cancelled"


def test_the_same_message_for_the_same_time_is_one(cli, orders):
    options = ("--at", "2200-01-01T00:00:00Z", "--message-id", "m1")
    assert schedule(cli, orders, *options)["handle"] == schedule(cli, orders, *options)["handle"]
    assert len(cli("list", "--json").objects) == 1


def test_bodies_come_from_files_and_stdin(cli, orders, tmp_path):
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00raw")
    cli("send", orders, "--body-file", str(file))
    assert cli("receive", orders, "--json").object["body_encoding"] == "base64"
    cli("send", orders, "-", stdin="käse".encode())
    assert cli("receive", orders, "--json").object["body"] == "käse"


def test_a_json_body_is_sent_as_it_was_written(cli, orders):
    written = '{"amount": 1.10, "n": 12345678901234567890}'
    cli("send", orders, written, "--json-body")
    received = cli("receive", orders, "--json").object
    assert received["body"] == written
    assert received["headers"]["NServiceBus.ContentType"] == "application/json"


def test_a_large_body_travels_by_claim_check(cli, orders, tmp_path):
    file = tmp_path / "body"
    file.write_bytes(b"x" * 10_000_000)
    assert cli("send", orders, "--body-file", str(file)).code == 0
    assert cli("receive", orders, "--json").object["body"] == "x" * 10_000_000


def test_list_can_be_narrowed(cli, orders, storage):
    cli("setup", "--queue", f"other-{storage[-8:]}")
    for year in (2100, 2101, 2102):
        schedule(cli, orders, "--at", f"{year}-01-01T00:00:00Z")
    schedule(cli, f"other-{storage[-8:]}", "--at", "2103-01-01T00:00:00Z")

    def years(*options):
        return [instant(m["due_at"]).year for m in cli("list", *options, "--json").objects]

    assert years() == [2100, 2101, 2102, 2103]
    assert years("--start", "2101-01-01T00:00:00Z", "--end", "2102-01-01T00:00:00Z") == [2101]
    assert years("--destination", orders, "--limit", "2") == [2100, 2101]
    table = cli("list", "--limit", "2")
    assert table.out.count(orders) == 2
    assert "more wait" in table.err


def test_no_ack_leaves_the_messages_there(cli, orders):
    for text in ("one", "two"):
        cli("send", orders, text)
    peek = cli("receive", orders, "--no-ack", "--json")
    assert {m["body"] for m in peek.objects} == {"one", "two"}
    assert {m["body"] for m in cli("receive", orders, "--json").objects} == {"one", "two"}


def test_count_takes_no_more_than_asked(cli, orders):
    for _ in range(3):
        cli("send", orders, "x")
    assert len(cli("receive", orders, "--count", "2", "--json").objects) == 2
    assert len(cli("receive", orders, "--json").objects) == 1


def test_control_characters_do_not_reach_the_terminal(cli, orders):
    cli("send", orders, "red \x1b[31m and\nnew line")
    out = cli("receive", orders).out
    assert "red \\x1b[31m and\\nnew line" in out
    assert "\x1b" not in out


def test_an_empty_queue_is_said_to_people_only(cli, orders):
    assert "is empty" in cli("receive", orders).err
    assert cli("receive", orders, "--json").err == ""


def test_deliver_due_hands_over_what_is_due(cli, orders):
    schedule(cli, orders, "--delay", "1", "--lookahead", "0")
    passed = cli("deliver-due", "--lookahead", "30", "--json").object
    assert (passed["led"], passed["handed_over"], passed["failed"]) == (True, 1, 0)
    received = cli("receive", orders, "--idle", "10", "--count", "1", "--json").object
    assert received["term"] == 1
    assert instant(received["received_at"]) >= instant(received["due_at"])


def test_deliver_due_says_when_another_process_leads(cli, orders):
    async def hold(endpoint):
        assert await endpoint.parts.backend.lease.acquire("somebody", 15, 30.0)

    on_endpoint(hold)
    done = cli("deliver-due")
    assert done.code == 0
    assert "another process leads" in done.err
    shown = cli("leader", "--json").object
    assert (shown["leads"], shown["holder"], shown["term"]) == (True, "somebody", 1)
    broken = cli("leader", "--break", "--yes", "--json").object
    assert broken["broken"] is True
    assert cli("leader", "--json").object["leads"] is False


def test_breaking_the_lease_asks_first(cli, orders):
    async def hold(endpoint):
        await endpoint.parts.backend.lease.acquire("somebody", 15, 30.0)

    on_endpoint(hold)
    unanswered = cli("leader", "--break")
    assert unanswered.code == 2
    assert "--yes" in unanswered.err
    assert cli("leader", "--break", stdin=b"n\n").code == 2
    assert cli("leader", "--json").object["leads"] is True
    assert cli("leader", "--break", stdin=b"y\n").out.strip() == "the lease is broken"
    assert "nobody held" in cli("leader", "--break").out


def test_setup_creates_once(cli, storage):
    first = cli("setup", "--queue", f"one-{storage[-8:]}", "--queue", f"two-{storage[-8:]}", "--json").object
    assert {name.split()[0] for name in first["created"]} >= {"table", "container", "queue"}
    assert first["queues"] == sorted(["error", storage, f"one-{storage[-8:]}", f"two-{storage[-8:]}"])
    assert cli("setup", "--json").object["created"] == []
    assert cli("setup").out.strip() == "everything is there already"


def test_an_endpoint_may_have_any_unicode_name(cli, orders):
    name = "日本語 🎉"
    done = cli("setup", "--endpoint", name)
    assert done.code == 0
    assert "set POSTDATE_QUEUE" in done.err
    schedule(cli, orders, "--delay", "1h", "--endpoint", name)
    assert len(cli("list", "--endpoint", name, "--json").objects) == 1
    assert cli("list", "--json").objects == []


def test_json_times_are_in_utc_with_a_z(cli, orders):
    before = SystemClock().now()
    due_at = schedule(cli, orders, "--delay", "1h")["due_at"]
    assert abs(instant(due_at) - before - timedelta(hours=1)) < timedelta(seconds=30)
    assert json.loads(cli("stats", "--json").out)["now"].endswith("Z")


def test_receiving_from_a_queue_that_is_not_there_names_near_ones(cli, orders):
    near = f"{orders[:-1]}x"
    done = cli("receive", near)
    assert done.code == 1
    assert done.complaint.startswith(f"destination queue '{near}' does not exist. Did you mean '{orders}'")
