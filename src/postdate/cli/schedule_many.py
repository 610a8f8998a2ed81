"""`postdate schedule-many`: messages for later, a line each."""

import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from postdate.cli.command import Call, command, finish
from postdate.cli.failures import INTERRUPTED, say_error
from postdate.cli.message_lines import LineReader, parse_line
from postdate.cli.progress import Display, progress_display
from postdate.cli.signals import stop_signals
from postdate.engine.acceptance import Outgoing
from postdate.engine.bulk import ScheduleOutcome
from postdate.errors import PostdateError, SchedulingInterrupted, StorageError, UsageError


@command(
    name="schedule-many",
    prints="one object at the end: `accepted`, `refused`, `seconds`, `stopped_at_line` (where to go on, or "
    "null); before it one object per refused line, `line`, `reason`, and with `--handles` one per accepted "
    "line, `line`, `handle`",
)
async def schedule_many(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of JSON; - reads stdin.")],
    handles: Annotated[bool, typer.Option("--handles", help="Print the handle of each message.")] = False,
    first_line: Annotated[int, typer.Option(min=1, help="Begin at this line.")] = 1,
) -> None:
    """Schedule a message for each line of a file.

    A line is a JSON object: `destination`, `body` (text, or any other JSON value), either `delay` or `at`,
    and where wanted `headers`, `message_id`, `expires_after`, and `body_encoding`: "base64" for bytes. The
    file may be larger than memory, and a pipe may go on for ever.

    A refused line is told by its number and keeps none of the others out; exit code 1 if there was any. When
    the service fails, or on Ctrl-C, the line to go on at is told; lines that have a `message_id` and `at` can
    be given again without harm.
    """
    with stop_signals() as stop, _opened(file) as (source, size):
        async with call.endpoint() as endpoint:
            clock = endpoint.parts.clock
            began = clock.monotonic()
            reader = LineReader(source, stop)
            failure: SchedulingInterrupted | None = None
            with progress_display(size, clock, prints=handles or call.out.json) as display:
                run = _Run(call, reader, display, handles=handles, first_line=first_line)
                try:
                    async for outcome in endpoint.schedule_each(run.messages()):
                        run.tell(outcome)
                except SchedulingInterrupted as error:
                    failure = error
            seconds = clock.monotonic() - began
        if failure is None and not reader.ended:
            run.stopped_at = run.last + 1
    call.out.record(
        {
            "accepted": run.accepted,
            "refused": run.refused,
            "seconds": round(seconds, 3),
            "stopped_at_line": run.stopped_at,
        }
    )
    if failure is not None:
        say_error(f"line {run.stopped_at}: {failure.reason}; go on there with --first-line {run.stopped_at}")
        cause = failure.__cause__
        finish(ok=False, code=cause.exit_code if isinstance(cause, PostdateError) else failure.exit_code)
    finish(ok=run.stopped_at is None, code=INTERRUPTED)
    finish(ok=not run.refused)


class _Run:
    """One run over a file: what becomes of which line."""

    def __init__(
        self, call: Call, reader: LineReader, display: Display, *, handles: bool, first_line: int
    ) -> None:
        self._call = call
        self._reader = reader
        self._display = display
        self._handles = handles
        self._first_line = first_line
        #: Lines of the messages whose outcome is to come.
        self._waiting: deque[int] = deque()
        self.accepted = 0
        self.refused = 0
        #: The last line that was read.
        self.last = first_line - 1
        #: The first line that may not be durable.
        self.stopped_at: int | None = None

    async def messages(self) -> AsyncIterator[Outgoing]:
        """The messages of the file; a line that is none is refused here."""
        async for number, line in self._reader.numbered():
            if number < self._first_line:
                continue
            self.last = number
            try:
                outgoing = parse_line(line)
            except UsageError as error:
                self._refuse(number, error)
            else:
                self._waiting.append(number)
                yield outgoing

    def tell(self, outcome: ScheduleOutcome) -> None:
        """What became of the next message."""
        number = self._waiting.popleft()
        if outcome.handle is not None:
            self.accepted += 1
            self._print_handle(number, outcome.handle)
        elif isinstance(outcome.error, StorageError):
            self.stopped_at = self.stopped_at or number
        elif outcome.error is not None:
            self._refuse(number, outcome.error)
        self._display.update(
            f"line {number:,}: {self.accepted:,} scheduled, {self.refused:,} refused", self._reader.bytes_read
        )

    def _refuse(self, number: int, error: PostdateError) -> None:
        self.refused += 1
        if self._call.out.json:
            self._call.out.line({"line": number, "reason": str(error)})
        else:
            self._display.note(f"line {number}: {error}")

    def _print_handle(self, number: int, handle: str) -> None:
        if self._handles and self._call.out.json:
            self._call.out.line({"line": number, "handle": handle})
        elif self._handles:
            self._call.out.text(f"{number}  {handle}")


@contextmanager
def _opened(file: Path) -> Iterator[tuple[BinaryIO, int | None]]:
    """The file, or stdin, and its bytes where they can be told."""
    if str(file) == "-":
        yield sys.stdin.buffer, None
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    with source:
        yield source, file.stat().st_size if file.is_file() else None
