"""`postdate spark drain`: a backlog is handed over with many tasks, in one term."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from postdate.cli.command import Call, command, finish
from postdate.cli.failures import INTERRUPTED
from postdate.cli.render import note
from postdate.cli.spark.sessions import DEFAULT_MASTER, Master, spark_session, task_progress
from postdate.errors import UsageError


@command(
    name="spark drain",
    prints="one object: `term` (0: it did not come to lead), `end` (`done`, `stopped` or `lease lost`), "
    "`found` (due when it began), `handed_over`, `by_destination` (object: of those), `failed`, "
    "`moved_to_error_queue`, `expired`, `left` (found, and still there), `unheard` (gone, and no task told "
    "of them), `possible_duplicates` (at most), `tasks`, `killed_attempts`, `seconds`",
)
def drain(
    call: Call,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Ask a running leader to step aside: it gets no renewal, and leads again afterwards. "
            "Without it, wait until nobody leads.",
        ),
    ] = False,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE=NUMBER", help="Messages per second to a destination, over all tasks. Repeat it."
        ),
    ] = None,
    rows_per_range: Annotated[
        int, typer.Option(help="About so many rows go to one task, and are read again where it is killed.")
    ] = 2_000,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Hand over what is due with many tasks, as the endpoint's leader.

    For a backlog that one leader would take too long for. Ctrl-C ends it cleanly, and the same command goes
    on. A message that can't be sent is tried again by the leader that follows, or ends in the error queue, as
    always. Exit code 1 if the lease was lost.
    """
    rates = dict(map(_rate, rate or []))
    with spark_session(call, master) as (session, reference):
        from postdate.spark.draining import DrainOptions  # noqa: PLC0415 - imports pyspark
        from postdate.spark.draining import drain as run_job  # noqa: PLC0415

        options = DrainOptions(take_over, rates, rows_per_range)
        if not take_over:
            asyncio.run(_tell_who_leads(call))
        with task_progress(call, "draining") as progress:
            done = run_job(session, reference, options, progress=progress)
    values = asdict(done)
    for queue in rates.keys() - done.by_destination.keys():
        note(f"--rate {queue}=...: nothing was handed over to {queue!r}, so that held up nobody")
    if call.out.json:
        call.out.line(values)
    else:
        call.out.record({name: value for name, value in values.items() if name != "by_destination"})
        if done.by_destination:
            call.out.table(["destination", "handed over"], done.by_destination.items())
        if done.end != "done":
            note(f"{done.end}: {done.left:,} messages are left; the same command goes on")
    finish(ok=done.end != "stopped", code=INTERRUPTED)
    finish(ok=done.end == "done")


async def _tell_who_leads(call: Call) -> None:
    """Say whom the drain is about to wait for."""
    async with call.endpoint() as endpoint:
        leads = await endpoint.parts.backend.lease.holder()
    if leads is not None and leads.leased:
        note(f"{leads.holder} leads; waiting until it ends. --take-over asks it to step aside")


def _rate(text: str) -> tuple[str, float]:
    queue, equals, number = text.rpartition("=")
    try:
        if equals:
            return queue, float(number)
    except ValueError:
        pass
    raise UsageError(f"--rate {text!r}: write QUEUE=NUMBER, like invoices=100")
