"""The job: reads due times of what waits (and destinations, where asked), and tells what is to come.

`Forecast.json` is a stable form: docs/how-to/spark-forecast.md tells each field. Fields may be added; the
`schema` changes when one goes or means something else.
"""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postdate.engine.handover import know_the_time
from postdate.model.keys import EPOCH
from postdate.spark import tasks
from postdate.spark.forecasting.frames import draining, load_by_hour, load_by_minute
from postdate.spark.ranges import DueWindow
from postdate.spark.reference import SettingsReference
from postdate.spark.running import Progress, run_action
from postdate.spark.tasks import opened
from postdate.spark.waiting import read_waiting

SCHEMA = "postdate.forecast/1"
#: Minutes that are listed one by one, from the first with messages on: a day of them.
MINUTES = 1_440
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Minute:
    """A minute's messages. Each is taken to be due when it begins."""

    minute: datetime
    messages: int
    #: Messages of earlier minutes that are still to be handed over when this one's turn comes.
    backlog: int
    #: When the last one is handed over.
    done_at: datetime
    #: From the minute's begin until then; 0: in time. Less than a minute too much, at most.
    late_seconds: float


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour's messages."""

    hour: datetime
    messages: int
    #: By destination; empty where destinations were not asked for.
    destinations: dict[str, int]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What waits, and how it drains."""

    schema: str
    endpoint: str
    #: By the service's clock.
    made_at: datetime
    #: Messages a second that a leader is taken to hand over.
    rate: float
    lookahead_seconds: float
    messages: int
    #: Of those: due before the minute in which it was made.
    overdue: int
    #: When the last one is handed over; None: nothing waits.
    drained_at: datetime | None
    #: From `made_at` until then.
    drain_seconds: float
    #: The minute with the most messages.
    busiest: Minute | None
    #: The minute whose last message is the latest.
    worst: Minute | None
    #: By destination; empty where they were not asked for.
    destinations: dict[str, int]
    hours: tuple[Hour, ...]
    #: The first of them.
    minutes: tuple[Minute, ...]

    def json(self) -> bytes:
        """As one JSON object; instants as text in UTC."""
        return msgspec.json.encode(asdict(self))


def forecast(
    session: SparkSession,
    settings: SettingsReference,
    *,
    rate: float,
    window: DueWindow | None = None,
    destinations: bool = True,
    progress: Progress | None = None,
) -> Forecast:
    """Tell what falls due when, and how it drains. Nothing is changed.

    Args:
        session: with our data sources, as `local_session` makes it.
        settings: where driver and tasks find the endpoint's settings.
        rate: messages a second.
        window: only what is due in it.
        destinations: without them only keys and due times are read.
        progress: told how many tasks have ended, of how many.

    Raises:
        UsageError: the rate is not above 0.
        StorageError: the table can't be read.
    """
    name, now, lookahead = tasks.run(partial(_present, settings))
    columns = ["due_time", "destination"] if destinations else ["due_time"]
    frame = read_waiting(session, settings, columns)
    load = load_by_minute(within(frame, window or DueWindow()), start=now, destinations=destinations)
    way_out = draining(load, rate=rate, start=now, lookahead=lookahead)
    load.persist()
    try:
        hours = run_action(session, partial(_hours, load), progress)
        found = run_action(session, partial(_summary, way_out, now), progress)
    finally:
        load.unpersist()
    totals: dict[str, int] = {}
    for hour in hours:
        for destination, messages in hour.destinations.items():
            totals[destination] = totals.get(destination, 0) + messages
    drained_at = found.pop("drained_at")
    return Forecast(
        schema=SCHEMA,
        endpoint=name,
        made_at=now,
        rate=rate,
        lookahead_seconds=lookahead.total_seconds(),
        drained_at=drained_at,
        drain_seconds=(drained_at - now).total_seconds() if drained_at else 0.0,
        destinations=dict(sorted(totals.items(), key=lambda one: (-one[1], one[0]))),
        hours=hours,
        **found,
    )


def within(frame: DataFrame, window: DueWindow) -> DataFrame:
    """Rows that a window holds; without a due time a row is due at once."""
    if window.start is not None:
        frame = frame.where(f.col("due_time") >= f.lit(window.start))
    if window.end is not None:
        frame = frame.where(f.col("due_time").isNull() | (f.col("due_time") < f.lit(window.end)))
    return frame


async def _present(settings: SettingsReference) -> tuple[str, datetime, timedelta]:
    async with opened(settings) as endpoint:
        await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
        return endpoint.settings.endpoint, endpoint.parts.clock.now(), endpoint.settings.lookahead


def _hours(load: DataFrame) -> tuple[Hour, ...]:
    frame = load_by_hour(load).withColumn("hour", f.unix_micros("hour"))
    hours: dict[int, Hour] = {}
    for row in frame.orderBy("hour").toLocalIterator():
        before = hours.get(row["hour"]) or Hour(_instant(row["hour"]), 0, {})
        split = dict(before.destinations)
        if "destination" in load.columns:
            split[row["destination"] or ""] = row["messages"]
        hours[row["hour"]] = Hour(before.hour, before.messages + row["messages"], split)
    return tuple(hours.values())


def _summary(way_out: DataFrame, now: datetime) -> dict[str, Any]:
    plain = way_out.withColumns({name: f.unix_micros(name) for name in ("minute", "done_at")})
    minute = f.struct("minute", "messages", "backlog", "done_at", "late_seconds")
    this_minute = int((now - EPOCH) / _MICROSECOND) // 60_000_000 * 60_000_000
    [row] = plain.agg(
        f.coalesce(f.sum("messages"), f.lit(0)).alias("messages"),
        f.coalesce(f.sum(f.when(f.col("minute") < this_minute, f.col("messages"))), f.lit(0)).alias(
            "overdue"
        ),
        f.max("done_at").alias("drained_at"),
        # Of minutes alike the first.
        f.max_by(minute, f.struct("messages", -f.col("minute"))).alias("busiest"),
        f.max_by(minute, f.struct("late_seconds", -f.col("minute"))).alias("worst"),
    ).collect()
    first = plain.orderBy("minute").limit(MINUTES).collect()
    return {
        "messages": row["messages"],
        "overdue": row["overdue"],
        "drained_at": None if row["drained_at"] is None else _instant(row["drained_at"]),
        "busiest": None if row["busiest"] is None else _minute(row["busiest"]),
        "worst": None if row["worst"] is None else _minute(row["worst"]),
        "minutes": tuple(map(_minute, first)),
    }


def _minute(row: Any) -> Minute:
    return Minute(
        _instant(row["minute"]),
        row["messages"],
        row["backlog"],
        _instant(row["done_at"]),
        row["late_seconds"],
    )


def _instant(micros: int) -> datetime:
    return EPOCH + micros * _MICROSECOND
