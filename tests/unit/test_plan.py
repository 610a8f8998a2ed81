"""The plan of a page: a message is never early, hidden no longer than needed, and late by less than a second."""

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import due_times, examples, near_times

from postdate.core.plan import HandOver, Refuse, Wait, hidden_seconds, pause_before, plan, ready, send_instant
from postdate.model.delayed import DelayedMessage, DelayedRow, UnreadableRow
from postdate.model.keys import RowKey
from postdate.model.limits import MAX_HIDDEN_SECONDS
from postdate.model.message import Message

NOW = datetime(2026, 3, 1, 7, 0, tzinfo=UTC)
WEEK = timedelta(seconds=MAX_HIDDEN_SECONDS)
SECOND = timedelta(seconds=1)
KEY = RowKey("2026030107", "x")

lookaheads = st.timedeltas(timedelta(0), timedelta(days=30)) | st.sampled_from(
    [timedelta(0), timedelta(seconds=30)]
)
steps_of_time = st.timedeltas(timedelta(days=-9), timedelta(days=9)) | st.timedeltas(-2 * SECOND, 2 * SECOND)


def row(due_at: datetime, next_attempt_at: datetime | None = None) -> DelayedRow:
    return DelayedRow(
        KEY, "etag", DelayedMessage(Message("id", {}), "orders", due_at, next_attempt_at=next_attempt_at)
    )


def broken(due_at: datetime | None, next_attempt_at: datetime | None = None) -> UnreadableRow:
    return UnreadableRow(KEY, "etag", "why", {}, due_at, next_attempt_at=next_attempt_at)


@given(due_times | near_times, steps_of_time, lookaheads, st.none() | steps_of_time)
@examples(75)
def test_no_message_appears_early_or_a_second_late(due_at, ahead, lookahead, backed_off):
    try:
        now = due_at - ahead
        next_attempt_at = None if backed_off is None else now + backed_off
    except OverflowError:
        return
    (step,) = plan([row(due_at, next_attempt_at)], now=now, lookahead=lookahead)
    if isinstance(step, HandOver):
        hidden = hidden_seconds(due_at, now)
        assert 0 <= hidden <= MAX_HIDDEN_SECONDS
        visible_at = now + hidden * SECOND
        assert visible_at >= due_at
        assert visible_at < max(due_at, now) + SECOND
        assert due_at - now <= lookahead
        assert next_attempt_at is None or next_attempt_at <= now
    else:
        assert isinstance(step, Wait)
        assert step.until > now
        assert step.until <= max(due_at, next_attempt_at or due_at)


@given(due_times | near_times, steps_of_time, st.floats(0, 1))
@examples(75)
def test_patience_takes_the_latest_of_a_burst_into_their_second_and_delays_nobody_else(due, ahead, patience):
    try:
        now = due - ahead
    except OverflowError:
        return
    pause = pause_before(due, now, patience)
    assert 0 <= pause <= patience
    sent = now + timedelta(seconds=pause)
    late = sent + hidden_seconds(due, sent) * SECOND - due
    if due > sent and due - sent < WEEK:
        assert timedelta(0) <= late <= timedelta(seconds=1 - patience, microseconds=1) or pause
        if pause:
            assert late == timedelta(0)
    if due <= now:
        assert pause == 0


@given(st.lists(st.timedeltas(-2 * SECOND, 40 * SECOND), max_size=60), st.integers(0, 60))
@examples(150)
def test_a_few_messages_are_each_sent_at_an_instant_from_which_they_are_not_late_at_all(offsets, limit):
    rows = [row(NOW + offset) for offset in sorted(offsets)]
    steps = plan(rows, now=NOW, lookahead=30 * SECOND, precise_limit=limit)
    sends = [step for step in steps if isinstance(step, HandOver)]
    ahead = [step for step in sends if step.row.delayed.due_at > NOW]
    dues = [step.row.delayed.due_at for step in ahead]
    span = (max(dues) - min(dues)) / SECOND if dues else 0.0
    timed = len(ahead) <= limit * max(1.0, span)
    assert [step.send_at for step in sends] == sorted(step.send_at for step in sends)
    assert len(steps) == len(rows)
    for step in sends:
        due_at = step.row.delayed.due_at
        visible_at = step.send_at + hidden_seconds(due_at, step.send_at) * SECOND
        if timed and due_at > NOW:
            assert NOW <= step.send_at <= due_at
            assert visible_at == due_at
        else:
            assert step.send_at == NOW  # a burst goes out at once, ahead of its due time


