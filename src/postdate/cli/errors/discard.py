"""`postdate errors discard`: messages of the error queue that nobody needs."""

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
from postdate.engine.error_moves import MoveSettings


@command(name="errors discard", prints=MOVE_KEYS)
async def discard(
    call: Call,
    ids: Ids = None,
    everything: Everything = False,
    exception_type: ExceptionType = None,
    failed_queue: FailedQueue = None,
    group: GroupKey = None,
    since: Since = None,
    until: Until = None,
    text: TextInside = None,
    rate: Rate = None,
    preview: Preview = False,
    yes: Yes = False,
    undo_file: UndoFileOption = None,
    queue: Queue = None,
) -> None:
    """Delete messages from the error queue, and their large bodies; asks before.

    Each message is written into the undo file before it is deleted, with its large body: `postdate errors
    undo FILE` puts it back. Exit code 1 if any could not be deleted.
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
        settings = endpoint.settings
        move = Move(
            call,
            endpoint,
            errors,
            selection,
            "discard",
            MoveSettings(settings.payload_retention, settings.envelope_form, rate=rate),
            undo_file,
        )
        # All of the queue, although ids are given: large bodies that other messages need must stay.
        async with errors.hold(selection) as hold:
            move.check_found(hold)
            if preview:
                move.preview(hold)
                return
            if hold.held and not yes:
                ask(f"Delete {len(hold.held):,} messages from {errors.queue}?")
            await move.carry_out(hold)
