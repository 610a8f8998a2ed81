"""The service's clock: the interval never excludes the truth, and finds it again after a step."""

import math

from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples

from postdate.core.clock_offset import DRIFT, OffsetInterval, observe

#: Float arithmetic on seconds since the epoch is good to a microsecond.
EPSILON = 1e-6

latencies = st.floats(0.0, 0.5) | st.floats(0.0, 120.0)
exchanges = st.tuples(st.floats(0.0, 600.0), latencies, latencies)


class World:
    """A service clock that runs off from the local one at a constant rate, both told as floats."""

    def __init__(self, offset: float, drift: float) -> None:
        self.offset, self.drift, self.local = offset, drift, 1000.0
        self.known: OffsetInterval | None = None

    def truth(self, local: float) -> float:
        return self.offset + self.drift * (local - 1000.0)

    def exchange(self, pause: float, request: float, answer: float) -> OffsetInterval:
        sent = self.local + pause
        handled = sent + request
        received = handled + answer
        date = math.floor(handled + self.truth(handled))
        self.known = observe(self.known, date=float(date), sent=sent, received=received)
        self.local = received
        return self.known


@given(
    st.floats(-1e6, 2e9),
    st.floats(-DRIFT / 2, DRIFT / 2),
    st.lists(exchanges, min_size=1, max_size=12),
    st.floats(0, 1e5),
)
@examples(75)
def test_the_truth_is_never_excluded_whatever_the_latency_and_the_drift(offset, drift, steps, later):
    world = World(offset, drift)
    for step in steps:
        known = world.exchange(*step)
        assert known.low - EPSILON <= world.truth(world.local) <= known.high + EPSILON
    aged = known.aged(world.local + later)
    assert aged.low - EPSILON <= world.truth(world.local + later) <= aged.high + EPSILON


def test_a_slow_answer_does_not_exclude_the_truth():
    # Handled at once, right before the service's second ends; then the answer takes two minutes.
    world = World(0.99999, DRIFT / 2)
    known = world.exchange(0.0, 0.0, 120.0)
    assert known.low <= world.truth(world.local) <= known.high


@given(st.lists(exchanges, min_size=2, max_size=8))
@examples(25)
def test_a_response_never_makes_the_interval_wider_than_waiting_would(steps):
    world = World(1.7e9, 0.0)
    known = world.exchange(*steps[0])
    for step in steps[1:]:
        before, known = known, world.exchange(*step)
        assert known.uncertainty <= before.aged(known.at).uncertainty + EPSILON


def test_twenty_quick_responses_tell_the_offset_to_some_hundredths_of_a_second():
    world = World(1.7e9 + 0.123, 0.0)
    for _ in range(20):
        known = world.exchange(0.612034, 0.003, 0.003)
    assert known.uncertainty < 0.05


def test_one_response_tells_the_offset_to_a_second_and_its_round_trip():
    known = observe(None, date=100.0, sent=10.0, received=10.5)
    assert known == OffsetInterval(89.5, 91.0 + 0.5 * DRIFT, 10.5)


@given(st.floats(2.0, 1e6) | st.floats(-1e6, -2.0))
@examples(20)
def test_a_step_of_the_clock_is_followed_at_once_when_it_contradicts_what_was_known(step):
    world = World(1.7e9, 0.0)
    for _ in range(10):
        world.exchange(0.3, 0.01, 0.01)
    world.offset += step
    known = world.exchange(0.3, 0.01, 0.01)
    assert known.low - EPSILON <= world.truth(world.local) <= known.high + EPSILON
    for _ in range(20):
        known = world.exchange(0.37, 0.01, 0.01)
    assert known.uncertainty < 0.2


@given(st.floats(-0.9, 0.9), st.floats(0.0, 1.0))
@examples(20)
def test_a_small_step_puts_the_interval_wrong_by_no_more_than_itself(step, phase):
    """It is noticed once a response contradicts what was known, which may take a while for a small one."""
    world = World(1.7e9 + phase, 0.0)
    for _ in range(20):
        world.exchange(0.37, 0.01, 0.01)
    world.offset += step
    wrong_by = abs(step) + EPSILON
    for _ in range(40):
        known = world.exchange(0.37, 0.01, 0.01)
        assert known.low - wrong_by <= world.truth(world.local) <= known.high + wrong_by


def test_an_interval_only_widens_as_it_ages():
    known = OffsetInterval(5.0, 6.0, 100.0)
    assert known.aged(100.0) == known
    assert known.aged(50.0) == known
    assert known.aged(3700.0) == OffsetInterval(5.0 - 3600 * DRIFT, 6.0 + 3600 * DRIFT, 3700.0)


def test_responses_may_be_learnt_out_of_order():
    world = World(1.7e9, 0.0)
    world.exchange(0.0, 0.01, 0.01)
    newer = world.exchange(1.3, 0.01, 0.01)
    late = observe(newer, date=1.7e9 + 1000.0, sent=999.5, received=1000.5)
    assert late.low - EPSILON <= world.truth(world.local) <= late.high + EPSILON
