"""`postdate spark forecast`: what falls due when, and how long it takes."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from postdate.cli.command import Call, command
from postdate.cli.render import note
from postdate.cli.spark.sessions import DEFAULT_MASTER, Master, spark_session, task_progress
from postdate.cli.times import End, Start, window


@command(
    name="spark forecast",
    prints="one object: `schema` (`postdate.forecast/1`), `endpoint`, `made_at`, `rate`, "
    "`lookahead_seconds`, `messages`, `overdue`, `drained_at`, `drain_seconds`, `busiest` and `worst` (of "
    "the minutes, or null), `destinations` (messages by name), `hours` (list), `minutes` "
    "(list, the first 1,440)",
)
def forecast(
    call: Call,
    rate: Annotated[float, typer.Option(help="Messages a second that a leader hands over.")],
    start: Start = None,
    end: End = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this PNG file.")] = None,
    destinations: Annotated[
        bool, typer.Option(help="Count by destination; without, only keys and due times are read.")
    ] = True,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Tell what falls due when, how long a rate takes for it, and the worst minute.

    Nothing is changed. Of a minute's messages each is taken to be due when it begins.
    """
    since, until = window(start, end)
    with spark_session(call, master) as (session, reference):
        from postdate.spark.forecasting import forecast as run_job  # noqa: PLC0415 - imports pyspark
        from postdate.spark.forecasting.plot import check_plot  # noqa: PLC0415
        from postdate.spark.forecasting.plot import plot as draw  # noqa: PLC0415
        from postdate.spark.ranges import DueWindow  # noqa: PLC0415

        if plot is not None:
            check_plot(plot)
        with task_progress(call, "reading") as progress:
            told = run_job(
                session,
                reference,
                rate=rate,
                window=DueWindow(since, until),
                destinations=destinations,
                progress=progress,
            )
        if plot is not None:
            draw(told, plot)
    if call.out.json:
        call.out.line(msgspec.json.decode(told.json()))
        return
    record: dict[str, object] = {
        "messages": told.messages,
        "overdue": told.overdue,
        "drained_at": told.drained_at,
        "drain_seconds": told.drain_seconds,
    }
    for name, minute in (("busiest", told.busiest), ("worst", told.worst)):
        if minute is not None:
            record[f"{name}_minute"] = minute.minute
            record[f"{name}_messages"] = minute.messages
            record[f"{name}_late_seconds"] = minute.late_seconds
    call.out.record(record)
    for name, messages in told.destinations.items():
        note(f"{name or '(none)'}: {messages:,} messages")
