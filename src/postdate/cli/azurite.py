"""`postdate azurite`: a storage service on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from postdate.cli.command import Call, command
from postdate.cli.signals import stop_signals
from postdate.local import Azurite, AzuriteError

_LOOK_SECONDS = 0.25


@command(
    prints="one object once it answers: `connection_string`, `blob_port`, `queue_port`, `table_port`, "
    "`folder` (null in memory), `pid`",
    show=(),
)
async def azurite(
    call: Call,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Any free ports instead of 10000, 10001 and 10002.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the data is kept; default: a temporary folder.", file_okay=False),
    ] = None,
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Nothing on disk; stalls after many deletes.")
    ] = False,
) -> None:
    """Run a local storage service (Azurite) until SIGTERM or Ctrl-C.

    The first use installs it into a cache folder; it needs the extra: pip install 'postdate[azurite]'.
    """
    ports: Literal["free", "well-known"] = "free" if free_ports else "well-known"
    with stop_signals() as stop:
        async with Azurite(ports=ports, folder=folder, in_memory=in_memory) as running:
            _tell(call, running, well_known=not free_ports)
            while not stop.is_set():
                if not running.running:
                    raise AzuriteError("Azurite ended by itself; start it again")
                try:
                    await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
                except TimeoutError:
                    continue
            call.out.note("stopping")


def _tell(call: Call, running: Azurite, *, well_known: bool) -> None:
    if call.out.json:
        call.out.line(
            {
                "connection_string": running.connection_string,
                "blob_port": running.blob_port,
                "queue_port": running.queue_port,
                "table_port": running.table_port,
                "folder": None if running.folder is None else str(running.folder),
                "pid": running.pid,
            }
        )
        return
    where = "in memory" if running.folder is None else f"in {running.folder}"
    call.out.text(f"Azurite serves blobs, queues and tables {where}. Connection string:")
    call.out.text(running.connection_string)
    short = "UseDevelopmentStorage=true" if well_known else running.connection_string
    call.out.text("In another shell:")
    call.out.text(f"export POSTDATE_CONNECTION='{short}'", style="bold")
    call.out.text("Ctrl-C stops it.")
