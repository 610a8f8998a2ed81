"""`postdate cancel`: withdraw messages."""

from typing import Annotated

import typer

from postdate.cli.command import Call, command, finish
from postdate.engine.changes import CancelOutcome
from postdate.model.handles import parse_handle


@command(prints="one object per line: `handle`, `outcome` (`cancelled`, `too late` or `unknown`)")
async def cancel(
    call: Call,
    handles: Annotated[list[str], typer.Argument(metavar="HANDLE", help="One or more handles.")],
) -> None:
    """Withdraw messages. Exit code 0 if every one was cancelled, else 1.

    `cancelled` is certain. `too late`: in the hands of the leader, or delivered. `unknown`: no such message
    waits.
    """
    for handle in handles:
        parse_handle(handle)  # all are checked before the first is cancelled
    ok = True
    async with call.endpoint() as endpoint:
        for handle in handles:
            outcome = await endpoint.cancel(handle)
            ok = ok and outcome is CancelOutcome.CANCELLED
            if call.out.json:
                call.out.line({"handle": handle, "outcome": outcome.value})
            else:
                call.out.text(outcome.value if len(handles) == 1 else f"{outcome.value}  {handle}")
    finish(ok=ok)
