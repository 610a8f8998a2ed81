"""`postdate errors retry`: messages of the error queue back to where they failed."""

from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.errors.moving import MOVE_KEYS, Move, UndoFileOption
from postdate.cli.errors.options import (
    Everything,
    ExceptionType,
    FailedQueue,
    GroupKey,
    Ids,
    Preview,
    Queue,
    Rate,
    Since,
    TextInside,
    Until,
    Yes,
    ask,
    check_chosen,
    error_queue,
)
from postdate.cli.times import optional_instant
from postdate.core.error_selection import Selection
from postdate.engine.error_moves import MoveSettings, destinations_of, missing_destinations
from postdate.engine.error_queue import Hold
from postdate.errors import PostdateError, StorageError, UsageError
from postdate.model.names import destination


@command(name="errors retry", prints=MOVE_KEYS)
async def retry(
    call: Call,
    ids: Ids = None,
    everything: Everything = False,
    exception_type: ExceptionType = None,
    failed_queue: FailedQueue = None,
    group: GroupKey = None,
    since: Since = None,
    until: Until = None,
    text: TextInside = None,
    to: Annotated[
        str | None, typer.Option(help="Send to this queue instead; what names no queue of its own needs it.")
    ] = None,
    rate: Rate = None,
    preview: Preview = False,
    yes: Yes = False,
    undo_file: UndoFileOption = None,
    queue: Queue = None,
) -> None:
    """Send messages of the error queue back to the queue where they failed, with all their attempts again.

    Headers of the failure and of retries are taken off; id, body, all other headers and the form of the
    envelope stay. A destination that does not exist is refused before anything is moved. Each message is
    written into the undo file, sent, and then deleted from the error queue: a crash loses none, and may
    double the few that were under way. Exit code 1 if any could not be moved.
    """
    selection = Selection(
        frozenset(ids or ()),
        exception_type,
        failed_queue,
        group,
        optional_instant(since),
        optional_instant(until),
        text,
    )
    check_chosen(selection, everything=everything)
    async with call.endpoint() as endpoint:
        errors = error_queue(endpoint, queue)
        if to is not None:
            _check_to(to, errors.queue)
        settings = endpoint.settings
        move = Move(
            call,
            endpoint,
            errors,
            selection,
            "retry",
            MoveSettings(settings.payload_retention, settings.envelope_form, to, rate),
            undo_file,
        )
        async with errors.hold(selection, until_found=bool(selection.ids)) as hold:
            move.check_found(hold)
            move.destinations = destinations_of(hold.held, to, errors.queue)
            await _refuse_missing(move, hold)
            if preview:
                move.preview(hold)
                return
            if hold.held and not yes and not selection.ids and selection.group is None:
                where = ", ".join(f"{name} ({number:,})" for name, number in move.destinations.items())
                ask(f"Send {len(hold.held):,} messages back to {where or 'nowhere'}?")
            await move.carry_out(hold)


def _check_to(to: str, error_queue: str) -> None:
    """Refuse to send what can't be sent to, or the error queue.

    Raises:
        UsageError: it is one of these.
    """
    destination(to)
    if to.lower() == error_queue.lower():
        raise UsageError(f"--to {to} is the error queue itself")


async def _refuse_missing(move: Move, hold: Hold) -> None:
    """Refuse destinations that can't be used, before anything is moved.

    Raises:
        PostdateError: the first of them, and for how many messages it is.
    """
    parts = move.endpoint.parts
    if hold.held and not move.destinations and move.selection.ids:
        raise UsageError("none of these messages names a queue to go back to; give --to QUEUE")
    refused = await missing_destinations(parts.backend, parts.clock, move.destinations)
    for refused_one, error in refused.items():
        if isinstance(error, StorageError):
            raise error
        number = move.destinations[refused_one]
        raise PostdateError(
            f"{number:,} of {len(hold.held):,} messages can't go back: {error} Or give --to QUEUE, or leave "
            "them out with --queue-failed. Nothing was moved"
        )
