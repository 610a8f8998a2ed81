"""`postdate spark migrate …`: old timeouts become waiting rows, with many tasks; and back."""

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postdate.cli.command import Call, command, finish
from postdate.cli.render import note
from postdate.cli.spark.sessions import DEFAULT_MASTER, Master, needs_spark, spark_session, task_progress
from postdate.cli.times import optional_instant
from postdate.errors import UsageError
from postdate.legacy.ground import Selection
from postdate.model.durations import parse_duration

if TYPE_CHECKING:
    from postdate.spark.migrating import AzureSource, Migrated, SqlSource

Run = Annotated[str, typer.Option(help="The name of the migration.")]
SourceName = Annotated[
    str, typer.Option("--source", help="azure, sqlite, postgresql, sqlserver, mysql or oracle.")
]
Database = Annotated[
    str,
    typer.Option(
        help="A file (sqlite), or what libpq takes, without a password: service=orders. env:NAME: an "
        "environment variable holds it, where tasks run."
    ),
]
Connect = Annotated[
    str, typer.Option(help="module:function that tasks import; it returns an open DB-API connection.")
]
Schema = Annotated[str | None, typer.Option("--schema", help="Of the timeout table; default: public or dbo.")]
Prefix = Annotated[
    str | None, typer.Option(help="Of the timeout table's name; default: the endpoint's, Contoso_Orders_.")
]
DueFrom = Annotated[
    str | None, typer.Option("--from", help="Only what is due at or after this instant, with its zone.")
]
Margin = Annotated[
    str,
    typer.Option(
        help="What is due sooner than this stays with the timeout manager, which may be releasing it. 0 "
        "moves that too: only where no timeout manager runs any more."
    ),
]
KeepBodies = Annotated[
    bool,
    typer.Option(
        "--keep-bodies",
        help="With Azure tables: leave old bodies in their container, where nothing points to them any more. "
        "That is up to a quarter of the requests less; delete the container when no endpoint uses it.",
    ),
]
_PRINTS = (
    "one object: `run`, `phase`, `staged` (timeouts taken; in a preview: that would be), `moved`, `expected` "
    "and `found` (rows), `delivered` (rows that a leader took since), `checksum_staged`, "
    "`checksum_expected`, `checksum_found`, `given_back`, `kept`, `refused`, `too_soon`, "
    "`possible_duplicates`, `examples` (list of id and reason), `parts`, `parts_completed`, `seconds`"
)


@command(name="spark migrate preview", prints=_PRINTS)
def preview(
    call: Call,
    source: SourceName = "azure",
    database: Database = "",
    connect: Connect = "",
    schema: Schema = None,
    prefix: Prefix = None,
    due_from: DueFrom = None,
    margin: Margin = "5m",
    master: Master = DEFAULT_MASTER,
) -> None:
    """Tell what a migration would move, and what not; change nothing.

    Exit code 1 if something can't be moved.
    """
    chosen = _selection(due_from, margin)
    with spark_session(call, master) as (session, reference):
        from postdate.spark.migrating import preview as run_job  # noqa: PLC0415 - imports pyspark

        found = _source(source, database, connect, schema, prefix)
        with task_progress(call, "looking") as progress:
            told = run_job(session, reference, found, selection=chosen, progress=progress)
    _tell(call, told)
    finish(ok=not told.refused)


