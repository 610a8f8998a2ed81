"""Options that take instants and delays."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from postdate.errors import UsageError
from postdate.model.durations import parse_instant_text

Delay = Annotated[
    str | None, typer.Option(help="From now: 90, 1m30s, 7d, PT90S or 00:01:30; zero or less is now.")
]
At = Annotated[str | None, typer.Option(help="The due time, like 2026-03-01T07:08:09Z; a past one is now.")]
Start = Annotated[str | None, typer.Option(help="Only what is due at or after this instant.")]
End = Annotated[str | None, typer.Option(help="Only what is due before this instant.")]


@dataclass(frozen=True, slots=True)
class Due:
    """When, as the endpoint takes it: one of the two is set."""

    delay: str | None
    at: datetime | None


def one_of(delay: str | None, at: str | None) -> Due:
    """The due time of `--delay` or `--at`.

    Raises:
        UsageError: both or none.
        InvalidDueTime: not an instant.
    """
    if (delay is None) == (at is None):
        raise UsageError("give either --delay (like 90s or 7d) or --at (like 2026-03-01T07:08:09Z)")
    return Due(delay, optional_instant(at))


def window(start: str | None, end: str | None) -> tuple[datetime | None, datetime | None]:
    """The instants of `--start` and `--end`.

    Raises:
        UsageError: nothing can be due between them.
        InvalidDueTime: one is not an instant.
    """
    since, until = optional_instant(start), optional_instant(end)
    if since is not None and until is not None and until <= since:
        raise UsageError(f"--end {end} is not after --start {start}, so nothing is due between them")
    return since, until


def optional_instant(text: str | None) -> datetime | None:
    """An instant, if one was given."""
    return None if text is None else parse_instant_text(text)
