"""The table of inboxes: created when asked, and old memory dropped."""

from datetime import timedelta

from cli_cases import on_endpoint

from postdate.inbox import Inbox

#: Tries until what was just written is older than the retention, also by a clock that is known to a second.
TRIES = 200


def remember(*names, age):
    """Let consumers be done with a message that came so long ago."""

    async def work(endpoint):
        for name in names:
            at = endpoint.parts.clock.now() - age
            async with Inbox(endpoint, consumer=name).once("order-7", at=at) as once:
                once.upsert("bill", 1)

    on_endpoint(work)


def test_setup_creates_the_table_of_inboxes_when_asked(cli, storage):
    assert not [name for name in cli("setup", "--json").object["created"] if "inbox" in name]
    (created,) = cli("setup", "--inbox", "--json").object["created"]
    assert created.startswith("table inbox")
    assert cli("setup", "--inbox").out.strip() == "everything is there already"
    assert (
        cli("setup", "--inbox", "--inbox-table", f"mine{storage[-8:]}")
        .out.strip()
        .startswith("created table mine")
    )


def test_without_an_inbox_there_is_nothing_to_forget(cli, orders):
    done = cli("forget")
    assert (done.code, done.out) == (0, "")
    assert done.err.strip() == "no consumer of this endpoint remembers anything"
    assert cli("forget", "--json").objects == []


def test_what_is_past_the_retention_is_forgotten_for_all_consumers_or_for_one(cli, orders):
    remember("billing", "shipping", age=timedelta(days=10))
    assert cli("forget", "--json").objects == [
        {"consumer": "billing", "dropped": 0},
        {"consumer": "shipping", "dropped": 0},
    ]
    short = ("forget", "--inbox-retention", "1ms")
    for _ in range(TRIES):
        done = cli(*short, "--consumer", "billing", "--json")
        if done.object["dropped"]:
            break
    assert done.object == {"consumer": "billing", "dropped": 1}
    for _ in range(TRIES):
        done = cli(*short)
        if "1" in done.out:
            break
    assert done.out == "shipping: 1 messages dropped\n"
    assert cli("forget", "--json").objects == []


def test_what_came_today_is_never_forgotten(cli, orders):
    remember("billing", age=timedelta(0))
    assert cli("forget", "--inbox-retention", "1ms", "--json").object == {"consumer": "billing", "dropped": 0}


def test_a_consumer_that_is_no_name_is_a_mistake(cli, orders):
    done = cli("forget", "--consumer", "no_name")
    assert done.code == 2
    assert done.complaint.startswith("consumer 'no_name' is not a name; use")


def test_a_consumer_of_another_name_is_told_with_those_that_there_are(cli, orders):
    remember("billing", "shipping", age=timedelta(hours=1))
    done = cli("forget", "--consumer", "biling")
    assert (done.code, done.out) == (0, "biling: 0 messages dropped\n")
    assert done.err.strip() == "no consumer 'biling' remembers anything; there are: billing, shipping"
    assert cli("forget", "--consumer", "billing").err == ""