@command(name="spark migrate run", prints=_PRINTS)
def migrate(
    call: Call,
    run: Run,
    source: SourceName = "azure",
    database: Database = "",
    connect: Connect = "",
    schema: Schema = None,
    prefix: Prefix = None,
    due_from: DueFrom = None,
    margin: Margin = "5m",
    keep_bodies: KeepBodies = False,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Make waiting rows of old timeouts.

    Takes them out of the timeout manager's sight part by part, stages them, makes their rows, and compares
    counts and checksums. The same command again goes on, and moves nothing twice; `abort` gives back what is
    not completed. What can't be moved stays where it is. Exit code 1 if something can't be moved.
    """
    chosen = _selection(due_from, margin)
    with spark_session(call, master) as (session, reference):
        from postdate.spark.migrating import migrate as run_job  # noqa: PLC0415 - imports pyspark

        found = _keeping(_source(source, database, connect, schema, prefix), keep_bodies=keep_bodies)
        with task_progress(call, "migrating") as progress:
            told = run_job(session, reference, found, run=run, selection=chosen, progress=progress)
    _tell(call, told)
    finish(ok=told.verified and not told.refused)


@command(name="spark migrate abort", prints=_PRINTS)
def abort(call: Call, run: Run, master: Master = DEFAULT_MASTER) -> None:
    """Give back what a migration took and did not complete.

    Parts that are completed stay rows. Repeat it as you like.
    """
    with spark_session(call, master) as (session, reference):
        from postdate.spark.migrating import abort as run_job  # noqa: PLC0415 - imports pyspark

        with task_progress(call, "giving back") as progress:
            told = run_job(session, reference, run=run, progress=progress)
    _tell(call, told)
    if told.phase == "completed":
        note("the migration is completed, so nothing was given back")


@command(
    name="spark migrate status",
    prints="one object: `run`, `phase` (pending, completed, aborting, aborted), `source`, `due_from`, "
    "`began_at`, `parts`, `parts_staged`, `parts_completed`, `parts_given_back`, and of the parts that are "
    "not pending `staged`, `moved`, `delivered`, `given_back`, `refused`, `possible_duplicates`",
)
def status(call: Call, run: Run) -> None:
    """Tell how far a migration came. Starts no Spark."""
    with needs_spark():
        from postdate.spark.migrating import status as look  # noqa: PLC0415 - imports pyspark
        from postdate.spark.reference import shared_with_tasks  # noqa: PLC0415 - as above

    with shared_with_tasks(call.settings()) as reference:
        told = look(reference, run=run)
    names = ("staged", "moved", "delivered", "given_back", "refused")
    counts = {name: getattr(told.total, name) for name in names}
    values = {name: value for name, value in asdict(told).items() if name != "total"}
    values |= {**counts, "possible_duplicates": told.total.doubtful}
    call.out.line(values) if call.out.json else call.out.record(values)


def _selection(due_from: str | None, margin: str) -> Selection:
    try:
        length = parse_duration(margin)
    except UsageError as error:
        raise UsageError(f"--margin {error}") from None
    if length < timedelta(0):
        raise UsageError(f"--margin {margin!r} must not be negative")
    return Selection(optional_instant(due_from), length)


def _source(
    name: str, database: str, connect: str, schema: str | None, prefix: str | None
) -> "AzureSource | SqlSource":
    from postdate.spark.migrating import AzureSource, SqlSource  # noqa: PLC0415 - imports pyspark

    if name != "azure":
        kind, _, variable = database.partition(":")
        held = variable if kind == "env" else ""
        return SqlSource(name, "" if held else database, held, connect, schema, prefix).check()
    if database or connect or schema or prefix is not None:
        raise UsageError("--source azure takes no database; for SQL give --source postgresql, for example")
    return AzureSource()


def _keeping(source: "AzureSource | SqlSource", *, keep_bodies: bool) -> "AzureSource | SqlSource":
    from postdate.spark.migrating import AzureSource  # noqa: PLC0415 - imports pyspark

    if not keep_bodies:
        return source
    if not isinstance(source, AzureSource):
        raise UsageError("--keep-bodies is for --source azure; tables of SQL keep bodies in their rows")
    return AzureSource(keep_bodies=True)


def _tell(call: Call, told: "Migrated") -> None:
    values: dict[str, Any] = asdict(told)
    if call.out.json:
        call.out.line(values)
        return
    call.out.record({name: value for name, value in values.items() if name != "examples"})
    for timeout_id, reason in told.examples:
        note(f"timeout {timeout_id}: {reason}")
