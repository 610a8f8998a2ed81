"""`postdate spark snapshot`, `snapshots` and `restore`: what waits, as Parquet, and back."""

from dataclasses import asdict
from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.spark.sessions import DEFAULT_MASTER, Master, spark_session, task_progress
from postdate.cli.times import End, Start, window
from postdate.errors import UsageError

_MANIFEST = (
    "`schema` (`postdate.snapshot/1`), `snapshot` (its name), `base`, `endpoint`, `table`, `began_at`, "
    "`ended_at`, `rows`, `written`, `removed`, `unreadable`, `large_bodies`, `payloads`, `checksum`"
)
Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A folder, or a path that Spark can write to.")]


@command(name="spark snapshot", prints=f"one object: {_MANIFEST}")
def snapshot(
    call: Call,
    folder: Folder,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Large bodies too, out of their blobs.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="All rows, not only what changed.")] = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Write what waits to a folder, as Parquet by due day; the next time only what changed.

    The table is only read. Rows are read while the endpoint works on: each is as it was at some instant
    between `began_at` and `ended_at`.
    """
    with spark_session(call, master) as (session, reference):
        from postdate.spark.snapshots import snapshot as run_job  # noqa: PLC0415 - imports pyspark

        with task_progress(call, "writing") as progress:
            told = run_job(session, reference, folder, payloads=payloads, whole=whole, progress=progress)
    call.out.record(asdict(told))


@command(name="spark snapshots", prints=f"one object per line, oldest first: {_MANIFEST}")
def snapshots(call: Call, folder: Folder, master: Master = DEFAULT_MASTER) -> None:
    """List the snapshots in a folder."""
    with spark_session(call, master) as (session, _):
        from postdate.spark.snapshots import snapshots as found_in  # noqa: PLC0415 - imports pyspark

        found = found_in(session, folder)
    if call.out.json:
        for one in found:
            call.out.line(asdict(one))
    elif not found:
        call.out.text("there is no snapshot in this folder")
    else:
        rows = [(one.snapshot, one.rows, one.written, one.removed, one.base or "-") for one in found]
        call.out.lines([("snapshot", "rows", "written", "removed", "base"), *rows], head=True)


@command(
    name="spark restore",
    prints="one object: `snapshot`, `began_at` (of the snapshot), `rows` (of the snapshot), `restored`, "
    "`already_there`, `left_out` (by the log), `payloads`, `seconds`",
)
def restore(
    call: Call,
    folder: Folder,
    snapshot: Annotated[str | None, typer.Option(help="Its name; default: the newest.")] = None,
    where: Annotated[
        str | None, typer.Option(help="A condition in Spark's SQL: \"headers['tenant'] = 'a'\".")
    ] = None,
    start: Start = None,
    end: End = None,
    destination: Annotated[str | None, typer.Option(help="Only messages for this destination.")] = None,
    log: Annotated[
        str | None,
        typer.Option(help="A delivery log as Parquet: what it says is gone since is left out."),
    ] = None,
    own_log: Annotated[bool, typer.Option("--own-log", help="The same by the endpoint's own log.")] = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Insert a snapshot's rows where they are missing; rows that are there are left alone.

    Without a log, what was handed over or cancelled since the snapshot comes back and is delivered (again).
    The same command again changes nothing, unless rows were handed over meanwhile.
    """
    if log is not None and own_log:
        raise UsageError(f"--log {log} and --own-log: one log tells what is gone; leave the other out")
    since, until = window(start, end)
    with spark_session(call, master) as (session, reference):
        from postdate.spark.failures import told_in_one_line  # noqa: PLC0415 - imports pyspark
        from postdate.spark.ranges import DueWindow  # noqa: PLC0415
        from postdate.spark.snapshots import restore as run_job  # noqa: PLC0415
        from postdate.spark.snapshots.restoring import Chosen  # noqa: PLC0415

        with told_in_one_line():
            ended = None if log is None else session.read.parquet(log)
        if own_log:
            ended = session.read.format("postdate.log").options(**reference.options()).load()
        with task_progress(call, "restoring") as progress:
            told = run_job(
                session,
                reference,
                folder,
                snapshot=snapshot,
                chosen=Chosen(where, DueWindow(since, until), destination),
                log=ended,
                progress=progress,
            )
    call.out.record(asdict(told))
