"""How far a long command is, on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from postdate.cli.render import note, plain
from postdate.clock import Clock

#: Seconds between two lines of progress where there is no terminal.
LINE_EVERY = 10.0


class Display(Protocol):
    """Where people see how it goes: on stderr."""

    def update(self, text: str, done: int) -> None:
        """How far it is, in whatever the total is in."""
        ...

    def note(self, text: str) -> None:
        """A remark that stays."""
        ...


@contextmanager
def progress_display(total: int | None, clock: Clock, *, prints: bool) -> Iterator[Display]:
    """A bar on a terminal, unless what is printed there would tear it; a line now and then elsewhere.

    Args:
        total: of the bar; None where it can't be told.
        clock: for the lines.
        prints: whether the command prints to stdout meanwhile.
    """
    if not sys.stderr.isatty() or (prints and sys.stdout.isatty()):
        yield Lines(clock)
        return
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False, markup=False),
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with progress:
        yield Bar(progress, total)


class Bar:
    """Progress on a terminal."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def update(self, text: str, done: int) -> None:
        """Move the bar, which is drawn ten times a second."""
        self._progress.update(self._task, description=text, completed=done)

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(Text(plain(text)), soft_wrap=True)


class Lines:
    """Progress as a line now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = clock.monotonic() + LINE_EVERY

    def update(self, text: str, done: int) -> None:  # noqa: ARG002 - as `Display`
        """A line, if the last one is old enough."""
        if self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + LINE_EVERY
            note(text)

    def note(self, text: str) -> None:
        """A line at once."""
        note(text)
