"""Output: rich tables for people, JSON for programs, both on stdout; remarks for people on stderr.

JSON has stable keys (docs/reference/cli.md lists them), instants in ISO 8601 with `Z`, durations in seconds
under names that end in `_s`. What others wrote (bodies, headers, names) reaches a terminal without control
characters.
"""

import base64
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from postdate.model.durations import format_duration

#: Columns where there is no terminal to fit into, so that nothing is cut for `grep`.
_NO_TERMINAL_WIDTH = 10_000


class Output:
    """Where a command prints."""

    def __init__(self, *, json: bool) -> None:
        """Print JSON if `json`, else for people."""
        self.json = json
        self._console = _console(stderr=False)

    def record(self, values: Mapping[str, object]) -> None:
        """One object, or a line for each name and value."""
        if self.json:
            self.line(values)
        else:
            self.lines((name.replace("_", " "), value) for name, value in values.items())

    def line(self, values: Mapping[str, object]) -> None:
        """One JSON object on a line of its own."""
        sys.stdout.write(msgspec.json.encode(values).decode() + "\n")
        sys.stdout.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table for people."""
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(shown(cell)) for cell in row))
        self._console.print(table)

    def lines(self, rows: Iterable[Sequence[object]], *, head: bool = False) -> None:
        """A table whose last column is never folded or padded: a handle in it can be copied."""
        cells = [[shown(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column), default=0) for column in zip(*cells, strict=True)]
        for number, row in enumerate(cells):
            padded = (set_cell_size(cell, width) for cell, width in zip(row[:-1], widths[:-1], strict=True))
            text = Text("   ".join([*padded, row[-1]]).rstrip())
            text.stylize("bold", 0, len(text) if head and not number else 0 if head else widths[0])
            self._console.print(text, soft_wrap=True)

    def text(self, text: str, *, style: str = "") -> None:
        """A line for people; nothing with JSON."""
        if not self.json:
            self._console.print(Text(plain(text), style=style))
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """A remark for people, on stderr, so that it is no part of what they asked for."""
        if not self.json:
            note(text)


def note(text: str) -> None:
    """A line on stderr."""
    _console(stderr=True).print(Text(plain(text)))


def plain(text: str) -> str:
    """The text with control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """A value for people."""
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, list | tuple):
        return ", ".join(shown(v) for v in value) or "-"
    return plain(str(value))


def instant(value: datetime) -> str:
    """An instant to the millisecond, in UTC."""
    return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def relative(value: datetime | None, now: datetime) -> str:
    """How far away an instant is: `in 1m30s`, `5s ago`."""
    if value is None:
        return "-"
    span = value - now
    whole = timedelta(seconds=round(abs(span).total_seconds()))
    return f"in {format_duration(whole)}" if span >= timedelta(0) else f"{format_duration(whole)} ago"


def body_fields(body: bytes | None) -> dict[str, object]:
    """A body in JSON: as text where it is UTF-8, else base64; `body_encoding` tells which."""
    if body is None:
        return {"body": None, "body_encoding": None}
    try:
        return {"body": body.decode(), "body_encoding": "text"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "body_encoding": "base64"}


def preview(body: bytes | None, length: int = 200) -> str:
    """The beginning of a body, for people."""
    if body is None:
        return "-"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"{len(body):,} bytes that are not text"
    return plain(text) if len(text) <= length else f"{plain(text[:length])}… ({len(body):,} bytes)"


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else _NO_TERMINAL_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not stream.isatty(),
    )
