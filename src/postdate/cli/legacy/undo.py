"""`postdate legacy undo`: what was moved becomes timeouts again."""

from pathlib import Path
from typing import Annotated

import typer

from postdate.cli.command import Call, command, finish
from postdate.cli.failures import INTERRUPTED
from postdate.cli.legacy.printing import named_fields, print_named, undo_file
from postdate.cli.signals import stop_signals
from postdate.model.legacy_move import shown_address


@command(
    name="legacy undo",
    prints="one object: `back`, `already` (in the timeout store before), `delivered`, `too_late` (in the "
    "delays table, for the leader to deliver), `gone` (cancelled or moved to another time), "
    "`possible_duplicates` (lists of `id`, `destination`, `due_at`), `refused` (list of `id`, `destination`, "
    "`due_at`, `reason`), `stopped`",
)
async def undo(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The undo file of the drain.")],
) -> None:
    """Put back into the timeout store what a drain moved and nobody delivered yet.

    What was delivered meanwhile is named. The same command again goes on after an interruption. Exit code 1
    if anything could not be put back that was not delivered.
    """
    with stop_signals() as stop:
        async with call.endpoint() as endpoint:
            with undo_file(endpoint.settings, file, create=False) as opened:
                done = await endpoint.parts.migration.undo(opened, stop)
    lists = {
        "delivered": named_fields(done.delivered),
        "too_late": named_fields(done.too_late),
        "gone": named_fields(done.gone),
        "possible_duplicates": named_fields(done.doubtful),
        "refused": [
            {
                "id": timeout.id,
                "destination": shown_address(timeout.destination),
                "due_at": timeout.due_at,
                "reason": reason,
            }
            for timeout, reason in done.refused
        ],
    }
    counts = {"back": done.back, "already": done.already, "stopped": done.stopped}
    if call.out.json:
        call.out.line({**counts, **lists})
    else:
        call.out.record({**counts, **{name: len(lists[name]) for name in lists}})
        print_named(call, "delivered meanwhile", lists["delivered"])
        print_named(call, "too late: the leader delivers them", lists["too_late"])
        print_named(call, "gone: cancelled or moved by somebody", lists["gone"])
        print_named(call, "may be delivered twice", lists["possible_duplicates"])
        print_named(call, "not taken by the timeout store; their rows stay", lists["refused"])
    finish(ok=not done.stopped, code=INTERRUPTED)
    finish(ok=not (done.gone or done.doubtful or done.refused))
