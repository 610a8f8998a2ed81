"""How late messages were: percentiles by destination, hour and term. A function on frames."""

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

#: Exact up to so many different values in a group, and near to it beyond.
_ACCURACY = 10_000
#: Groups of one kind that are told; the busiest ones.
_GROUPS = 200
KINDS = ("all", "destination", "hour", "term")


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of one group of deliveries: seconds between due time and being shown."""

    #: all, destination, hour (of the due time) or term.
    by: str
    #: Which one; a term is "none" where the sender put the message into its queue itself.
    group: str
    deliveries: int
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float


def lateness(verdicts: DataFrame) -> list[Lateness]:
    """By what `reconcile` returned; `all` first, then each kind in the order of its groups."""
    found = grouped(verdicts).collect()
    told = sorted((_told(row) for row in found), key=lambda one: -one.deliveries)
    kept = [one for kind in KINDS for one in [one for one in told if one.by == kind][:_GROUPS]]
    return sorted(kept, key=lambda one: (KINDS.index(one.by), one.by == "term", _order(one)))


def grouped(verdicts: DataFrame) -> DataFrame:
    """Percentiles of all, and of each destination, hour and term, in one pass."""
    deliveries = verdicts.select("destination", f.explode("pairs").alias("pair")).select(
        "destination",
        f.date_trunc("hour", "pair.due_time").alias("hour"),
        f.col("pair.term").alias("term"),
        f.col("pair.lateness_s").alias("lateness_s"),
    )
    columns = [f.col(name) for name in KINDS[1:]]
    return deliveries.groupingSets([[], *([one] for one in columns)], *columns).agg(
        f.grouping_id().alias("set"),
        f.count("*").alias("deliveries"),
        f.percentile_approx("lateness_s", [0.5, 0.9, 0.99], _ACCURACY).alias("percentiles"),
        f.max("lateness_s").alias("most"),
    )


def _told(row: Row) -> Lateness:
    # A bit for each column that is not grouped by, the first one the highest.
    kind = {0b011: "destination", 0b101: "hour", 0b110: "term"}.get(row["set"], "all")
    value = None if kind == "all" else row[kind]
    if isinstance(value, datetime):
        group = value.astimezone(UTC).strftime("%Y-%m-%dT%H:00Z")
    else:
        group = "all" if kind == "all" else "none" if value is None else str(value)
    p50, p90, p99 = row["percentiles"]
    return Lateness(kind, group, row["deliveries"], p50, p90, p99, row["most"])


def _order(one: Lateness) -> tuple[int, str]:
    return (int(one.group) if one.by == "term" and one.group.isdecimal() else 0, one.group)
