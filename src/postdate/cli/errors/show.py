"""`postdate errors show`: one message of the error queue."""

import sys
from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.errors.listing import MESSAGE_KEYS, cause_text, failed_fields
from postdate.cli.errors.options import Queue, error_queue
from postdate.cli.failures import FAILED, say_error
from postdate.cli.render import body_fields, preview, relative
from postdate.core.error_selection import Selection
from postdate.endpoint import Endpoint
from postdate.errors import NotProvisioned, PoisonMessage
from postdate.model import headers as h
from postdate.model.envelope import unwrap
from postdate.model.failed import FailedMessage
from postdate.model.headers import Headers

#: Lines of the stack trace, and characters of the body, that people see; JSON has all.
_TRACE_LINES, _BODY_CHARACTERS = 30, 1_000


@command(
    name="errors show",
    prints=f"one object: {MESSAGE_KEYS}, `headers`, `stack_trace`, `body`, `body_encoding` (`text` or "
    "`base64`), `no_body` (why there is none, or null)",
)
async def show_error(
    call: Call,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="A message id, or a native id.")],
    queue: Queue = None,
    body: Annotated[
        bool, typer.Option("--body", help="Print the body alone, as it is, byte by byte.")
    ] = False,
) -> None:
    """Show a message of the error queue: why it failed, its stack trace, headers and body.

    Exit code 1 if there is none with this id. As `errors list`, it makes visible again what it looked at.
    """
    texts: list[str] = []
    async with call.endpoint() as endpoint:
        errors = error_queue(endpoint, queue)
        look = await errors.look(
            Selection(ids=frozenset({message_id})), limit=1, on_seen=lambda _, text: texts.append(text)
        )
        now = endpoint.parts.clock.now()
        if not look.messages:
            hidden = f"; about {look.hidden} messages are hidden, look again soon" if look.hidden else ""
            say_error(
                f"there is no message with id {message_id!r} in {errors.queue}{hidden}; "
                "`postdate errors list` shows the ids"
            )
            raise typer.Exit(FAILED)
        message = look.messages[0]
        headers, content, no_body = await _read(endpoint, message, texts[0])
    if body:
        sys.stdout.buffer.write(content or b"")
        sys.stdout.flush()
        return
    trace = headers.get(h.STACK_TRACE)
    if call.out.json:
        values = {**failed_fields(message), "headers": headers, "stack_trace": trace}
        call.out.line({**values, **body_fields(content), "no_body": no_body})
        return
    record = {name: value for name, value in failed_fields(message).items() if value is not None}
    record["failed"] = relative(message.at, now)
    record["cause"] = cause_text(message.state, message.cause.exception_type, message.exception_message)
    record["body"] = no_body or preview(content, _BODY_CHARACTERS)
    call.out.record(record)
    _print_rest(call, headers, trace)


async def _read(
    endpoint: Endpoint, message: FailedMessage, text: str
) -> tuple[Headers, bytes | None, str | None]:
    """Headers, body, and why there is no body."""
    try:
        opened = unwrap(text, message.native_id).message
    except PoisonMessage:
        return {}, text.encode(), None  # what can be seen of it
    if message.payload is None:
        return opened.headers, opened.body, None
    try:
        body = await endpoint.parts.backend.payloads.get(message.payload)
    except (PoisonMessage, NotProvisioned) as error:
        return (
            opened.headers,
            None,
            f"{error}; it may be of another endpoint than {endpoint.settings.endpoint!r}",
        )
    return opened.headers, body, None if body is not None else "dropped: another copy of it was done with"


def _print_rest(call: Call, headers: Headers, trace: str | None) -> None:
    others = {name: value for name, value in headers.items() if name != h.STACK_TRACE}
    if others:
        call.out.text("")
        call.out.table(["header", "value"], sorted(others.items()))
    lines = (trace or "").splitlines()
    if lines:
        call.out.text("")
    for line in lines[:_TRACE_LINES]:
        call.out.text(line)
    if len(lines) > _TRACE_LINES:
        call.out.note(f"{len(lines) - _TRACE_LINES} more lines of the stack trace with --json")
