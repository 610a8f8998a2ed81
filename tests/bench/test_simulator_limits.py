"""The simulated account takes what it is said to take, and no more."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.simulator.limits import Bucket, Client, Latencies, Limits, Service, Spread
from bench.simulator.runs import Setting, drain
from postdate.model.limits import PAGE_ROWS

RATE = 100.0
CALM = Service(Limits(), Latencies(), Client(0.0))


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(1, 300)), max_size=60), st.booleans())
def test_a_bucket_takes_its_rate_its_burst_and_one_request_more(requests, full):
    bucket, now, accepted = Bucket(RATE, 1.0, 0.0, full=full), 0.0, []
    for pause, tokens in requests:
        now += pause
        if bucket.open(now):
            bucket.take(tokens)
            accepted.append((now, tokens))
    for first in range(len(accepted)):
        for last in range(first, len(accepted)):
            seconds = accepted[last][0] - accepted[first][0]
            before_the_last = sum(tokens for _, tokens in accepted[first:last])
            assert before_the_last <= RATE * 1.0 + RATE * seconds + 1.0


def test_an_unused_bucket_takes_what_it_was_made_for():
    bucket, taken = Bucket(RATE, 1.0, 0.0), 0
    for step in range(10_000):
        if bucket.open(step / 1000):
            bucket.take(1)
            taken += 1
    assert taken == pytest.approx(RATE * 11, abs=2)


def most_over(taken, seconds):
    """The most that was taken in so many whole seconds in a row."""
    return max(sum(taken.get(first + i, 0.0) for i in range(seconds)) for first in taken)


@pytest.mark.parametrize(
    ("what", "limits", "rate", "largest"),
    [
        ("partition", {"partition_entities_s": 900.0}, 900.0, PAGE_ROWS),
        ("queue", {"queue_messages_s": 200.0}, 200.0, 1),
        ("account", {"account_requests_s": 150.0}, 150.0, 1),
    ],
)
def test_the_engine_gets_no_more_than_the_limit(what, limits, rate, largest):
    service = replace(CALM, limits=replace(CALM.limits, **limits))
    world, figures, _ = drain(Setting(seed=3), service, messages=1_500, queues=1)
    assert (figures.lost, figures.waiting) == (0, 0)
    assert world.account.refused_by[what] > 0
    [taken] = [taken for (kind, _), taken in world.account.taken.items() if kind == what]
    for seconds in (1, 2, 5):
        assert most_over(taken, seconds) <= rate * (seconds + service.limits.burst_s) + largest


def test_without_limits_nothing_is_refused():
    endless = Limits(float("inf"), float("inf"), float("inf"))
    world, figures, _ = drain(Setting(seed=3), replace(CALM, limits=endless), messages=1_500, queues=1)
    assert (figures.lost, figures.refused, world.account.refused_by) == (0, 0, {})


def test_a_spread_has_its_median_and_its_99th_percentile():
    random = Random(5)
    times = sorted(Spread(0.006, 0.040).draw(random) for _ in range(20_000))
    assert times[10_000] == pytest.approx(0.006, rel=0.03)
    assert times[19_800] == pytest.approx(0.040, rel=0.10)


def test_rows_make_a_request_longer():
    assert Spread(0.01, 0.01, per_item=0.001).draw(Random(5), 10) == pytest.approx(0.02)


def test_our_own_processor_is_a_ceiling():
    service = replace(CALM, limits=Limits(float("inf"), float("inf"), float("inf")), client=Client(0.002))
    _, figures, _ = drain(Setting(seed=3), service, messages=1_500)
    assert 400 < figures.per_s <= 500
    assert figures.processor > 0.8


def test_consumers_share_the_limits():
    service = replace(CALM, limits=replace(CALM.limits, account_requests_s=500.0))
    alone = drain(Setting(seed=3), service, messages=1_500)[1]
    world, shared, consumers = drain(Setting(seed=3), service, messages=1_500, consumers=True)
    assert consumers.consumed == 1_500
    assert shared.per_s < alone.per_s
    assert most_over(world.account.taken["account", ""], 2) <= 500 * 3 + 2
