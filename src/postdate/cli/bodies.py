"""What `send` and `schedule` take: a body from an argument, a file or stdin, and headers."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from postdate.errors import InvalidBody, InvalidHeader, UsageError, shown
from postdate.model import headers as h
from postdate.model.message import JSON_TYPE

Destination = Annotated[
    str, typer.Argument(metavar="DESTINATION", help="queue, or queue@alias for a further account.")
]
Body = Annotated[str | None, typer.Argument(metavar="BODY", help="The body as text; - reads it from stdin.")]
BodyFile = Annotated[
    Path | None, typer.Option("--body-file", help="Read the body from a file.", exists=True, dir_okay=False)
]
JsonBody = Annotated[bool, typer.Option("--json-body", help="The body is JSON; sent with that content type.")]
HeaderOptions = Annotated[
    list[str] | None, typer.Option("--header", help="A header as name=value; may be repeated.")
]
MessageId = Annotated[
    str | None, typer.Option("--message-id", help="Stable across deliveries; default: a new UUID.")
]
ExpiresAfter = Annotated[
    str | None, typer.Option("--expires-after", help="The message vanishes so long after its due time.")
]


def read_body(argument: str | None, file: Path | None) -> str | bytes:
    """The body; text where it is UTF-8.

    Raises:
        UsageError: none was given, or two.
        OSError: the file can't be read.
    """
    if (argument is None) == (file is None):
        raise UsageError("give the body either as an argument (- for stdin) or with --body-file")
    if file is not None:
        content = file.read_bytes()
    elif argument == "-":
        content = sys.stdin.buffer.read()
    else:
        assert argument is not None
        return argument
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def read_headers(options: list[str] | None, body: str | bytes, *, json_body: bool) -> dict[str, str | None]:
    """The headers that the options give; a body that claims to be JSON is checked, and kept as written.

    Raises:
        InvalidHeader: not of the form name=value.
        InvalidBody: not JSON.
    """
    headers: dict[str, str | None] = {}
    for option in options or []:
        name, equals, value = option.partition("=")
        if not equals or not name.strip():
            raise InvalidHeader(f"--header {shown(option)} is not a header; write name=value")
        headers[name.strip()] = value
    if json_body:
        try:
            msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidBody(f"the body is not JSON: {error}; leave out --json-body to send text") from None
        headers.setdefault(h.CONTENT_TYPE, JSON_TYPE)
    return headers
