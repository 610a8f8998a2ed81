"""The default policy and its relatives: pure decisions."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples

from postdate.core.classify import Classifier, Kind
from postdate.core.recoverability import (
    DelayedRetry,
    Discard,
    ErrorContext,
    ImmediateRetry,
    MoveToError,
    RecoverabilityConfig,
    default_policy,
    exponential,
    failures_now,
    hinted_delay,
    retries_done,
)
from postdate.errors import NoHandler, ServiceBusy, UnreadableBody, UsageError
from postdate.model import headers as h

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TROUBLE = RuntimeError("no")


def failure(f=1, d=0, error=TROUBLE, **headers):
    return ErrorContext(
        error=error,
        message_id="m",
        native_id="n",
        headers=headers,
        body=b"",
        receive_address="orders",
        immediate_failures=f,
        delayed_retries=d,
        attempts=f,
        now=NOW,
    )


def attempts_of(config, policy=default_policy, error=TROUBLE):
    """All actions until the message is put away."""
    actions, f, d = [], 1, 0
    while True:
        action = policy(config, failure(f, d, error))
        actions.append(action)
        if isinstance(action, MoveToError | Discard):
            return actions
        f, d = (1, d + 1) if isinstance(action, DelayedRetry) else (f + 1, d)


#: The table of the specification: immediate, delayed, attempts.
PAIRS = [
    (0, 0, 1),
    (1, 0, 2),
    (0, 1, 2),
    (3, 1, 8),
    (0, 20, 21),
    (1, 1, 4),
    (2, 2, 9),
    (1, 3, 8),
    (5, 3, 24),
    (3, 2, 12),
]


@pytest.mark.parametrize(("immediate", "delayed", "attempts"), PAIRS)
def test_attempts_are_one_more_each_multiplied(immediate, delayed, attempts):
    config = RecoverabilityConfig(immediate, delayed)
    assert len(attempts_of(config)) == attempts


@given(st.integers(0, 12), st.integers(0, 12))
@examples(60)
def test_any_pair_makes_as_many_attempts_and_grows_its_delays(immediate, delayed):
    actions = attempts_of(RecoverabilityConfig(immediate, delayed))
    assert len(actions) == (immediate + 1) * (delayed + 1)
    delays = [a.delay for a in actions if isinstance(a, DelayedRetry)]
    assert delays == [timedelta(seconds=10 * k) for k in range(1, delayed + 1)]


def test_the_default_delays_are_ten_twenty_and_thirty_seconds():
    delays = [
        a.delay.total_seconds() for a in attempts_of(RecoverabilityConfig()) if isinstance(a, DelayedRetry)
    ]
    assert delays == [10, 20, 30]


def test_a_subclass_of_an_unrecoverable_type_has_one_attempt():
    class Declined(ValueError): ...

    config = RecoverabilityConfig(unrecoverable=(ValueError,))
    assert default_policy(config, failure(error=Declined())) == MoveToError()


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (timedelta(days=1, microseconds=1), MoveToError()),
        (timedelta(days=1, seconds=-1), DelayedRetry(timedelta(seconds=20))),
        ("garbage", DelayedRetry(timedelta(seconds=20))),
        (None, DelayedRetry(timedelta(seconds=20))),
    ],
)
def test_a_day_between_two_delayed_retries_is_too_long(stamp, expected):
    text = h.format_instant(NOW - stamp) if isinstance(stamp, timedelta) else stamp
    headers = {} if text is None else {h.RETRIES_TIMESTAMP: text}
    assert default_policy(RecoverabilityConfig(), failure(6, 1, **headers)) == expected


def test_an_age_limit_bounds_the_whole_life():
    config = RecoverabilityConfig(age_limit=timedelta(hours=1))
    young = {h.TIME_SENT: h.format_instant(NOW - timedelta(minutes=59))}
    old = {h.TIME_SENT: h.format_instant(NOW - timedelta(minutes=61))}
    assert isinstance(default_policy(config, failure(6, **young)), DelayedRetry)
    assert default_policy(config, failure(6, **old)) == MoveToError()


@pytest.mark.parametrize("error", [UnreadableBody("no"), NoHandler("no"), UsageError("no")])
def test_what_no_retry_can_help_has_one_attempt(error):
    config = RecoverabilityConfig(classifier=Classifier())
    assert attempts_of(config, error=error) == [MoveToError()]


def test_broken_code_has_two_attempts():
    config = RecoverabilityConfig(classifier=Classifier())
    assert attempts_of(config, error=TypeError()) == [ImmediateRetry(), MoveToError()]


def test_what_is_busy_is_not_tried_again_at_once():
    config = RecoverabilityConfig(classifier=Classifier())
    actions = attempts_of(config, error=ServiceBusy("later"))
    assert actions == [DelayedRetry(timedelta(seconds=10 * k)) for k in (1, 2, 3)] + [MoveToError()]


def test_without_delayed_retries_what_is_busy_gets_its_immediate_ones():
    config = RecoverabilityConfig(2, 0, classifier=Classifier())
    assert len(attempts_of(config, error=ServiceBusy("later"))) == 3


def test_without_a_classifier_nothing_is_told_apart():
    assert len(attempts_of(RecoverabilityConfig(), error=TypeError())) == 24


class Throttled(Exception):
    def __init__(self, retry_after):
        self.retry_after = retry_after


def test_a_delay_is_at_least_what_the_error_asks_for():
    config = RecoverabilityConfig(0, 1)
    assert default_policy(config, failure(error=Throttled(45))) == DelayedRetry(timedelta(seconds=45))
    assert default_policy(config, failure(error=Throttled(3))) == DelayedRetry(timedelta(seconds=10))


@pytest.mark.parametrize("hint", ["soon", -1, True, None, float("nan"), 10**9])
def test_a_hint_that_makes_no_sense_is_none(hint):
    assert hinted_delay(Throttled(hint)) == timedelta(0)


def test_exponential_doubles_up_to_its_maximum_less_jitter():
    policy = exponential(timedelta(seconds=1), maximum=timedelta(seconds=60), random=Random(7))
    delays = [
        a.delay.total_seconds()
        for a in attempts_of(RecoverabilityConfig(0, 12), policy)
        if isinstance(a, DelayedRetry)
    ]
    full = [min(60, 2**k) for k in range(12)]
    assert all(f / 2 <= delay <= f for delay, f in zip(delays, full, strict=True))
    assert len({delay / f for delay, f in zip(delays, full, strict=True)}) == 12


def test_exponential_without_jitter_is_exact():
    policy = exponential(timedelta(seconds=2), jitter=0)
    actions = attempts_of(RecoverabilityConfig(0, 3), policy)
    assert [a.delay.total_seconds() for a in actions[:-1]] == [2, 4, 8]


@pytest.mark.parametrize(
    "arguments",
    [
        {"base": timedelta(0)},
        {"base": timedelta(hours=2), "maximum": timedelta(hours=1)},
        {"jitter": 1.1},
    ],
)
def test_exponential_refuses_what_makes_no_sense(arguments):
    with pytest.raises(UsageError, match="exponential"):
        exponential(**arguments)


def test_actions_refuse_what_can_not_be_done():
    with pytest.raises(UsageError, match="negative"):
        DelayedRetry(timedelta(seconds=-1))
    with pytest.raises(UsageError, match="blank"):
        MoveToError(" ")
    with pytest.raises(UsageError, match="reason"):
        Discard("")


@pytest.mark.parametrize(
    ("dequeued", "header", "failures"),
    [
        (1, None, 1),
        (6, None, 6),
        (7, "6", 1),
        (9, "6", 3),
        (1, "6", 1),
        (3, "x", 3),
        (3, "-1", 4),
        (3, "--1", 3),
    ],
)
def test_failures_are_dequeues_less_those_that_do_not_count(dequeued, header, failures):
    assert failures_now(dequeued, {} if header is None else {h.UNCOUNTED: header}) == failures


@pytest.mark.parametrize(("header", "done"), [(None, 0), ("2", 2), ("two", 0), ("٣", 0), ("9" * 12, 0)])
def test_retries_done_are_what_the_header_says(header, done):
    assert retries_done({} if header is None else {h.RETRIES: header}) == done


def test_kinds_of_a_classifier_are_exhaustive():
    assert {kind.value for kind in Kind} == {"transient", "busy", "permanent", "broken", "unknown"}
