"""Job `forecast`: counts by minute, hour and destination, and the way out, of a real table."""

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as f

from postdate import Outgoing
from postdate.errors import ConfigurationError, UsageError
from postdate.spark.forecasting import forecast
from postdate.spark.forecasting.frames import draining, load_by_hour, load_by_minute
from postdate.spark.forecasting.plot import plot
from postdate.spark.ranges import DueWindow
from postdate.spark.waiting import read_waiting

FIRST = datetime(2040, 1, 1, 7, 59, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def frame_of(spark, rows):
    return spark.createDataFrame(rows, "due_time timestamp, destination string")


def micros(frame, *names):
    return frame.withColumns({name: f.unix_micros(name) for name in names}).collect()


def unix(instant):
    return int(instant.timestamp() * 1_000_000)


def test_the_load_is_counted_whatever_the_zone_of_the_session(spark):
    rows = [(FIRST, "a"), (FIRST + timedelta(seconds=59.999999), "a"), (FIRST + MINUTE, "b"), (None, "b")]
    zone = spark.conf.get("spark.sql.session.timeZone")
    frame = frame_of(spark, rows)
    load = load_by_minute(frame, start=FIRST - MINUTE)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")  # 5 h 45 min off
    try:
        minutes = {(r.minute, r.destination): r.messages for r in micros(load, "minute")}
        hours = {(r.hour, r.destination): r.messages for r in micros(load_by_hour(load), "hour")}
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    hour = unix(FIRST.replace(minute=0))
    assert minutes == {(unix(FIRST), "a"): 2, (unix(FIRST + MINUTE), "b"): 1, (unix(FIRST - MINUTE), "b"): 1}
    assert hours == {(hour, "a"): 2, (hour, "b"): 1, (hour + 3_600_000_000, "b"): 1}


def test_a_burst_drains_at_the_rate_and_what_comes_meanwhile_waits(spark):
    rows = [(FIRST, "a")] * 120 + [(FIRST + MINUTE, "b")] * 30
    load = load_by_minute(frame_of(spark, rows), start=FIRST - MINUTE)
    way_out = draining(load, rate=1, start=FIRST - MINUTE, lookahead=timedelta(seconds=30))
    first, second = micros(way_out.orderBy("minute"), "minute", "done_at")
    # From 30 s before on, one a second.
    assert (first.messages, first.backlog, first.late_seconds) == (120, 0, 90.0)
    assert first.done_at == unix(FIRST + timedelta(seconds=90))
    assert (second.messages, second.backlog, second.late_seconds) == (30, 60, 60.0)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(spark, rate):
    load = load_by_minute(frame_of(spark, []), start=FIRST)
    with pytest.raises(UsageError, match="write messages per second, above 0"):
        draining(load, rate=rate, start=FIRST, lookahead=timedelta(0))


def test_a_frame_without_the_column_is_refused(spark):
    with pytest.raises(UsageError, match="column destination is missing; there are due_time"):
        load_by_minute(frame_of(spark, []).drop("destination"), start=FIRST)


def test_without_destinations_nothing_but_the_due_time_is_asked_for(spark, reference):
    load = load_by_minute(read_waiting(spark, reference, ["due_time"]), start=FIRST, destinations=False)
    plan = load._jdf.queryExecution().executedPlan().toString()
    (scan,) = [line for line in plan.splitlines() if "BatchScan" in line]
    assert "due_time" in scan
    for column in ("destination", "body", "headers", "message_id"):
        assert column not in scan


def test_the_forecast_of_a_table(spark, reference, schedule, tmp_path):
    schedule(
        [Outgoing("target", {"n": n}, at=FIRST + n % 3 * MINUTE, message_id=f"m{n}") for n in range(60)]
        + [Outgoing("target", {"n": n}, at=FIRST + timedelta(days=400), message_id=f"x{n}") for n in range(5)]
    )
    told = forecast(spark, reference, rate=0.5)
    assert (told.messages, told.overdue, told.destinations) == (65, 0, {"target": 65})
    assert [(h.hour, h.messages) for h in told.hours] == [
        (FIRST.replace(minute=0), 20),
        (FIRST + MINUTE, 40),
        ((FIRST + timedelta(days=400)).replace(minute=0), 5),
    ]
    assert [one.messages for one in told.minutes] == [20, 20, 20, 5]
    assert told.busiest == told.minutes[0]
    # 60 messages take 120 s from 30 s (the lookahead) before the first; the last minute begins 120 s later.
    assert told.lookahead_seconds == 30
    assert told.worst.minute == FIRST
    assert told.worst.late_seconds == 10.0
    assert told.drained_at == told.minutes[-1].done_at == FIRST + timedelta(days=400, seconds=-20)
    one_hour = forecast(spark, reference, rate=10, window=DueWindow(end=FIRST + MINUTE), destinations=False)
    assert (one_hour.messages, one_hour.destinations) == (20, {})
    values = json.loads(told.json())
    assert values["schema"] == "postdate.forecast/1"
    assert values["minutes"][0]["minute"] == "2040-01-01T07:59:00Z"
    picture = tmp_path / "load.png"
    plot(told, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_empty_table_has_no_worst_minute(spark, reference):
    told = forecast(spark, reference, rate=1)
    assert (told.messages, told.worst, told.drained_at, told.minutes) == (0, None, None, ())


def test_a_plot_without_matplotlib_is_told_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r"matplotlib is not installed.*postdate\[spark\]"):
        plot(None, tmp_path / "x.png")
