"""Durations and spans: every form that people and .NET write, exactly, and a clear line for all else."""

from datetime import datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit_cases import examples

from postdate.errors import UsageError
from postdate.model.durations import format_duration, parse_duration
from postdate.model.headers import format_timespan, parse_timespan

spans = st.timedeltas()
ARABIC = {ord("0") + n: 0x660 + n for n in range(10)}


@given(spans)
@example(timedelta.max)
@example(timedelta.min)
@example(timedelta(days=3_650_000, microseconds=1))
@examples(50)
def test_a_duration_is_read_back_as_it_was_written(span):
    assert parse_duration(format_duration(span)) == span
    assert parse_duration(span) == span


@given(spans)
@example(timedelta.max)
@example(timedelta.min)
@examples(50)
def test_a_time_span_of_dotnet_is_read_back_as_it_was_written(span):
    assert parse_timespan(format_timespan(span)) == span
    assert parse_duration(format_timespan(span)) == span


@pytest.mark.parametrize(
    ("span", "text", "dotnet"),
    [
        (timedelta(0), "0s", "00:00:00"),
        (timedelta(seconds=30), "30s", "00:00:30"),
        (timedelta(seconds=90), "1m30s", "00:01:30"),
        (timedelta(milliseconds=250), "0.25s", "00:00:00.2500000"),
        (timedelta(microseconds=1), "0.000001s", "00:00:00.0000010"),
        (timedelta(days=7), "7d", "7.00:00:00"),
        (timedelta(days=1, hours=2, minutes=3, seconds=4.5), "1d2h3m4.5s", "1.02:03:04.5000000"),
        (-timedelta(seconds=90), "-1m30s", "-00:01:30"),
    ],
)
def test_durations_are_written_as_people_and_dotnet_write_them(span, text, dotnet):
    assert format_duration(span) == text
    assert format_timespan(span) == dotnet


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90),
        (1.5, 1.5),
        (0, 0),
        (-5, -5),
        ("90", 90),
        (" 90 ", 90),
        ("1e3", 1000),
        ("-2.5", -2.5),
        ("1m30s", 90),
        ("1m 30s", 90),
        ("2h", 7200),
        ("1.5h", 5400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("250ms", 0.25),
        ("1s250ms", 1.25),
        ("-30s", -30),
        ("+30s", 30),
        ("PT90S", 90),
        ("PT1M30.5S", 90.5),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
        ("-PT5S", -5),
        ("00:01:30", 90),
        ("1.00:00:00", 86_400),
        ("-00:00:05.5", -5.5),
        ("9:05:00", 32_700),
        ("24:00:00", 86_400),
    ],
)
def test_a_duration_has_many_forms(value, seconds):
    assert parse_duration(value) == timedelta(seconds=seconds)


def test_the_longest_time_span_of_dotnet_is_cut_to_microseconds():
    longest = parse_timespan("10675199.02:48:05.4775807")
    assert longest == timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_580)
    assert parse_timespan("-00:00:00.0000019") == -timedelta(microseconds=1)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            " ",
            "s",
            "soon",
            "5 apples",
            "5y",
            "1m1",
            "--5s",
            "+-5s",
            "-",
            "+",
            "P",
            "PT",
            "P1Y",
            "P1M",
            "pt90s",
        ),
        *(
            "1:30",
            ":",
            "00:00",
            "00:00:00:00",
            "1.00:00",
            "+00:01:30",
            "0:0:0",
            "00:01:30.12345678",
            "00:01:30".translate(ARABIC),
        ),
        *("nan", "inf", "-inf", "1e999", "9" * 400 + "d", "9999999999.00:00:00", "999999999d24h", "5s\n5"),
        *(
            None,
            True,
            False,
            float("nan"),
            float("inf"),
            float("-inf"),
            10**400,
            1e300,
            1j,
            b"5s",
            [5],
            {"s": 5},
        ),
        *(Ellipsis, datetime(2026, 3, 1), "x" * 10_000_000, "999999999.23:59:60"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_no_duration_is_refused_in_one_short_line(value):
    with pytest.raises(UsageError) as refused:
        parse_duration(value)
    text = str(refused.value)
    assert "\n" not in text
    assert len(text) < 250


@given(st.text(max_size=12) | st.text(alphabet="0123456789.:+-PTWDHMSsmhdw ", max_size=12))
@examples(100)
def test_any_text_is_a_duration_or_refused(text):
    try:
        parsed: object = parse_duration(text)
    except UsageError as refused:
        parsed = refused
    assert isinstance(parsed, timedelta) or len(str(parsed).splitlines()) == 1


class Timedelta(timedelta):
    """As pandas has one: a subclass with an arithmetic of its own."""

    def __add__(self, other):
        return NotImplemented


def test_a_subclass_of_timedelta_becomes_a_plain_one():
    parsed = parse_duration(Timedelta(seconds=5))
    assert type(parsed) is timedelta
    assert parsed == timedelta(seconds=5)
