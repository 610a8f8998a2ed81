"""Row keys: text order is due order, and a bound lets exactly the due rows through."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from unit_cases import MICROSECOND, due_times, examples, identities, names, near_times

from postdate.model.delayed import DelayedMessage
from postdate.model.keys import RowKey, bound, due_time, identity, row_key
from postdate.model.message import Message

SECOND = datetime(2026, 3, 1, 7, 8, 9, tzinfo=UTC)


def dotnet_key(second: datetime, guid: str) -> RowKey:
    digits = second.strftime("%Y%m%d%H%M%S")
    return RowKey(digits[:10], f"{digits}_{guid}")


def within(key: RowKey, limit: RowKey) -> bool:
    """The filter of our poller."""
    return key.partition <= limit.partition and key.row <= limit.row


@given(due_times | near_times, due_times | near_times, identities, identities)
@examples(50)
def test_the_order_of_keys_is_the_order_of_due_times(earlier, later, one, other):
    if earlier > later:
        earlier, later = later, earlier
    first, second = row_key(earlier, one), row_key(later, other)
    if earlier < later:
        assert first.row < second.row
        assert first.partition <= second.partition
    else:
        assert first.row.rpartition("_")[0] == second.row.rpartition("_")[0]
        assert first.partition == second.partition


@given(due_times | near_times, near_times | due_times, identities)
@examples(50)
def test_the_bound_lets_exactly_those_of_our_rows_through_that_are_due(due_at, until, one):
    assert within(row_key(due_at, one), bound(until)) is (due_at <= until)


@pytest.mark.parametrize("suffix", ["0" * 32, "f" * 32])
def test_the_bound_is_exact_to_the_microsecond(suffix):
    key = row_key(SECOND, suffix)
    assert within(key, bound(SECOND))
    assert not within(key, bound(SECOND - MICROSECOND))


@given(near_times, near_times, identities)
@examples(50)
def test_the_bound_lets_every_due_row_of_dotnet_through(due_at, until, guid):
    second = due_at.replace(microsecond=0)
    key = dotnet_key(second, guid)
    told = due_time(key)
    assert told == second + timedelta(seconds=1)
    if told <= until:
        assert within(key, bound(until))


@given(due_times, identities)
@examples(25)
def test_a_key_tells_its_due_time_to_the_microsecond(due_at, one):
    key = row_key(due_at, one)
    assert due_time(key) == due_at
    assert key.row.startswith(key.partition)
    assert len(key.partition) == 10
    assert len(key.row) == 54


def test_a_key_does_not_depend_on_the_zone_of_the_due_time():
    elsewhere = SECOND.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert row_key(elsewhere, "a" * 32) == row_key(SECOND, "a" * 32)
    assert bound(elsewhere) == bound(SECOND)


def test_digits_are_padded_for_early_years():
    key = row_key(datetime(1601, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "a" * 32)
    assert (key.partition, key.row) == ("1601010203", f"16010102030405_000006_{'a' * 32}")


@pytest.mark.parametrize(
    "row",
    [
        "",
        "20260301070809",
        "20260301070809-" + "a" * 32,
        "20261301070809_" + "a" * 32,
        "20260230070809_" + "a" * 32,
        "20260301070860_" + "a" * 32,
        "x0260301070809_" + "a" * 32,
        "٢٠٢٦٠٣٠١٠٧٠٨٠٩_" + "a" * 32,
        "00010101000000_" + "a" * 32,
        "16001231235959_" + "a" * 32,
        "00000000000000_" + "a" * 32,
    ],
)
def test_a_key_that_holds_no_due_time_tells_none(row):
    assert due_time(RowKey(row[:10], row)) is None


@pytest.mark.parametrize(
    "suffix", ["", "x", "3f0d7f3e-6a1c-4f0b-9a55-0c6a1f2b3d4e", "000000_" + "A" * 32, "a\nb", "1_2"]
)
def test_any_suffix_but_ours_means_the_end_of_the_second(suffix):
    key = RowKey("2026030107", f"20260301070809_{suffix}")
    assert due_time(key) == SECOND + timedelta(seconds=1)


def test_the_last_second_of_all_is_never_due_rather_than_broken():
    # DateTimeOffset.MaxValue as a .NET sender writes it: "never".
    never = due_time(RowKey("9999123123", "99991231235959_" + "a" * 32))
    assert never == datetime.max.replace(tzinfo=UTC)


@given(names, names, names, names)
@examples(50)
def test_an_identity_belongs_to_one_message_id_and_one_destination(one, other, here, there):
    assert len(identity(one, here)) == 32
    same = one == other and here.lower() == there.lower()
    assert (identity(one, here) == identity(other, there)) is same


def test_an_identity_does_not_mix_up_where_the_id_ends():
    assert identity("ab", "c") != identity("a", "bc")
    assert identity("1:a", "b") != identity("1", ":ab")


def test_an_identity_ignores_the_case_of_the_destination_as_addresses_do():
    assert identity("id", "Orders@Other") == identity("id", "orders@other")
    assert identity("ID", "orders") != identity("id", "orders")


def test_the_same_message_for_the_same_time_has_one_key():
    one = DelayedMessage(Message("id", {"a": "b"}, b"x"), "orders", SECOND)
    again = DelayedMessage(Message("id", {}, b"y"), "ORDERS", SECOND, failure_count=3)
    assert one.key == again.key
    assert one.key != DelayedMessage(Message("id", {}), "billing", SECOND).key