@given(st.lists(st.timedeltas(20 * SECOND, 30 * SECOND), max_size=90), st.integers(9, 40))
@examples(75)
def test_never_more_are_timed_within_a_second_than_find_the_service_free(offsets, limit):
    rows = [row(NOW + offset) for offset in sorted(offsets)]
    steps = plan(rows, now=NOW, lookahead=30 * SECOND, precise_limit=limit)
    per_second = Counter((step.send_at - NOW) // SECOND for step in steps)
    if any(step.send_at > NOW for step in steps):
        assert max(per_second.values()) <= limit
        # And nobody waits for an instant for longer than the wait between two sends allows.
        instants = [NOW, *(step.send_at for step in steps)]
        assert max(b - a for a, b in itertools.pairwise(instants)) < 2 * SECOND


def test_more_than_a_page_holds_of_one_second_are_timed_over_several():
    rows = [row(NOW + timedelta(seconds=20, milliseconds=9 * n)) for n in range(1000)]
    steps = plan(rows, now=NOW, lookahead=30 * SECOND, precise_limit=400)
    assert {(step.send_at - NOW) // SECOND for step in steps} == {0, 1, 2}
    assert all(
        hidden_seconds(s.row.delayed.due_at, s.send_at) * SECOND + s.send_at == s.row.delayed.due_at
        for s in steps
    )


def test_a_burst_is_not_timed_and_keeps_its_order():
    rows = [row(NOW + timedelta(seconds=10, milliseconds=n)) for n in range(500)]
    steps = plan(rows, now=NOW, lookahead=30 * SECOND, precise_limit=400)
    assert [step.row for step in steps] == rows
    assert {step.send_at for step in steps} == {NOW}


@given(near_times, near_times)
@examples(60)
def test_the_instant_of_a_send_is_whole_seconds_before_the_due_time_and_at_most_a_second_away(due_at, now):
    instant = send_instant(due_at, now)
    assert now <= instant < now + SECOND
    assert due_at <= now or (due_at - instant) % SECOND == timedelta(0)


@given(near_times, near_times)
@examples(30)
def test_a_message_is_hidden_for_as_few_whole_seconds_as_will_do(due_at, now):
    hidden = hidden_seconds(due_at, now)
    assert now + hidden * SECOND >= due_at
    assert hidden == 0 or now + (hidden - 1) * SECOND < due_at


def test_what_is_due_is_not_hidden():
    assert hidden_seconds(NOW, NOW) == 0
    assert hidden_seconds(NOW - timedelta(days=400_000), NOW) == 0
    assert hidden_seconds(NOW + timedelta(microseconds=1), NOW) == 1
    assert hidden_seconds(NOW + SECOND, NOW) == 1


def test_nothing_is_hidden_for_longer_than_a_queue_can():
    assert hidden_seconds(NOW + WEEK, NOW) == MAX_HIDDEN_SECONDS
    assert hidden_seconds(NOW + 2 * WEEK, NOW) == MAX_HIDDEN_SECONDS


def test_a_lookahead_of_more_than_a_queue_can_hide_counts_as_that():
    early = row(NOW + WEEK + SECOND)
    assert plan([early], now=NOW, lookahead=timedelta(days=30)) == [Wait(early, NOW + SECOND)]
    assert plan([early], now=NOW + SECOND, lookahead=timedelta(days=30)) == [HandOver(early, NOW + SECOND)]


def test_a_page_gets_a_step_for_each_row_in_its_order():
    rows = [
        row(NOW - SECOND),
        broken(None),
        row(NOW + timedelta(seconds=30)),
        row(NOW + timedelta(seconds=31)),
        broken(NOW + timedelta(hours=1)),
    ]
    steps = plan(iter(rows), now=NOW, lookahead=timedelta(seconds=30))
    assert [type(step) for step in steps] == [HandOver, Refuse, HandOver, Wait, Wait]
    assert [step.row for step in steps] == rows
    assert plan([], now=NOW, lookahead=timedelta(0)) == []


def test_a_row_that_failed_waits_for_its_next_attempt_and_for_the_lookahead():
    lookahead = timedelta(seconds=30)
    soon, later = NOW + timedelta(seconds=5), NOW + timedelta(hours=1)
    assert ready(row(NOW, soon), lookahead) == soon
    assert ready(row(later, soon), lookahead) == later - lookahead
    assert ready(row(NOW, None), lookahead) == NOW - lookahead


def test_an_unreadable_row_is_refused_when_it_is_due_and_not_again_before_its_next_attempt():
    lookahead = timedelta(0)
    assert ready(broken(None), lookahead) is None
    assert ready(broken(NOW), lookahead) == NOW
    assert ready(broken(None, NOW), lookahead) == NOW
    failed = broken(NOW, NOW + SECOND)
    assert plan([failed], now=NOW, lookahead=lookahead) == [Wait(failed, NOW + SECOND)]
    assert plan([failed], now=NOW + SECOND, lookahead=lookahead) == [Refuse(failed)]


@pytest.mark.parametrize("due_at", [datetime(1601, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_rows_at_the_ends_of_the_calendar_do_not_break_the_plan(due_at):
    for now in (NOW, datetime(9998, 12, 31, tzinfo=UTC)):
        (step,) = plan([row(due_at)], now=now, lookahead=timedelta(days=6))
        assert isinstance(step, HandOver if due_at < now else Wait)
