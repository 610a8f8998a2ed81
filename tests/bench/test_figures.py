import json
import math

import pytest

from postdate.bench.figures import Figures, Lateness


def test_percentiles_are_values_that_occurred():
    lateness = Lateness.of(range(1, 201), expected=200)
    assert (lateness.p50_s, lateness.p99_s, lateness.max_s) == (100, 198, 200)
    assert len(lateness.curve) == 101
    assert (lateness.curve[0], lateness.curve[1], lateness.curve[100]) == (1, 2, 200)
    assert lateness.curve == sorted(lateness.curve)


def test_the_order_of_arrival_does_not_matter():
    assert Lateness.of([3.0, 1.0, 2.0], expected=3) == Lateness.of(iter([1.0, 2.0, 3.0]), expected=3)


def test_a_single_late_message_among_few_shows_in_the_99th_percentile():
    assert Lateness.of([0.0, 0.0, 9.0], expected=3).p99_s == 9.0


def test_what_did_not_arrive_is_lost_and_no_percentile_hides_it():
    lateness = Lateness.of([0.1, 0.2], expected=5, duplicated=1)
    assert (lateness.count, lateness.lost, lateness.duplicated) == (2, 3, 1)


def test_early_is_counted_strictly_before_the_due_time():
    assert Lateness.of([-0.001, 0.0, 0.001], expected=3).early == 1


def test_nothing_that_arrived_is_infinitely_late():
    lateness = Lateness.of([], expected=2)
    assert (lateness.lost, lateness.count, lateness.curve) == (2, 0, [])
    assert (lateness.p50_s, lateness.p99_s, lateness.max_s) == (math.inf, math.inf, math.inf)


def test_more_messages_than_were_sent_is_a_mistake_of_the_measurement():
    with pytest.raises(ValueError, match="2 messages arrived, and only 1 were expected"):
        Lateness.of([0.1, 0.2], expected=1)


def test_figures_as_json_hold_no_infinity_and_all_the_rest():
    figures = Figures("peer", "1.0", ["a note"], trickle=Lateness.of([], expected=1))
    figures.idle_hour = {"requests": 3600.0, "how": "60 s, times 60"}
    plain = figures.as_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["trickle"]["p99_s"] is None
    assert plain["idle_hour"] == {"requests": 3600.0, "how": "60 s, times 60"}
    assert (plain["name"], plain["notes"], plain["burst"]) == ("peer", ["a note"], None)
