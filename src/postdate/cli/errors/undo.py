"""`postdate errors undo`: what an undo file tells, undone."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from postdate.cli.command import Call, command, finish
from postdate.cli.errors.options import Queue, error_queue
from postdate.engine.error_undo import UNDONE, ErrorUndo, Undone
from postdate.engine.undo_file import UndoFile
from postdate.errors import UsageError


@command(
    name="errors undo",
    prints="one object for each message: `message_id`, `native_id` (the one it had), `did` (`retry` or "
    "`discard`), `outcome`: `restored`, `withdrawn`, `too late`, `still there` (it never left), `nothing to "
    "undo`, `unsure` or `undone before`",
)
async def undo(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The undo file of a retry or discard.")],
    queue: Queue = None,
) -> None:
    """Undo a retry or discard, as far as that is certain.

    Discarded messages go back into the error queue, with their large bodies. Retried ones go back if nobody
    has received their copy yet: it is withdrawn from its queue. Otherwise it is too late. What is undone is
    noted in the file, so the same command can be repeated. Exit code 1 if anything was too late or is unsure.
    """
    recorded = UndoFile.read(file)
    outcomes: Counter[str] = Counter()

    def tell(undone: Undone) -> None:
        outcomes[undone.outcome] += 1
        if call.out.json:
            call.out.line(
                {
                    "message_id": undone.entry.message_id,
                    "native_id": undone.entry.native_id,
                    "did": recorded.header.did,
                    "outcome": undone.outcome.value,
                }
            )
        elif undone.outcome not in UNDONE:
            call.out.note(f"{undone.entry.message_id}: {undone.outcome}")

    async with call.endpoint() as endpoint:
        if endpoint.settings.endpoint != recorded.header.endpoint:
            raise UsageError(
                f"{file} is of endpoint {recorded.header.endpoint!r}, whose large bodies it may hold; "
                f"give --endpoint {recorded.header.endpoint!r}"
            )
        errors = error_queue(endpoint, queue or recorded.header.error_queue)
        work = ErrorUndo(
            endpoint.parts.backend,
            endpoint.parts.clock,
            recorded,
            errors.queue,
            endpoint.settings.payload_retention,
        )
        await work.run(tell, lambda: call.out.note("some messages are hidden; looking again in a minute"))
    if not call.out.json:
        call.out.record(dict(sorted(outcomes.items())) or {"entries": 0})
    finish(ok=set(outcomes) <= UNDONE)
