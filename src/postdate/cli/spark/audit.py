"""`postdate spark audit`: what was scheduled against what happened."""

from dataclasses import asdict
from datetime import timedelta
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
from postdate.cli.times import optional_instant
from postdate.errors import UsageError
from postdate.model.durations import parse_duration


@command(
    name="spark audit",
    prints="one object: `ok` (nothing is lost, early or at a wrong destination), `as_of`, `messages`, "
    "`verdicts` (count by verdict), `overdue` (of those that wait), `late_after_s`, `log_records`, "
    "`log_gaps` (records that could not be written), `log_unreadable`, `error_queue_complete`, `lateness` "
    "(list of `by`, `group`, `deliveries`, `p50_s`, `p90_s`, `p99_s`, `max_s`), `examples` (a few of "
    "each defect), `seconds`",
)
def audit(
    call: Call,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="What was scheduled; default: what the log says."),
    ] = None,
    file_format: FileFormat = None,
    select: Annotated[
        list[str] | None,
        typer.Option(help="A column, as Spark SQL: \"concat('trial-', id) as message_id\". Repeat it."),
    ] = None,
    since: Annotated[str | None, typer.Option(help="Records from before this instant are not read.")] = None,
    late_after: Annotated[str, typer.Option(help="More than this is late: 5, 1m30s, PT90S.")] = "5s",
    html: Annotated[Path | None, typer.Option(help="A file for the report, with plots.")] = None,
    verdicts: Annotated[
        Path | None, typer.Option(help="A folder for the verdict of each message, as Parquet.")
    ] = None,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Reconcile what was scheduled with the delivery log, the waiting rows and the error queue.

    The processes of the endpoint must keep a delivery log: setting POSTDATE_DELIVERY_LOG. Files need the
    columns `message_id`, `destination` and `due_time` (with its zone), as those for `spark schedule`. Exit
    code 1 if a message is lost, early or at a wrong destination.
    """
    limit, start = _limit(late_after), optional_instant(since)
    with spark_session(call, master) as (session, reference):
        from postdate.spark.auditing import Reading  # noqa: PLC0415 - imports pyspark
        from postdate.spark.auditing import audit as run_job  # noqa: PLC0415

        expected = read_frame(session, files, file_format, select or []) if files else None
        reading = Reading(
            since=start,
            late_after=limit,
            verdicts=None if verdicts is None else str(verdicts),
            html=html,
        )
        with task_progress(call, "auditing") as progress:
            done = run_job(session, reference, expected, reading, progress=progress)
    if call.out.json:
        call.out.line(asdict(done))
    else:
        call.out.record(
            {"audit": "passed" if done.ok else "failed", "messages": done.messages, **done.verdicts}
        )
        call.out.table(
            ("lateness in s", "deliveries", "p50", "p90", "p99", "max"),
            [
                (one.group, one.deliveries, one.p50_s, one.p90_s, one.p99_s, one.max_s)
                for one in done.lateness
                if one.by in ("all", "destination")
            ],
        )
        for one in done.examples:
            call.out.text(f"{one.verdict}: {one.message_id} for {one.destination}")
        for remark in done.remarks():
            note(remark)
    finish(ok=done.ok)


def _limit(text: str) -> timedelta:
    limit = parse_duration(text)
    if limit < timedelta(0):
        raise UsageError(f"--late-after {text}: must not be less than zero")
    return limit
