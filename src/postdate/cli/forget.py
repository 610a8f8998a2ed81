"""`postdate forget`: drop what inboxes remember of old messages."""

from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.inbox import Inbox

#: Shown beside the usual settings.
_SHOW = ("endpoint", "connection", "account_name", "inbox_table", "inbox_retention")


@command(prints="one line for each consumer: `consumer`, `dropped` (messages)", show=_SHOW)
async def forget(
    call: Call,
    consumer: Annotated[
        list[str] | None, typer.Option(help="Of this consumer alone; may be repeated. Default: of all.")
    ] = None,
) -> None:
    """Drop what inboxes remember of messages past the retention.

    A leader does so by itself once an hour, for the inboxes that its own process uses. This is for the
    others: from cron, once a day. Safe to repeat, and beside working consumers.
    """
    async with call.endpoint() as endpoint:
        known = await endpoint.parts.backend.inbox.consumers()
        names = consumer or known
        for name in names:
            dropped = await Inbox(endpoint, consumer=name).forget()
            if call.out.json:
                call.out.line({"consumer": name, "dropped": dropped})
            else:
                call.out.text(f"{name}: {dropped:,} messages dropped")
    there = "; there are: " + ", ".join(known) if known else ""
    for name in names:
        if name not in known:
            call.out.note(f"no consumer {name!r} remembers anything{there}")
    if not names:
        call.out.note("no consumer of this endpoint remembers anything")
