"""`postdate bench`: how fast, how punctual, how cheap, on your own storage account."""

import asyncio
import os
import platform
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from postdate.bench.plan import forecast, steps_of
from postdate.bench.scale import Scale
from postdate.cli.command import Call, command, finish
from postdate.cli.failures import INTERRUPTED
from postdate.cli.render import note
from postdate.clock import SystemClock
from postdate.errors import UsageError
from postdate.settings import BackendName, Settings, load_prices


@command(
    prints="one object: `ratios` (number by name), `goals` (by name: `ratio`, `goal`, `met`, `meaning`), "
    "`classic` (the form of it that ratios are against), `limit`, `rounds` (messages a second "
    "of each round, by contender), `contenders` (list of figures), `details`, "
    "`scale`, `versions`, `machine`, `date`, `seconds`, `failures` (list of text); progress goes to stderr"
)
async def bench(
    call: Call,
    messages: Annotated[
        int, typer.Option(min=50, max=100_000, help="Messages that each contender drains.")
    ] = 2_000,
    lateness: Annotated[
        bool, typer.Option("--lateness", help="Measure how late messages are, too: some ten minutes more.")
    ] = False,
    local: Annotated[
        bool, typer.Option("--local", help="On an Azurite of its own, instead of the configured account.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before requests are made.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, writable=True, help="Write the JSON object there, too."),
    ] = None,
) -> None:
    """Measure Postdate on the configured storage account, beside what the account takes at most.

    Contenders: raw requests, signed beforehand (the limit); the algorithm that NServiceBus is known to use
    (classic); one send and one delete for each message with the plain SDK; and Postdate with default
    settings. What each figure means: docs/explain/benchmark.md.

    Tables, containers and queues are made for each measurement, named `postdatebench...`, and deleted after
    it, also on Ctrl-C. Requests cost money: it tells about how many before it asks. Exit code 1 if a
    contender failed; the others are measured all the same.
    """
    scale = Scale(drain=messages, burst=messages)
    settings = None if local else _account(call)
    call.out.note(_plan(scale, lateness=lateness, settings=settings))
    if not (local or yes):
        _ask()
    found = await _until_signalled(scale, lateness=lateness, settings=settings)
    if out is not None:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    _show(call, found)
    finish(ok=not found["failures"])


def _account(call: Call) -> Settings:
    settings = call.settings()
    if settings.backend is not BackendName.AZURE_STORAGE:
        raise UsageError("there is nothing to measure in memory; name a storage account, or use --local")
    settings.account()  # wrong or missing: say so before anything is asked
    return settings


def _plan(scale: Scale, *, lateness: bool, settings: Settings | None) -> str:
    requests = forecast(scale, lateness=lateness)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(requests.items()))
    text = f"about {sum(requests.values()):,} requests: {kinds}"
    if settings is None:
        return f"{text}; on an Azurite of its own"
    cost = load_prices(settings.prices).cost(requests)
    return f"{text}; about {cost.amount:.2f} {cost.currency} by the table of prices"


def _ask() -> None:
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to be asked; add --yes to make these requests")
    typer.confirm("Make them?", abort=True, err=True)


async def _until_signalled(scale: Scale, *, lateness: bool, settings: Settings | None) -> dict[str, Any]:
    """Measure; SIGTERM and Ctrl-C end it in order, so that nothing is left in the account."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        measuring = asyncio.ensure_future(_measure(scale, lateness=lateness, settings=settings))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, measuring.cancel)
            stack.callback(loop.remove_signal_handler, number)
        with suppress(asyncio.CancelledError):
            return await measuring
    note("stopped; what was made in the account is deleted")
    raise typer.Exit(INTERRUPTED)


async def _measure(scale: Scale, *, lateness: bool, settings: Settings | None) -> dict[str, Any]:
    # Late: these load the cloud's libraries, and other commands shall start without them.
    from postdate.bench.ground import AccountGrounds, LocalGrounds  # noqa: PLC0415 - loads the cloud's libraries
    from postdate.bench.report import record, versions  # noqa: PLC0415 - loads the cloud's libraries
    from postdate.bench.results import Results  # noqa: PLC0415 - loads the cloud's libraries
    from postdate.bench.run import Bench, chosen, run_steps  # noqa: PLC0415 - loads the cloud's libraries
    from postdate.bench.steps import STEPS  # noqa: PLC0415 - loads the cloud's libraries

    clock, results = SystemClock(), Results()
    began = clock.monotonic()
    grounds = LocalGrounds() if settings is None else AccountGrounds(settings)
    # Each step once: what the rounds are for, a machine that is shared with the service, is not given here.
    once = list(dict.fromkeys(chosen(STEPS, steps_of(lateness=lateness))))
    await run_steps(Bench(grounds, scale, results, note), once)
    return record(
        results, scale=scale, seconds=clock.monotonic() - began, versions=versions(), machine=_machine()
    )


def _machine() -> dict[str, Any]:
    return {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}


def _show(call: Call, found: dict[str, Any]) -> None:
    if call.out.json:
        call.out.line(found)
        return
    from postdate.bench.report import (  # noqa: PLC0415 - as above
        CONTENDER_COLUMNS,
        RATIO_COLUMNS,
        contender_rows,
        ratio_rows,
    )

    measured = {name: goal for name, goal in found["goals"].items() if goal["ratio"] is not None}
    call.out.table(RATIO_COLUMNS, ratio_rows(measured))
    call.out.text("")
    call.out.table(*_filled(CONTENDER_COLUMNS, contender_rows(found["contenders"])))
    limit = found["limit"]
    if limit is not None:
        puts, with_deletes = limit["puts"]["per_s"], limit["puts_and_deletes"]["per_s"]
        call.out.text(f"limit: {puts:,.0f} puts a second, {with_deletes:,.0f} with deletes")
    for failure in found["failures"]:
        call.out.text(f"failed: {failure}", style="bold red")


def _filled(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Without the columns of what was not measured."""
    rows = list(rows)
    kept = [number for number in range(len(columns)) if any(row[number] != "-" for row in rows)]
    return [columns[number] for number in kept], [[row[number] for number in kept] for row in rows]
