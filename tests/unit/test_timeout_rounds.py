"""When the timeout manager looks where, and for how long a failure is borne."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postdate.core.timeout_rounds import RESTING, ROUND_SECONDS, pause_after, retry_after, round_of
from postdate.legacy.outage import Outage


def questions(number):
    this = round_of(number)
    return 1 + this.requests + this.notices


@given(st.integers(1, 10_000))
def test_no_round_but_the_first_asks_more_than_two_questions(number):
    assert questions(number) <= 2


def test_each_place_is_looked_at_often_enough():
    hour = [round_of(number) for number in range(1, 61)]
    assert sum(one.requests for one in hour) >= 50
    assert sum(one.notices for one in hour) >= 5
    assert sum(one.everywhere for one in hour) == 1
    first = round_of(0)
    assert first.requests
    assert first.notices
    assert first.everywhere
    assert not round_of(RESTING).everywhere


def test_after_a_message_the_next_look_is_soon_and_then_ever_later():
    pauses = [pause_after(quiet) for quiet in range(12)]
    assert pauses[0] == 1.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == ROUND_SECONDS


def test_retries_are_soon_and_never_far_apart():
    assert [retry_after(n) for n in (1, 2, 3, 40)] == [1.0, 2.0, 4.0, 30.0]


@pytest.mark.parametrize("limit", [10.0, 120.0, 86_400.0])
def test_an_outage_is_told_once_and_when_its_limit_is_reached(limit):
    outage, now, told = Outage(limit), 1000.0, []
    for _ in range(10_000):
        pause = outage.failed(now)
        assert pause > 0
        if outage.lasts_too_long(now):
            told.append(now)
        now += pause
        if now > 1000.0 + limit + 60:
            break
    assert told == [pytest.approx(1000.0 + limit)]
    outage.over()
    outage.failed(now)
    assert not outage.lasts_too_long(now)
