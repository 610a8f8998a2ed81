"""Ranges from looks at a few keys: nothing left out, few looks, pieces of about the size asked for."""

import asyncio
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postdate.model.keys import RowKey, identity
from postdate.spark.looks import MANY, looked
from postdate.spark.ranges import KeyRange, joined
from tests.unit.test_spark_ranges import inside

HOUR = "2030050612"


class Table:
    """Keys in order, and what was asked for."""

    def __init__(self, keys):
        self.keys = sorted(keys, key=lambda key: (key.partition, key.row))
        self.asked = []

    async def look(self, part, most):
        assert 1 < most <= MANY
        found = [key for key in self.keys if inside(key, part)][:most]
        self.asked.append(most)
        return found

    def parts(self, rows, within=KeyRange()):  # noqa: B008 - frozen
        return list(joined(asyncio.run(looked(self.look, within, rows)), rows))

    def sizes(self, rows):
        return [sum(inside(key, part) for key in self.keys) for part in self.parts(rows)]


def ours(second, name, *, hour=HOUR, micros=0):
    return RowKey(
        hour, f"{hour}{second // 60:02d}{second % 60:02d}_{micros:06d}_{identity(str(name), 'queue')}"
    )


def of_net(second, name):
    digits = identity(str(name), "queue")
    return RowKey(HOUR, f"{HOUR}{second // 60:02d}{second % 60:02d}_{UUID(digits)}")


keys_of_all_kinds = st.one_of(
    st.builds(
        ours, st.integers(0, 3599), st.integers(0, 99), micros=st.sampled_from([0, 1, 500_000, 999_999])
    ),
    st.builds(of_net, st.sampled_from([0, 1, 1800, 3599]), st.integers(0, 99)),
    st.builds(
        ours, st.integers(0, 99), st.integers(0, 99), hour=st.sampled_from(["2030050611", "2030050613"])
    ),
    st.builds(RowKey, st.sampled_from(["", "x", HOUR, HOUR + "-"]), st.text("0123ab_-", min_size=1)),
)


@given(st.lists(keys_of_all_kinds, unique=True), st.integers(1, 12))
def test_each_key_lies_in_exactly_one_range_whatever_it_looks_like(keys, rows):
    table = Table(keys)
    parts = table.parts(rows)
    for key in keys:
        assert sum(inside(key, part) for part in parts) == 1


def test_hours_outside_are_not_looked_at():
    table = Table(ours(0, n, hour=f"20300506{hour}") for hour in range(10, 20) for n in range(3))
    parts = table.parts(100, KeyRange("2030050612", "2030050613"))
    assert parts == [KeyRange("2030050612", "2030050613")]


@pytest.mark.parametrize(
    ("keys", "most_looks"),
    [
        # Evenly, over two hours.
        ([ours(n % 3600, n, hour=f"203005061{n // 3600}") for n in range(7200)], 30),
        # All at one instant, at half past.
        ([ours(1800, n) for n in range(7000)] + [ours(n, n) for n in range(0, 1800, 60)], 30),
        # The same of a .NET endpoint.
        ([of_net(1800, n) for n in range(7000)], 30),
        # In the first minutes only.
        ([ours(n // 20, n, micros=n % 20) for n in range(7000)], 40),
        # At each begin of a minute.
        ([ours(n % 60 * 60, n) for n in range(7000)], 40),
    ],
    ids=["evenly", "one instant", "one second of .NET", "the beginning", "clumps"],
)
def test_pieces_are_about_as_large_as_asked_for(keys, most_looks):
    table = Table(keys)
    sizes = table.sizes(1000)
    assert sum(sizes) == len(keys)
    assert max(sizes) <= 2000
    assert len(sizes) <= 2 * len(keys) / 1000 + 2
    assert len(table.asked) <= most_looks


def test_hours_with_few_rows_are_read_a_page_at_a_time():
    table = Table(
        ours(n, n, hour=f"2030{month:02d}{day:02d}{hour:02d}")
        for month in (1, 2)
        for day in range(1, 28)
        for hour in range(24)
        for n in range(3)
    )
    assert len(table.keys) == 3888
    assert max(table.sizes(500)) <= 500
    assert len(table.asked) <= 12
