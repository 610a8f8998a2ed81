"""`postdate errors groups`: what lies in the error queue, by cause."""

from datetime import datetime

from postdate.cli.command import Call, command
from postdate.cli.errors.listing import cause_text, tell_hidden
from postdate.cli.errors.options import Queue, Since, Until, check_span, error_queue
from postdate.cli.render import relative
from postdate.cli.times import optional_instant
from postdate.core.error_groups import Group, grouped
from postdate.core.error_selection import Selection


@command(
    name="errors groups",
    prints="one object per line, the largest group first: `group` (its key, the same in every run), `count`, "
    "`failed_queue`, `state` (as `errors list`), `exception_type`, `message` (with numbers, ids and quoted "
    "values masked), `first_at`, `last_at`, `example` (a message id)",
)
async def groups(call: Call, queue: Queue = None, since: Since = None, until: Until = None) -> None:
    """Count the messages of the error queue by cause: exception, its message, and the queue where it failed.

    Messages are one group if their texts differ only in numbers, ids and quoted values. As `errors list`, it
    receives every message, and makes all visible again.
    """
    selection = Selection(since=optional_instant(since), until=optional_instant(until))
    check_span(selection.since, selection.until)
    async with call.endpoint() as endpoint:
        errors = error_queue(endpoint, queue)
        look = await errors.look(selection)
        now = endpoint.parts.clock.now()
    found = grouped(look.messages)
    if call.out.json:
        for group in found:
            call.out.line(_fields(group))
        return
    if not found:
        call.out.text(f"nothing found in {errors.queue}")
    else:
        print_groups(call, found, now)
    tell_hidden(call, look.hidden)


def print_groups(call: Call, groups: list[Group], now: datetime) -> None:
    """Groups as a table, numbered from 1."""
    rows = [
        (
            number,
            group.key,
            group.count,
            relative(group.first_at, now),
            relative(group.last_at, now),
            group.cause.failed_queue or None,
            group.example,
            cause_text(group.state, group.cause.exception_type, group.cause.message),
        )
        for number, group in enumerate(groups, 1)
    ]
    head = ("no", "group", "messages", "first", "last", "queue", "example", "cause")
    call.out.lines([head, *rows], head=True)


def _fields(group: Group) -> dict[str, object]:
    return {
        "group": group.key,
        "count": group.count,
        "failed_queue": group.cause.failed_queue or None,
        "state": group.state.value,
        "exception_type": group.cause.exception_type or None,
        "message": group.cause.message or None,
        "first_at": group.first_at,
        "last_at": group.last_at,
        "example": group.example,
    }
