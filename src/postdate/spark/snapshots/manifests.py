"""Manifests of snapshots: a snapshot is there when its manifest is, and that is written last.

    <folder>/rows/snapshot=<id>/due_day=2040-01-01/*.parquet    what it adds
    <folder>/manifests/<id>/                                    one line of JSON

Both go wherever Spark can write: a folder, or a path like abfss://container@account.dfs.core.windows.net/x.
"""

from dataclasses import asdict, dataclass
from datetime import datetime

import msgspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from postdate.errors import UsageError
from postdate.spark.failures import translated
from postdate.spark.snapshots.frames import GONE, PIECES, checksum

SCHEMA = "postdate.snapshot/1"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a snapshot is."""

    schema: str
    #: Its name: the instant, so that names sort by time.
    snapshot: str
    #: The snapshot of which it holds the difference; None: it is whole.
    base: str | None
    endpoint: str
    table: str
    #: When reading began and ended, by the service's clock. Each row is as it was at some instant between.
    began_at: datetime
    ended_at: datetime
    #: Rows that waited.
    rows: int
    #: Of those, new or changed since the base, and so in its own files.
    written: int
    #: Rows of the base that went: handed over, cancelled, moved.
    removed: int
    #: Of the written: rows that can't be read as messages.
    unreadable: int
    #: Of the written: large bodies, and how many of them are in the files.
    large_bodies: int
    payloads: int
    #: Of its own files: see `frames.checksum`.
    checksum: str


def snapshots(session: SparkSession, folder: str) -> list[Manifest]:
    """The snapshots in a folder, oldest first; none where there is no such folder.

    Raises:
        UsageError: a manifest can't be read.
    """
    try:
        lines = session.read.text(f"{folder.rstrip('/')}/manifests/*").collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return []
        raise translated(str(error)) from error
    except PySparkException as error:
        raise translated(str(error)) from error
    try:
        found = [msgspec.json.decode(line["value"], type=Manifest) for line in lines]
    except msgspec.MsgspecError as error:
        raise UsageError(f"{folder}: a manifest is no manifest of a snapshot: {error}") from None
    return sorted(found, key=lambda one: one.snapshot)


def write_manifest(session: SparkSession, folder: str, manifest: Manifest) -> None:
    """From now on the snapshot is there."""
    line = msgspec.json.encode(asdict(manifest)).decode()
    frame = session.createDataFrame([(line,)], "value string").coalesce(1)
    frame.write.mode("error").text(f"{folder}/manifests/{manifest.snapshot}")


def chain_of(found: list[Manifest], snapshot: str | None, folder: str) -> list[Manifest]:
    """A snapshot and all that it is based on, oldest first.

    Args:
        found: of `snapshots`.
        snapshot: its name; None: the newest.
        folder: for what is told.

    Raises:
        UsageError: there is no such snapshot, or one that it is based on is missing.
    """
    if not found:
        raise UsageError(f"{folder}: there is no snapshot in this folder")
    by_name = {one.snapshot: one for one in found}
    chain: list[Manifest] = []
    name: str | None = snapshot or found[-1].snapshot
    while name is not None:
        if name not in by_name:
            what = "there is no snapshot" if not chain else f"snapshot {chain[-1].snapshot} needs"
            raise UsageError(f"{folder}: {what} {name}; there are {', '.join(by_name)}")
        chain.append(by_name[name])
        name = by_name[name].base
    return chain[::-1]


def pieces_of(session: SparkSession, folder: str, names: list[str]) -> DataFrame:
    """What the snapshots of these names have added, as `frames.PIECES`."""
    rows = f"{folder}/rows"
    paths = [f"{rows}/snapshot={name}" for name in names]
    return session.read.schema(PIECES).option("basePath", rows).parquet(*paths)


def check_pieces(session: SparkSession, folder: str, chain: list[Manifest]) -> None:
    """Read all that a restore needs, and compare it with the manifests.

    Raises:
        UsageError: files are missing, changed, or lack a column.
    """
    pieces = pieces_of(session, folder, [one.snapshot for one in chain])
    sums = pieces.groupBy("snapshot").agg(
        checksum().alias("checksum"),
        f.count_if(~f.col(GONE)).alias("written"),
        f.count_if(f.col(GONE)).alias("removed"),
    )
    found = {row["snapshot"]: row for row in sums.collect()}
    for one in chain:
        row = found.get(one.snapshot)
        told = (row["written"], row["removed"], row["checksum"]) if row else (0, 0, "0")
        if told != (one.written, one.removed, one.checksum):
            raise UsageError(
                f"{folder}: snapshot {one.snapshot} is damaged: its files hold {told[0]:,} rows and "
                f"{told[1]:,} marks with checksum {told[2]}, its manifest says {one.written:,}, "
                f"{one.removed:,} and {one.checksum}; nothing was restored"
            )
