"""What a snapshot holds, as functions on frames; nothing is read or written here.

A folder holds pieces: each snapshot adds the rows that are new or changed since the one it is based on, and a
mark (`gone`) for each row that went. The newest piece of a key counts.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from postdate.spark.snapshots.entities import ENTITIES

KEYS = ("partition_key", "row_key")
GONE, DAY, SNAPSHOT = "gone", "due_day", "snapshot"
#: Of rows that tell no due time.
NO_DAY = "none"
PIECES = StructType(
    [
        *ENTITIES.fields,
        StructField(GONE, BooleanType()),
        StructField(SNAPSHOT, StringType()),
        StructField(DAY, StringType()),
    ]
)
_DAY_MICROS = 86_400_000_000


def waiting(pieces: DataFrame, *, several: bool = True) -> DataFrame:
    """The rows that waited at the newest snapshot of these pieces.

    Args:
        pieces: of one snapshot and of all that it is based on.
        several: whether there are several; one alone has each key once.
    """
    if several:
        newest = Window.partitionBy(*KEYS).orderBy(f.desc(SNAPSHOT), f.asc(GONE))
        pieces = pieces.withColumn("_place", f.row_number().over(newest)).where("_place = 1").drop("_place")
    return pieces.where(~f.col(GONE))


def gone(before: DataFrame, present: DataFrame) -> DataFrame:
    """Marks for rows that waited before and are not there any more.

    Args:
        before: columns of `KEYS`, `etag`, `due_time`.
        present: columns of `KEYS`.
    """
    went = before.join(present, list(KEYS), "left_anti")
    return went.select(
        *[
            f.col(one.name)
            if one.name in (*KEYS, "etag", "due_time")
            else f.lit(None).cast(one.dataType).alias(one.name)
            for one in ENTITIES.fields
        ],
        f.lit(True).alias(GONE),
    )


def changed(present: DataFrame, before: DataFrame) -> DataFrame:
    """Rows that are new, or whose version (etag) is another one than before."""
    return present.join(before.select(*KEYS, "etag"), [*KEYS, "etag"], "left_anti").withColumn(
        GONE, f.lit(False)
    )


def due_day() -> Column:
    """The day in UTC in which a row falls due, whatever the session's zone, as text."""
    days = f.floor(f.unix_micros("due_time") / _DAY_MICROS).cast("int")
    return f.coalesce(f.date_add(f.lit("1970-01-01").cast("date"), days).cast("string"), f.lit(NO_DAY))


def checksum() -> Column:
    """Over all that is needed to write the rows again: the sum of their hashes, which depends on no order."""
    said = [f.col(name) for name in (*KEYS, "etag", "entity")]
    said += [f.col(GONE).cast("string"), *(f.md5(f.col(name)) for name in ("body", "payload"))]
    # A null has to differ from an empty text, and no value may run into the next.
    text = f.to_json(f.array(*[f.coalesce(f.sha1(one), f.lit("-")) for one in said]))
    part = f.conv(f.substring(f.md5(text), 1, 15), 16, 10).cast("decimal(38,0)")
    return f.coalesce(f.sum(part), f.lit(0)).cast("string")
