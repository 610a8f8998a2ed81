"""Ranges of keys: each row in one of them, none left out."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postdate.model.keys import RowKey
from postdate.spark.ranges import DueWindow, KeyRange, cut, hours

NOON = datetime(2030, 5, 6, 12, 0, tzinfo=UTC)


def inside(key, part):
    return (
        (part.first is None or key.partition >= part.first)
        and (part.last is None or key.partition <= part.last)
        and (part.row_from is None or key.row >= part.row_from)
        and (part.row_until is None or key.row < part.row_until)
        and (part.after is None or key.partition > part.after)
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["2030050611", "2030050612", "2030050613"]), st.text("0123ab_", min_size=1)
        ),
        unique=True,
    ),
    st.integers(1, 9),
)
def test_each_key_lies_in_exactly_one_range(pairs, size):
    keys = sorted((RowKey(*pair) for pair in pairs), key=lambda key: (key.partition, key.row))
    parts = list(cut(keys, size))
    for key in keys:
        assert sum(inside(key, part) for part in parts) == 1
    for part in parts:
        assert 1 <= sum(inside(key, part) for key in keys) <= size


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (KeyRange(), ""),
        (KeyRange("a", "b"), "PartitionKey ge 'a' and PartitionKey le 'b'"),
        (KeyRange("a", "a"), "PartitionKey eq 'a'"),
        (KeyRange("a", "a", "x'", "y"), "PartitionKey eq 'a' and RowKey ge 'x''' and RowKey lt 'y'"),
        (KeyRange(None, "b"), "PartitionKey le 'b'"),
        (KeyRange(last="b", after="a"), "PartitionKey le 'b' and PartitionKey gt 'a'"),
    ],
)
def test_a_range_as_the_service_reads_it(part, text):
    assert part.filter() == text


def test_a_window_takes_the_hour_before_for_rows_of_net_endpoints():
    # Due when its second is over: a row of 11:59:59 is due at 12:00:00.
    assert hours(DueWindow(NOON, NOON + timedelta(hours=2))) == KeyRange("2030050611", "2030050614")
    assert hours(DueWindow()) == KeyRange()


def test_windows_only_narrow():
    window = (
        DueWindow()
        .from_(NOON)
        .from_(NOON - timedelta(1))
        .until(NOON + timedelta(2))
        .until(NOON + timedelta(3))
    )
    assert window == DueWindow(NOON, NOON + timedelta(2))
    assert window.holds(NOON)
    assert not window.holds(NOON + timedelta(2))
    assert not window.holds(None)
    assert DueWindow(end=NOON).holds(None)
