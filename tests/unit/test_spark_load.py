"""The load's way out, minute by minute, against one message after the other."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from postdate.core.load import drained

START = datetime(2040, 1, 1, 7, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FIRST = START.replace(second=0) - 5 * MINUTE


def one_by_one(loads, rate, lookahead_s):
    """For each minute: seconds after START when its last message is gone, and who waited when it began."""
    free, gone, told = Fraction(0), [], []
    for offset, count in loads:
        due = Fraction(int((FIRST + offset * MINUTE - START).total_seconds()))
        begins = max(Fraction(0), due - lookahead_s)
        backlog = sum(one > begins for one in gone)
        for _ in range(count):
            free = max(free, begins) + 1 / Fraction(rate)
            gone.append(free)
        told.append((free, backlog, max(Fraction(0), free - due)))
    return told


@given(
    loads=st.dictionaries(st.integers(0, 30), st.integers(1, 40), min_size=1, max_size=8),
    rate=st.sampled_from([0.1, 0.5, 1, 3, 7.5, 100]),
    lookahead_s=st.integers(0, 200),
)
def test_the_way_out_is_that_of_one_message_after_the_other(loads, rate, lookahead_s):
    ordered = sorted(loads.items())
    minutes = [(FIRST + offset * MINUTE, count) for offset, count in ordered]
    told = list(drained(minutes, rate=rate, start=START, lookahead=timedelta(seconds=lookahead_s)))
    for found, (done, backlog, late) in zip(told, one_by_one(ordered, rate, lookahead_s), strict=True):
        assert found.done_at == START + timedelta(microseconds=round(done * 1_000_000))
        assert found.late == timedelta(microseconds=round(late * 1_000_000))
        assert found.backlog == backlog


def test_what_would_end_after_all_years_ends_with_them():
    (told,) = drained([(FIRST, 10**9)], rate=1e-9, start=START, lookahead=timedelta(0))
    assert told.done_at == datetime.max.replace(tzinfo=UTC)
    assert told.late == timedelta.max
