"""When a message became receivable: never known better than the service's answers and our clock allow."""

import math
import random

import pytest

from postdate.bench.bounds import Observed, appearances, judge, receivable
from postdate.core.clock_offset import OffsetInterval

#: The service's clock less ours, in seconds: far apart, as in reality.
OFFSET = 1_700_000_000.0


def put(handled: float, *, number: int = 0, hidden_s: int = 0, on_the_way: float = 0.004) -> Observed:
    """A put that the service handled at this instant (by its clock), seen from here."""
    ours = handled - OFFSET
    return Observed(ours - on_the_way / 2, ours + on_the_way / 2, math.floor(handled), hidden_s, number)


def known(width: float) -> OffsetInterval:
    return OffsetInterval(OFFSET - width / 2, OFFSET + width / 2, 0.0)


def test_bounds_are_those_of_the_request_where_the_clock_is_known():
    span = receivable(put(OFFSET + 10.5), known(0.0))
    assert (span.low, span.high) == pytest.approx((OFFSET + 10.498, OFFSET + 10.502), abs=1e-5)


def test_the_truncated_second_bounds_what_the_clock_leaves_open():
    at_the_start = receivable(put(OFFSET + 10.001), known(0.8))
    assert at_the_start.low == OFFSET + 10
    at_the_end = receivable(put(OFFSET + 10.999), known(0.8))
    assert at_the_end.high == OFFSET + 11


def test_hidden_seconds_are_added_whole():
    shown, hidden = (
        receivable(put(OFFSET + 5.3), known(0.1)),
        receivable(put(OFFSET + 5.3, hidden_s=7), known(0.1)),
    )
    assert hidden.low - shown.low == hidden.high - shown.high == 7


def test_the_truth_lies_between_the_bounds_whatever_the_phase_and_the_way():
    chance = random.Random(1)
    handled = [OFFSET + 20 + chance.random() * 60 for _ in range(500)]
    puts = [put(at, number=n, on_the_way=chance.uniform(0.001, 0.3)) for n, at in enumerate(handled)]
    found = appearances(puts, known(1.0))
    assert found.contradictions == 0
    assert all(found.first[n].low <= at <= found.first[n].high for n, at in enumerate(handled))


def test_many_puts_tell_the_clock_to_their_round_trip():
    chance = random.Random(2)
    puts = [put(OFFSET + 20 + n / 20 + chance.random() / 20, number=n) for n in range(400)]
    judged = judge(puts, [put.stamped for put in puts], None)
    assert judged.width_p99_s < 1.0  # the first ones know a second at most
    assert judged.width_p50_s < 0.04


def test_lateness_counts_to_the_upper_bound_and_early_only_what_surely_is():
    due = [OFFSET + 10.3] * 3
    puts = [
        put(OFFSET + 10.2, number=0),  # early for sure
        put(OFFSET + 10.3, number=1),  # within the bounds
        put(OFFSET + 10.6, number=2),
    ]
    judged = judge(puts, due, known(0.0))
    assert (judged.lateness.early, judged.maybe_early) == (1, 2)
    assert judged.lateness.max_s == pytest.approx(0.303, abs=1e-3)


def test_a_second_copy_is_counted_and_makes_nothing_later():
    puts = [put(OFFSET + 10.5), put(OFFSET + 30.5)]
    judged = judge(puts, [OFFSET + 10.0], known(0.0))
    assert (judged.lateness.duplicated, judged.lateness.count) == (1, 1)
    assert judged.lateness.max_s == pytest.approx(0.503, abs=1e-3)


def test_what_was_never_put_is_lost():
    judged = judge([put(OFFSET + 10.5)], [OFFSET + 10.0, OFFSET + 11.0], known(0.0))
    assert (judged.lateness.count, judged.lateness.lost) == (1, 1)


def test_a_stamp_that_the_clock_does_not_allow_is_counted_and_the_bounds_are_the_wider_ones():
    wrong = Observed(50.0, 50.004, OFFSET + 40.0, 0, 0)
    right = [put(OFFSET + 20 + n / 10, number=1) for n in range(30)]
    found = appearances([*right, wrong], known(0.001))
    # The clock is thrown away with the contradiction, so later bounds rest on the stamp alone.
    assert found.first[0].width <= 1.1
    assert found.first[0].low >= OFFSET + 39.9
