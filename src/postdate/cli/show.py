"""`postdate show`: one message."""

from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.failures import FAILED, say_error
from postdate.cli.listing import message_fields
from postdate.cli.render import body_fields, preview, relative

Handle = Annotated[str, typer.Argument(metavar="HANDLE", help="What `schedule` printed.")]


@command(
    prints="one object: the keys of `list`, and `headers`, `body`, `body_encoding` (`text` or `base64`); "
    "`state` may also be `in queue`, and then only destination and due time are known"
)
async def show(call: Call, handle: Handle) -> None:
    """Show a message as it waits. Exit code 1 if none waits under this handle."""
    async with call.endpoint() as endpoint:
        message = await endpoint.get(handle)
        now = endpoint.parts.clock.now()
    if message is None:
        say_error("no message waits under this handle: handed over, cancelled, moved, or of another endpoint")
        raise typer.Exit(FAILED)
    values = message_fields(message)
    if call.out.json:
        call.out.line({**values, "headers": message.headers, **body_fields(message.body)})
        return
    known = {name: value for name, value in values.items() if value is not None}
    call.out.record({**known, "due": relative(message.due_at, now), "body": preview(message.body)})
    if message.headers:
        call.out.text("")
        call.out.table(["header", "value"], sorted(message.headers.items()))
