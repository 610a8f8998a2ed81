"""Buckets of a bulk load: whole hours where they are few rows, pieces of one where they are many."""

from hypothesis import given
from hypothesis import strategies as st

from postdate.spark.scheduling.buckets import plan

counts = st.lists(st.integers(1, 50), max_size=30).map(
    lambda rows: [(f"20300101{n:02}", count) for n, count in enumerate(rows)]
)


@given(counts, st.integers(1, 20))
def test_hours_share_buckets_only_while_they_fit(counts, size):
    found = plan(counts, rows_per_bucket=size)
    rows = dict(counts)
    held = {}
    for one in found.hours:
        assert one.pieces == -(-rows[one.hour] // size)
        for piece in range(one.pieces):
            held.setdefault(one.first + piece, []).append(one.hour)
    assert sorted(held) == list(range(found.count)), "each bucket holds something, none is left out"
    for hours in held.values():
        assert len(hours) == 1 or sum(rows[hour] for hour in hours) <= size
    assert found.rows == sum(rows.values())


@given(counts, st.integers(1, 20))
def test_the_fingerprint_tells_another_plan(counts, size):
    found = plan(counts, rows_per_bucket=size)
    assert plan(counts, rows_per_bucket=size).fingerprint == found.fingerprint
    assert plan([*counts, ("2031010100", 1)], rows_per_bucket=size).fingerprint != found.fingerprint
    assert plan(counts, rows_per_bucket=size, identities=1).fingerprint != found.fingerprint


def test_nothing_is_no_bucket():
    assert plan([], rows_per_bucket=5).count == 0
