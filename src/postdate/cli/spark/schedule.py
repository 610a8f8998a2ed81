"""`postdate spark schedule`: files of messages become waiting rows, with many tasks."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from postdate.cli.command import Call, command, finish
from postdate.cli.render import note
from postdate.cli.spark.sessions import (
    DEFAULT_MASTER,
    FileFormat,
    Master,
    read_frame,
    spark_session,
    task_progress,
)


@command(
    name="spark schedule",
    prints="one object: `run`, `rows` (of the input), `stored`, `already_there` (of the stored), `repeated`, "
    "`refused`, `examples` (list of message id and reason), `checksum` (of the row keys), `buckets`, "
    "`resumed` (buckets that an earlier call had stored), `seconds`",
)
def schedule(
    call: Call,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files or folders of one format.")],
    run: Annotated[
        str | None, typer.Option(help="A name for this load; default: the name of the first file.")
    ] = None,
    file_format: FileFormat = None,
    select: Annotated[
        list[str] | None,
        typer.Option(help="A column, as Spark SQL: \"concat('trial-', id) as message_id\". Repeat it."),
    ] = None,
    quarantine: Annotated[
        Path | None, typer.Option(help="A folder for refused rows, as Parquet, with their reason.")
    ] = None,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Schedule the messages of files, many at once.

    Columns as the arguments of `schedule`: `destination`, `body`, `due_time` (with its zone) or `delay`
    (seconds), and where wanted `message_id`, `headers`, `expires_after`; others are ignored. Each becomes a
    waiting row, also if it is due at once. The same command again goes on where it was stopped, and stores
    nothing twice. Exit code 1 if a row was refused; the others are stored.
    """
    with spark_session(call, master) as (session, reference):
        from postdate.spark.scheduling import schedule as run_job  # noqa: PLC0415 - imports pyspark

        frame = read_frame(session, files, file_format, select or [])
        with task_progress(call, "scheduling") as progress:
            done = run_job(
                frame,
                reference,
                run=run or files[0].name,
                quarantine=None if quarantine is None else str(quarantine),
                progress=progress,
            )
    values = asdict(done)
    if call.out.json:
        call.out.line(values)
    else:
        call.out.record({name: value for name, value in values.items() if name != "examples"})
        for message_id, reason in done.examples:
            note(f"refused {message_id}: {reason}")
        if done.refused and quarantine is None:
            note("to get all refused rows with their reasons, run it again with --quarantine FOLDER")
    finish(ok=not done.refused)
