"""Due times: aware, in the years that can be stored, and exact; everything else is refused at the door."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import MICROSECOND, due_times, examples

from postdate.errors import InvalidDueTime
from postdate.model.durations import check_due_time, due_after, parse_instant_text
from postdate.model.headers import format_instant, parse_instant
from postdate.model.limits import EARLIEST_DUE, LATEST_DUE

NOW = datetime(2026, 3, 1, 7, 8, 9, 987654, tzinfo=UTC)
zones = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(
    lambda offset: timezone(timedelta(minutes=offset // timedelta(minutes=1)))
)


class Timestamp(datetime):
    """As pandas has one: a subclass."""


@given(due_times, zones)
@examples(40)
def test_a_due_time_is_the_same_instant_in_utc(due_at, zone):
    try:
        local = due_at.astimezone(zone)
    except OverflowError:
        return
    checked = check_due_time(local)
    assert checked == due_at
    assert checked.tzinfo is UTC


@given(due_times)
@examples(25)
def test_an_instant_is_read_back_as_headers_and_the_command_line_write_it(due_at):
    assert parse_instant(format_instant(due_at)) == due_at
    assert len(format_instant(due_at)) == 28
    assert parse_instant_text(due_at.isoformat()) == due_at
    assert parse_instant_text(f" {due_at.isoformat().replace('+00:00', 'Z')} ") == due_at


def test_a_subclass_becomes_a_plain_datetime():
    checked = check_due_time(Timestamp(2026, 3, 1, 8, 8, 9, 987654, tzinfo=timezone(timedelta(hours=1))))
    assert type(checked) is datetime
    assert checked == NOW


def test_the_first_and_last_instant_that_can_be_stored_are_taken_and_no_more():
    assert check_due_time(EARLIEST_DUE) == EARLIEST_DUE
    assert check_due_time(LATEST_DUE - MICROSECOND) == LATEST_DUE - MICROSECOND
    for beyond in (EARLIEST_DUE - MICROSECOND, LATEST_DUE):
        with pytest.raises(InvalidDueTime, match="years 1601 to 9998"):
            check_due_time(beyond)


@pytest.mark.parametrize(
    "instant",
    [
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 1, 1, tzinfo=UTC),
    ],
)
def test_instants_at_the_ends_of_the_calendar_are_refused(instant):
    refused(check_due_time, instant, "can't be stored")


def test_a_naive_instant_is_refused_with_the_way_out():
    refused(check_due_time, datetime(2026, 3, 1), "has no time zone; pass an aware datetime")


class Broken(timezone.__base__):
    """A zone that does not know its offset."""

    def utcoffset(self, dt):
        return None


def test_a_zone_without_an_offset_is_as_good_as_none():
    refused(check_due_time, NOW.replace(tzinfo=Broken()), "has no time zone")


@pytest.mark.parametrize("value", [None, 5, "2026-03-01T00:00:00Z", date(2026, 3, 1), object(), NOW.time()])
def test_what_is_no_datetime_is_refused(value):
    refused(check_due_time, value, "must be an aware datetime, not")


@pytest.mark.parametrize(
    "text",
    ["", "now", "tomorrow", "2026", "2026-13-01T00:00:00Z", "1\n2", "x" * 10_000_000],
    ids=lambda t: t[:9],
)
def test_a_text_that_is_no_instant_is_refused(text):
    refused(parse_instant_text, text, "is not an instant; write ISO 8601")


@pytest.mark.parametrize("text", ["2026-03-01", "2026-03-01T07:08:09", "20260301T070809"])
def test_a_text_without_a_zone_is_refused(text):
    refused(parse_instant_text, text, "has no time zone")


@pytest.mark.parametrize("delay", [0, -1, "-5s", timedelta(days=-1), timedelta.min, 0.0, "0"])
def test_no_delay_or_a_negative_one_means_now(delay):
    assert due_after(delay, NOW) == NOW


@pytest.mark.parametrize(
    ("delay", "seconds"), [(1, 1), (0.25, 0.25), ("1m", 60), (timedelta(hours=1), 3600), ("PT1H", 3600)]
)
def test_a_delay_counts_from_now(delay, seconds):
    assert due_after(delay, NOW) == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "delay", [timedelta.max, timedelta(days=2_913_000), "3000000d", 2.6e11, "2912200.00:00:00"]
)
def test_a_delay_that_leads_out_of_the_calendar_is_refused(delay):
    refused(lambda d: due_after(d, NOW), delay, "9998")


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), "soon", None, True, object(), NOW, 10**400])
def test_what_is_no_delay_is_refused_as_a_due_time_is(delay):
    refused(lambda d: due_after(d, NOW), delay, "^delay .* is not a duration")


def refused(check, value, why):
    with pytest.raises(InvalidDueTime, match=why) as error:
        check(value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250
