"""What a drain decides without Spark or storage: shares of ranges, paces of destinations, sums of tallies."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from postdate.events import Expired, HandedOver, MovedToErrorQueue, Removed
from postdate.model.delayed import DelayedMessage, DelayedRow, UnreadableRow
from postdate.model.keys import RowKey
from postdate.model.message import Message
from postdate.spark.draining.order import Order, shares
from postdate.spark.draining.pacing import Pace, Pacer, destination_of
from postdate.spark.draining.tally import DONE, LOST, STOPPED, Claim, Tally
from postdate.spark.ranges import KeyRange
from postdate.testing.clock import VirtualClock

NOW = datetime(2040, 1, 1, tzinfo=UTC)


def row(number, destination="slow"):
    delayed = DelayedMessage(Message(f"m{number}", {}, b""), destination, NOW)
    return DelayedRow(delayed.key, "etag", delayed)


def handed_over(destination):
    return HandedOver("m", destination, NOW, NOW, 0, 1)


# --- shares ---------------------------------------------------------------------------------------


def test_each_range_is_a_share_unless_only_so_many_tasks_may_run():
    ranges = [KeyRange(str(n), str(n)) for n in range(5)]
    assert shares(ranges, None) == [[one] for one in ranges]
    assert shares(ranges, 2) == [ranges[0::2], ranges[1::2]]
    assert shares(ranges, 9) == [[one] for one in ranges]


def test_an_order_shows_no_lease_id():
    assert "4711" not in repr(Order("1", 1, "4711", [], {}))


# --- paces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.5, 7, 60, 1234.5])
@pytest.mark.parametrize("step", [0.003, 0.1, 1.7])
def test_no_more_goes_in_any_time_than_the_rate_and_one_tick_allow(rate, step):
    pace = Pace(rate, 0.0)
    instants = [n * step for n in range(1, 200)]
    taken = [pace.take(10_000, instant) for instant in instants]
    for first in range(0, 199, 13):
        for last in range(first, 199, 17):
            seconds = instants[last] - instants[first] + step
            assert sum(taken[first : last + 1]) <= rate * seconds + max(1.0, rate * 0.1) + 1e-6


def test_a_pace_reaches_its_rate_where_it_is_asked_often():
    pace = Pace(60, 0.0)
    assert sum(pace.take(10_000, n * 0.05) for n in range(1, 201)) == pytest.approx(600, abs=6)


def test_a_pace_gives_no_more_than_is_wanted():
    assert Pace(1000, 0.0).take(3, 5.0) == 3


async def pages_of(*pages):
    for page in pages:
        yield page


async def test_others_pass_by_and_each_destination_keeps_its_order():
    clock = VirtualClock()
    began = clock.monotonic()
    pacer, found = Pacer({"slow": 10.0}, clock), []
    rows = [row(n, "slow" if n % 2 else "fast") for n in range(20)]

    async def read():
        async for page in pacer.paced(pages_of(rows[:10], rows[10:]), lambda: False):
            found.extend((clock.monotonic() - began, one) for one in page)

    reading = asyncio.create_task(read())
    await clock.advance(5)
    await reading
    assert [one for _, one in found if destination_of(one) == "fast"] == rows[0::2]
    assert [one for _, one in found if destination_of(one) == "slow"] == rows[1::2]
    assert max(at for at, one in found if destination_of(one) == "fast") == 0
    assert max(at for at, one in found if destination_of(one) == "slow") == pytest.approx(1.0, abs=0.15)


def test_a_destination_is_the_queue_that_its_rows_go_to():
    assert destination_of(row(1, "Contoso.Shop")) == "contoso-shop"
    assert destination_of(UnreadableRow(RowKey("p", "r"), "e", "broken", {})) == ""


# --- tallies --------------------------------------------------------------------------------------


def test_a_tally_counts_what_it_hears_and_tells_what_is_doubtful():
    tally = Tally(unheard=2)
    for event in (handed_over("a"), handed_over("b"), handed_over("a")):
        tally(event)
    tally(MovedToErrorQueue("m", "c", "error", 6, "why"))
    tally(Expired("m", "c", NOW))
    tally(Removed(2, 1))
    assert tally.handed_over == {"a": 2, "b": 1}
    assert (tally.sent, tally.moved, tally.expired, tally.unremoved) == (3, 1, 1, 2)
    assert tally.doubtful(100) == 1 + 2 + 200


def test_a_sum_of_tallies_depends_on_no_order_and_ends_as_the_worst():
    one = Tally({"a": 1}, moved=2, failed=3, removed=3, end=STOPPED)
    two = Tally({"a": 4, "b": 5}, expired=1, waiting=6, missed=1, unheard=1, end=DONE)
    assert one + two == two + one
    assert (one + two).handed_over == {"a": 5, "b": 5}
    assert (one + two).end == STOPPED
    assert (one + two + replace(one, end=LOST)).end == LOST


def test_what_a_document_says_comes_back():
    claim = Claim(3, Tally({"a": 1}, removed=1, end=LOST))
    assert Claim.read(claim.json()) == claim
    assert Claim.read(b"") == Claim(0, None)
