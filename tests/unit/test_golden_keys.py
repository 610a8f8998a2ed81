"""Row keys and the instants of headers as .NET endpoints write them, by the golden file."""

from datetime import UTC, datetime, timedelta

import pytest

from postdate.errors import UsageError
from postdate.model.headers import format_instant, parse_instant
from postdate.model.keys import RowKey, bound, due_time, row_key


def at(iso: str) -> datetime:
    return datetime.fromisoformat(iso)


def classic_selects(now: datetime, key: RowKey) -> bool:
    """What the poller of a .NET endpoint picks."""
    digits = now.astimezone(UTC).strftime("%Y%m%d%H%M%S")
    return key.partition <= digits[:10] and key.row <= digits


def test_our_key_starts_as_that_of_dotnet_and_adds_the_microseconds(golden):
    for case in golden["row_keys"]:
        due_at = at(case["due"])
        ours = row_key(due_at, case["guid_n"])
        assert ours.partition == case["partition_key"]
        second, _, guid = case["row_key"].partition("_")
        assert ours.row == f"{second}_{due_at.microsecond:06d}_{guid}"
        assert due_time(ours) == due_at == at(case["due_utc"])


def test_a_row_of_dotnet_is_due_at_the_end_of_its_second(golden):
    for case in golden["row_keys"]:
        cut = at(case["due_utc"]).replace(microsecond=0)
        key = RowKey(case["partition_key"], case["row_key"])
        assert due_time(key) == cut + timedelta(seconds=1)


def test_rows_are_selected_by_the_filter_of_dotnet_as_the_golden_file_says(golden):
    for case in golden["poll_filter"]:
        now, key = at(case["now"]), RowKey(case["partition_key"], case["row_key"])
        digits = now.strftime("%Y%m%d%H%M%S")
        assert case["filter"] == f"(PartitionKey le '{digits[:10]}') and (RowKey le '{digits}')"
        assert classic_selects(now, key) is case["selected"], case


def test_dotnet_selects_a_row_of_ours_when_it_selects_its_own_for_that_second_never_early(golden):
    for case in golden["poll_filter"]:
        second = at(f"{case['row_key'][:8]}T{case['row_key'][8:14]}+00:00")
        for micros in (0, 1, 500_000, 999_999):
            due_at = second.replace(microsecond=micros)
            ours = row_key(due_at, case["row_key"].partition("_")[2])
            selected = classic_selects(at(case["now"]), ours)
            assert selected is case["selected"], case
            assert not selected or due_at <= at(case["now"])


def test_we_select_a_row_of_dotnet_when_dotnet_does(golden):
    for case in golden["poll_filter"]:
        now, key = at(case["now"]), RowKey(case["partition_key"], case["row_key"])
        limit = bound(now)
        due_at = due_time(key)
        assert due_at is not None
        within = key.partition <= limit.partition and key.row <= limit.row
        # The bound may let a row through a second too soon; its due time then keeps it.
        assert (within and due_at <= now) is case["selected"], case


def test_keys_are_gregorian_whatever_the_culture_of_the_writer(golden):
    hazard = golden["culture_hazard"]
    ours = row_key(at(hazard["due_utc"]), "0" * 32)
    assert ours.row.startswith(hazard["invariant_row_prefix"])


def test_a_row_written_under_another_calendar_is_never_early(golden):
    hazard = golden["culture_hazard"]
    # Buddhist: 543 years ahead, as it is for a .NET endpoint under another culture.
    buddhist = due_time(RowKey("", hazard["th-TH_row_prefix"] + "_" + "0" * 32))
    assert buddhist is not None
    assert buddhist > at(hazard["due_utc"])
    # Hijri: before 1601, so no due time of anybody; unreadable, rather than due at once.
    assert due_time(RowKey("", hazard["ar-SA_row_prefix"] + "_" + "0" * 32)) is None


def test_instants_in_headers_are_written_to_the_letter_and_read_back(golden):
    for case in golden["wire_dates"]:
        assert format_instant(at(case["iso"])) == case["wire"]
        assert parse_instant(case["wire"]) == at(case["iso"])


def test_instants_that_dotnet_refuses_are_refused(golden):
    for text in golden["wire_dates_invalid"]:
        with pytest.raises(UsageError, match="is not an instant"):
            parse_instant(text)


def test_instants_that_dotnet_takes_although_they_look_odd_are_taken(golden):
    for case in golden["wire_dates_lenient"]:
        assert parse_instant(case["wire"]) == at(case["accepted_by_original_as"])


def test_an_instant_of_the_right_shape_and_no_such_day_is_refused():
    with pytest.raises(UsageError, match="month must be in"):
        parse_instant("2026-13-01 07:08:09:987654 Z")
