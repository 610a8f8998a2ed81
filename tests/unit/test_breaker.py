"""When a failure has lasted for so long that it is critical: decisions alone, with the time passed in."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples

from postdate.core.breaker import BreakerState, OverTimeBreaker, RateBreaker

DISARMED, ARMED, TRIGGERED = BreakerState.DISARMED, BreakerState.ARMED, BreakerState.TRIGGERED
WINDOW, SILENCE = 30.0, 120.0

#: What happened, and how many seconds after the one before. Whole seconds: sums are exact.
happenings = st.lists(
    st.tuples(st.integers(0, 150).map(float), st.sampled_from(["failed", "failed", "failed", "succeeded"])),
    max_size=40,
)


def over_time():
    return OverTimeBreaker(WINDOW, SILENCE)


def told(breaker, happened, start=1000.0):
    """Tell a breaker of all of it; each instant, what it was, and the state after it."""
    now, told = start, []
    for gap, what in happened:
        now += gap
        getattr(breaker, what)(now)
        told.append((now, what, breaker.state))
    return told


def failures_at(*instants):
    return [(after - before, "failed") for before, after in pairwise([0.0, *instants])]


# --- over time ------------------------------------------------------------------------------------


def lasted(failures):
    """Whether failures without a silence between them span a window."""
    began, last = failures[0], failures[0]
    for at in failures[1:]:
        if at - last > SILENCE:
            began = at
        elif at - began >= WINDOW:
            return True
        last = at
    return False


@given(happenings)
@examples(300)
def test_it_is_triggered_when_failures_span_a_window_and_only_then(happened):
    since_success = []
    for now, what, state in told(over_time(), happened):
        since_success = [*since_success, now] if what == "failed" else []
        if not since_success:
            assert state is DISARMED
        else:
            assert state is (TRIGGERED if lasted(since_success) else ARMED)


@given(happenings)
@examples(100)
def test_it_triggers_at_a_failure_and_once_until_a_success(happened):
    before = DISARMED
    for _, what, state in told(over_time(), happened):
        if what == "succeeded":
            assert state is DISARMED
        elif before is TRIGGERED:
            assert state is TRIGGERED
        elif state is TRIGGERED:
            assert before is ARMED
        before = state


@pytest.mark.parametrize(("seconds", "state"), [(29.0, ARMED), (30.0, TRIGGERED), (31.0, TRIGGERED)])
def test_a_failure_that_lasts_is_critical_from_the_end_of_the_window_on(seconds, state):
    breaker = over_time()
    told(breaker, failures_at(0.0, 10.0, 20.0, seconds), start=0.0)
    assert breaker.state is state


def test_one_failure_and_then_silence_is_nothing_critical():
    breaker = over_time()
    breaker.failed(0.0)
    assert breaker.decides_at == WINDOW
    breaker.failed(10_000.0)
    assert (breaker.state, breaker.began_at) == (ARMED, 10_000.0)


def test_a_success_in_the_window_starts_it_anew():
    breaker = over_time()
    told(breaker, [(0.0, "failed"), (29.0, "succeeded"), (1.0, "failed"), (29.0, "failed")])
    assert breaker.state is ARMED
    breaker.failed(1000.0 + 60.0)
    assert breaker.state is TRIGGERED


def test_only_an_armed_breaker_is_about_to_decide():
    breaker = over_time()
    assert breaker.decides_at is None
    told(breaker, failures_at(0.0, 5.0), start=0.0)
    assert breaker.decides_at == WINDOW
    breaker.failed(WINDOW)
    assert breaker.decides_at is None
    breaker.succeeded(WINDOW)
    assert breaker.decides_at is None


# --- by rate --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 90), max_size=200), st.sampled_from([0.1, 0.5, 1.0, 3.0]))
@examples(200)
def test_it_is_triggered_by_so_many_failures_in_any_window(gaps, rate):
    breaker = RateBreaker(rate)
    instants = [tenths / 10 for tenths in accumulate(gaps)]
    reached = False
    for number, now in enumerate(instants):
        breaker.failed(now)
        reached = reached or sum(now - at < 30.0 for at in instants[: number + 1]) >= breaker.limit
        assert (breaker.state is TRIGGERED) is reached


@pytest.mark.parametrize("offset", [0.0, 0.5, 15.0, 29.0])
def test_one_failure_a_second_reaches_a_rate_of_one_wherever_the_window_begins(offset):
    breaker = RateBreaker(1.0)
    for number in range(29):
        breaker.failed(offset + number)
        assert breaker.state is ARMED
    breaker.failed(offset + 29)
    assert (breaker.state, breaker.began_at) == (TRIGGERED, offset)


def test_fewer_than_the_rate_never_trigger_it_however_long_it_lasts():
    breaker = RateBreaker(1.0)
    for number in range(10_000):
        breaker.failed(number * 1.04)
    assert breaker.state is ARMED


def test_a_success_disarms_it_when_a_whole_window_was_quiet():
    breaker = RateBreaker(0.1)
    for now in (0.0, 1.0, 2.0):
        breaker.failed(now)
    breaker.succeeded(31.9)
    assert breaker.state is TRIGGERED
    breaker.succeeded(32.0)
    assert breaker.state is DISARMED


def test_it_triggers_once_until_it_was_disarmed():
    breaker = RateBreaker(0.1)
    for now in (0.0, 1.0, 2.0, 100.0):
        breaker.failed(now)
    assert breaker.state is TRIGGERED
    breaker.succeeded(130.0)
    breaker.failed(131.0)
    assert breaker.state is ARMED


@pytest.mark.parametrize(("rate", "limit"), [(1.0, 30), (0.5, 15), (0.01, 1), (0.034, 2), (1000.0, 30_000)])
def test_a_rate_is_a_number_of_failures_in_thirty_seconds(rate, limit):
    assert RateBreaker(rate).limit == limit


def test_what_it_remembers_is_bounded():
    breaker = RateBreaker(1.0)
    for _ in range(100_000):
        breaker.failed(0.0)
    assert len(breaker._failures) == breaker.limit
