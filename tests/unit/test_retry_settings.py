"""Settings of retries that contradict each other, and what telling failures apart is worth."""

import asyncio
import sqlite3

import pytest
from receiver_cases import open_scene

from postdate.errors import ConfigurationError
from postdate.events import MessageFailed
from postdate.settings import load_settings

AT_MOST_ONCE = {"guarantee": "at_most_once"}
NO_DELAYS = {"disable_delayed_delivery": True}
CONFLICTS = [
    (
        AT_MOST_ONCE | {"immediate_retries": immediate, "delayed_retries": delayed},
        (
            "POSTDATE_GUARANTEE=at_most_once",
            *([f"POSTDATE_IMMEDIATE_RETRIES=0 (it is {immediate})"] if immediate else []),
            *([f"POSTDATE_DELAYED_RETRIES=0 (it is {delayed})"] if delayed else []),
        ),
    )
    for immediate, delayed in [(5, 3), (1, 0), (0, 1)]
] + [
    (
        NO_DELAYS | {"delayed_retries": 3},
        ("POSTDATE_DELAYED_RETRIES is 3", "POSTDATE_DISABLE_DELAYED_DELIVERY", "POSTDATE_DELAYED_RETRIES=0"),
    ),
]


@pytest.mark.parametrize(("settings", "named"), CONFLICTS, ids=str)
async def test_settings_that_rule_each_other_out_are_refused_and_all_of_them_named(settings, named):
    """D5: the message names both sides, what they are, and the way out; nothing has moved by then."""
    async with open_scene() as scene:
        endpoint = scene.endpoint(**settings)
        endpoint.handler(bytes)(lambda body: None)
        await scene.put()
        stop = asyncio.Event()
        stop.set()
        async with endpoint:
            with pytest.raises(ConfigurationError) as caught:
                await endpoint.run(stop)
        assert [text for text in named if text not in str(caught.value)] == []
        assert "(it is 0)" not in str(caught.value)
        assert "\n" not in str(caught.value)
        assert scene.in_queue()[0].dequeue_count == 0


@pytest.mark.parametrize(
    "settings",
    [AT_MOST_ONCE | {"immediate_retries": 0, "delayed_retries": 0}, NO_DELAYS | {"delayed_retries": 0}],
    ids=str,
)
async def test_the_way_out_that_the_message_names_is_one(settings):
    async with open_scene() as scene:
        endpoint, seen = scene.endpoint(**settings), []

        @endpoint.handler
        async def work(body: bytes) -> None:
            seen.append(body)

        await scene.put(body=b"x")
        await scene.run_for(endpoint, seconds=2)
        assert seen == [b"x"]
        assert scene.in_queue() == []


# --- the third experiment of the article ----------------------------------------------------------


class Shop:
    """A handler that calls somebody outside, and then inserts a row that is there already."""

    def __init__(self, endpoint, fails):
        self.calls = []
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE orders (number INTEGER UNIQUE)")
        self.database.execute("INSERT INTO orders VALUES (7)")

        @endpoint.handler
        async def place(body: bytes) -> None:
            self.calls.append(body)  # the call outside: it can't be taken back
            fails(self.database)


def unique_key(database):
    database.execute("INSERT INTO orders VALUES (7)")


def wrapped_unique_key(database):
    try:
        unique_key(database)
    except sqlite3.IntegrityError as error:
        raise RuntimeError("the order could not be placed") from error


def not_known(database):
    raise RuntimeError("whatever")


@pytest.mark.parametrize(
    ("classify", "fails", "calls"),
    [
        (None, unique_key, 1),
        ("true", unique_key, 1),
        ("false", unique_key, 24),
        ("true", wrapped_unique_key, 1),
        ("false", wrapped_unique_key, 24),
        ("true", not_known, 24),
    ],
)
async def test_a_unique_key_costs_one_call_outside_and_without_classification_twenty_four(
    classify, fails, calls, monkeypatch
):
    if classify is not None:
        monkeypatch.setenv("POSTDATE_CLASSIFY_ERRORS", classify)
    else:
        monkeypatch.delenv("POSTDATE_CLASSIFY_ERRORS", raising=False)
    loaded = load_settings(endpoint="Orders")
    assert (loaded.immediate_retries, loaded.delayed_retries) == (5, 3)
    async with open_scene() as scene:
        endpoint = scene.endpoint(classify_errors=loaded.classify_errors)
        shop = Shop(endpoint, fails)
        await scene.put()
        await scene.run_for(endpoint, seconds=70)
        assert len(shop.calls) == calls
        (failed,) = scene.log.of(MessageFailed)
        assert failed.attempts == calls
        assert len(scene.messages()) == 1
        assert scene.in_queue() == []
