"""`postdate errors list`: what lies in the error queue."""

from dataclasses import replace
from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.errors.options import (
    ExceptionType,
    FailedQueue,
    Queue,
    Since,
    TextInside,
    Until,
    check_span,
    error_queue,
    is_number,
)
from postdate.cli.render import relative
from postdate.cli.times import optional_instant
from postdate.core.error_groups import grouped
from postdate.core.error_selection import Selection
from postdate.engine.error_queue import ErrorQueue, Look
from postdate.errors import UsageError
from postdate.model.failed import FailedMessage, FailedState

_TABLE_LIMIT = 50
_CAUSE_CHARACTERS = 80
#: What `--json` prints of a message.
MESSAGE_KEYS = (
    "`message_id`, `native_id`, `state` (`failed`; `unexplained`: no fault headers; `unreadable`), "
    "`failed_at`, `failed_queue`, `exception_type`, `exception_message` (its beginning), `group`, "
    "`attempts`, `message_type`, `inserted_at` (into the error queue), `dequeue_count`, `size` (bytes in "
    "the queue)"
)


@command(name="errors list", prints=f"one object per line, in the order of the queue: {MESSAGE_KEYS}")
async def list_errors(
    call: Call,
    queue: Queue = None,
    exception_type: ExceptionType = None,
    failed_queue: FailedQueue = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Only this group: its key, or its number in `errors groups`."),
    ] = None,
    since: Since = None,
    until: Until = None,
    text: TextInside = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"At most so many; 0: all. Default: {_TABLE_LIMIT}, with --json all."),
    ] = None,
) -> None:
    """List the messages of the error queue, in its order: mostly the oldest first.

    To see more than 32, each message is received, hidden from others for some seconds and made visible again
    at the end; if the command is killed, after 60 s by itself. All stay there; dequeue counts grow.
    """
    most = limit if limit is not None else 0 if call.out.json else _TABLE_LIMIT
    selection = Selection(
        exception_type=exception_type,
        failed_queue=failed_queue,
        group=group,
        since=optional_instant(since),
        until=optional_instant(until),
        text=text,
    )
    check_span(selection.since, selection.until)
    async with call.endpoint() as endpoint:
        errors = error_queue(endpoint, queue)
        look = await _look(errors, selection, most + 1 if most else None)
        now = endpoint.parts.clock.now()
    shown = look.messages[:most] if most else look.messages
    if call.out.json:
        for message in shown:
            call.out.line(failed_fields(message))
        return
    if not shown:
        call.out.text(f"nothing found in {errors.queue}")
    else:
        rows = [(relative(m.at, now), m.failed_queue, short_cause(m), m.group, m.message_id) for m in shown]
        call.out.lines([("failed", "queue", "cause", "group", "message id"), *rows], head=True)
    if len(look.messages) > len(shown):
        call.out.note(f"there are more; --limit 0 shows all (this is the first {most})")
    tell_hidden(call, look.hidden)


async def _look(errors: ErrorQueue, selection: Selection, limit: int | None) -> Look:
    """See the messages; a group's number counts in the groups of all that fits the other filters."""
    if not is_number(selection.group):
        return await errors.look(selection, limit=limit)
    look = await errors.look(replace(selection, group=None))
    groups = grouped(look.messages)
    number = int(selection.group or 0)
    if not 1 <= number <= len(groups):
        raise UsageError(f"there is no group {number}; there are {len(groups)} (`postdate errors groups`)")
    key = groups[number - 1].key
    return replace(look, messages=[m for m in look.messages if m.group == key][:limit])


def failed_fields(message: FailedMessage) -> dict[str, object]:
    """A message of the error queue in JSON."""
    return {
        "message_id": message.message_id,
        "native_id": message.native_id,
        "state": message.state.value,
        "failed_at": message.failed_at,
        "failed_queue": message.failed_queue,
        "exception_type": message.cause.exception_type or None,
        "exception_message": message.exception_message or None,
        "group": message.group,
        "attempts": message.attempts,
        "message_type": message.message_type,
        "inserted_at": message.inserted_at,
        "dequeue_count": message.dequeue_count,
        "size": message.size,
    }


def short_cause(message: FailedMessage) -> str:
    """Why it failed, for a table."""
    text = message.exception_message
    short = text if len(text) <= _CAUSE_CHARACTERS else f"{text[: _CAUSE_CHARACTERS - 1]}…"
    return cause_text(message.state, message.cause.exception_type, short)


def cause_text(state: FailedState, exception_type: str, message: str) -> str:
    """Type and message on one line; without the type's namespace."""
    if state is FailedState.UNEXPLAINED:
        return "(no fault headers)"
    if state is FailedState.UNREADABLE:
        return f"(can't be read) {message}"
    return f"{exception_type.rpartition('.')[2] or '(no type)'}: {message}".rstrip(": ")


def tell_hidden(call: Call, hidden: int) -> None:
    """Say that there is more than could be seen."""
    if hidden:
        call.out.note(
            f"about {hidden} more messages are hidden: somebody else works on this queue, or a command was "
            "killed less than a minute ago; look again soon"
        )
