"""Which rows go together: whole hours where they are few, pieces of an hour where they are many.

An entity-group transaction takes rows of one hour only, so an hour is kept together as long as a task can
hold it. A bucket is what one task stores, and what a resumed run skips: it depends on the data alone.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

#: Rows of one bucket, about.
ROWS_PER_BUCKET = 5_000


class HourBuckets(NamedTuple):
    """Where an hour's rows go: to `pieces` buckets from `first` on."""

    hour: str
    first: int
    pieces: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Buckets of a run."""

    hours: tuple[HourBuckets, ...]
    count: int
    rows: int
    #: Sum of `identity_column` over all rows.
    identities: int

    @property
    def fingerprint(self) -> str:
        """Tells whether a later look at the input planned the same."""
        digest = hashlib.blake2b(digest_size=8)
        for one in self.hours:
            digest.update(f"{one.hour},{one.first},{one.pieces};".encode())
        digest.update(f"{self.rows},{self.identities}".encode())
        return digest.hexdigest()


def plan(
    counts: Iterable[tuple[str, int]], *, rows_per_bucket: int = ROWS_PER_BUCKET, identities: int = 0
) -> Plan:
    """Buckets for so many rows in each hour, which are given in order."""
    hours: list[HourBuckets] = []
    first, held, total = 0, 0, 0
    for hour, count in counts:
        total += count
        pieces = -(-count // rows_per_bucket)
        if held and (pieces > 1 or held + count > rows_per_bucket):
            first, held = first + 1, 0
        hours.append(HourBuckets(hour, first, pieces))
        if pieces > 1:
            first += pieces
        else:
            held += count
    return Plan(tuple(hours), first + (1 if held else 0), total, identities)


def hour_column(due: Column) -> Column:
    """The hour of a due time, as partition keys write it; empty where the row tells none."""
    return f.coalesce(f.date_format(due, "yyyyMMddHH"), f.lit(""))


def identity_column(message: str) -> Column:
    """A hash of what makes a message the same one, in 32 bits, so that their sum over any rows is exact.

    Bodies and headers are not in it: they may hold what is not the same at the next look, like the time.
    """
    fields = ("message_id", "destination", "due_time", "due_text")
    return f.shiftright(f.xxhash64(*(f"{message}.{name}" for name in fields)), 32)


def with_buckets(frame: DataFrame, session: SparkSession, buckets: Plan) -> DataFrame:
    """The frame of messages (column `message`) with its bucket in column `bucket`."""
    hours = f.broadcast(session.createDataFrame(list(buckets.hours), "hour string, first int, pieces int"))
    piece = f.pmod(f.xxhash64("message.message_id", "message.destination"), f.col("pieces")).cast("int")
    return (
        frame.withColumn("hour", hour_column(f.col("message.due_time")))
        .join(hours, "hour")
        .withColumn("bucket", f.col("first") + piece)
        .drop("hour", "first", "pieces")
    )
