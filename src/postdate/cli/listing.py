"""`postdate list`: what waits."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.render import relative
from postdate.cli.times import End, Start, window
from postdate.engine.lookup import ScheduledMessage

_TABLE_LIMIT = 50


@command(
    name="list",
    prints="one object per line, in due order: `handle`, `state` (`waiting`, `failing` or `unreadable`), "
    "`destination`, `due_at`, `message_id`, `scheduled_at`, `failure_count`, `next_attempt_at`, `reason`",
)
async def list_messages(
    call: Call,
    start: Start = None,
    end: End = None,
    destination: Annotated[str | None, typer.Option(help="Only messages for this destination.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"At most so many; 0: all. Default: {_TABLE_LIMIT}, with --json all."),
    ] = None,
) -> None:
    """List the messages that wait in the table, in due order.

    Messages that the leader has handed over already, or with a short delay, lie in their queue and are not
    listed.
    """
    most = limit if limit is not None else 0 if call.out.json else _TABLE_LIMIT
    since, until = window(start, end)
    async with call.endpoint() as endpoint:
        found = endpoint.upcoming(
            start=since, end=until, destination=destination, limit=most + 1 if most else None
        )
        if call.out.json:
            await _print_lines(call, found, most)
        else:
            await _print_table(call, found, most, endpoint.parts.clock.now())


async def _print_lines(call: Call, found: AsyncIterator[ScheduledMessage], most: int) -> None:
    count = 0
    async for message in found:
        count += 1
        if most and count > most:
            return
        call.out.line(message_fields(message))


async def _print_table(call: Call, found: AsyncIterator[ScheduledMessage], most: int, now: datetime) -> None:
    messages = [message async for message in found]
    if not messages:
        call.out.text("nothing waits")
        return
    shown = messages[:most] if most else messages
    rows = [(m.due_at, relative(m.due_at, now), m.destination, m.state.value, m.handle) for m in shown]
    call.out.lines([("due", "", "destination", "state", "handle"), *rows], head=True)
    if len(messages) > len(shown):
        call.out.note(f"more wait; --limit 0 shows all (this is the first {most})")


def message_fields(message: ScheduledMessage) -> dict[str, object]:
    """A waiting message in JSON."""
    return {
        "handle": message.handle,
        "state": message.state.value,
        "destination": message.destination,
        "due_at": message.due_at,
        "message_id": message.message_id,
        "scheduled_at": message.scheduled_at,
        "failure_count": message.failure_count,
        "next_attempt_at": message.next_attempt_at,
        "reason": message.reason,
    }
