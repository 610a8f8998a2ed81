"""Partition scopes: .NET's date patterns as keys whose text order is time order."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import due_times, examples

from postdate.errors import ConfigurationError
from postdate.model.date_patterns import partition_scope
from postdate.settings import load_settings

INSTANT = datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyyMMddHH", "2026030107"),
        ("yyyy-MM-dd", "2026-03-01"),
        ("yyyy", "2026"),
        ("yyyyMM", "202603"),
        ("yyyyMMddHHmmss", "20260301070809"),
        ("yyyy_MM_ddTHHmmssffffff", "2026_03_01T070809987654"),
        ("yyyyMMddHHmmssf", "202603010708099"),
        ("yyyyMMddHHmmssfffffff", "202603010708099876540"),
        ("X0yyyyMM", "X0202603"),
    ],
)
def test_patterns_are_written_as_dotnet_writes_them_in_the_invariant_culture(pattern, text):
    assert partition_scope(pattern).of(INSTANT) == text


def test_an_instant_is_taken_in_utc():
    there = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert partition_scope("yyyyMMddHH").of(there) == "2026022823"


ORDERED = ["yyyy", "yyyyMM", "yyyy-MM-dd", "yyyyMMddHH", "yyyyMMddHHmmss", "yyyyMMddHHmmssffffff"]


@examples(300)
@given(due_times, due_times, st.sampled_from(ORDERED))
def test_text_order_is_time_order(one, two, pattern):
    scope = partition_scope(pattern)
    early, late = sorted((one, two))
    assert scope.of(early) <= scope.of(late)


@pytest.mark.parametrize(
    "pattern",
    [
        "ddMMyyyy",  # text order is not time order
        "yyyyddMM",
        "yyyyHH",
        "yyMMddHH",  # two digits: 99 comes after 00
        "yyyyMMddhh",  # twelve hours
        "yyyyMMMdd",  # names of months
        "yyyyMMddzzz",
        "yyyyMMdyyyy",
        "yyyyMMddHHmmssFF",  # trailing zeros left out
        "yyyyMMddHHmmssffffffff",
        "----",
        "yyy",
        "yyyy/MM",
        "yyyy MM",
        "yyyyMM\n",
        "Part-yyyy",  # the t is AM or PM
        "",
    ],
)
def test_other_patterns_are_refused_in_one_line_that_says_which_do(pattern):
    with pytest.raises(ConfigurationError, match="like yyyyMMddHH") as error:
        partition_scope(pattern)
    assert len(str(error.value).splitlines()) == 1


def test_the_setting_is_checked_when_it_is_loaded():
    with pytest.raises(ConfigurationError, match="timeout_partition_scope: the partition scope 'ddMMyyyy'"):
        load_settings(timeout_partition_scope="ddMMyyyy")
    with pytest.raises(ConfigurationError, match="timeout_state_container: 'No_Container' is not"):
        load_settings(timeout_state_container="No_Container")
    with pytest.raises(ConfigurationError, match="timeout_table: 'a-b' is not a table name"):
        load_settings(timeout_table="a-b")
