"""What the commands of `postdate errors` share: which queue, which messages, and asking before."""

import signal
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import typer

from postdate.core.error_selection import Selection
from postdate.endpoint import Endpoint
from postdate.engine.error_queue import ErrorQueue
from postdate.errors import UsageError
from postdate.model.names import destination

#: Digits that a group's number in `errors groups` has at most; a key has more.
_NUMBER_DIGITS = 3

Queue = Annotated[
    str | None,
    typer.Option("--queue", help="Another queue than the endpoint's error queue; queue@alias too."),
]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Message ids, or native ids where two are alike.")
]
ExceptionType = Annotated[
    str | None, typer.Option("--type", help="Only this exception type, or its last names: TimeoutError.")
]
FailedQueue = Annotated[
    str | None, typer.Option("--queue-failed", help="Only what failed at this queue (NServiceBus.FailedQ).")
]
GroupKey = Annotated[
    str | None, typer.Option("--group", help="Only this group: its key, or the beginning of one.")
]
Since = Annotated[str | None, typer.Option(help="Only what failed at or after this instant.")]
Until = Annotated[str | None, typer.Option(help="Only what failed before this instant.")]
TextInside = Annotated[
    str | None,
    typer.Option("--text", help="Only what holds this text, in a header or the body, in any case."),
]
Everything = Annotated[bool, typer.Option("--all", help="All messages of the error queue.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")]
Preview = Annotated[bool, typer.Option("--preview", help="Tell what would be done, and do nothing.")]
Rate = Annotated[
    float | None, typer.Option(min=0.001, help="At most so many messages a second; default: as it goes.")
]


def error_queue(endpoint: Endpoint, queue: str | None) -> ErrorQueue:
    """The error queue of the endpoint, or another one.

    Raises:
        InvalidDestination: it has no queue's name.
    """
    name = queue or endpoint.settings.error_queue
    destination(name)
    return ErrorQueue(endpoint.parts.backend, endpoint.parts.clock, name)


def is_number(group: str | None) -> bool:
    """Whether `--group` gives a number of the table, not a key."""
    return group is not None and group.isdecimal() and len(group) <= _NUMBER_DIGITS


def check_span(since: datetime | None, until: datetime | None) -> None:
    """Refuse a span that nothing can be in.

    Raises:
        UsageError: it ends before it begins.
    """
    if since is not None and until is not None and until <= since:
        raise UsageError("--until is not after --since: nothing can be selected")


def check_chosen(selection: Selection, *, everything: bool) -> None:
    """Refuse a command that would change messages that nobody named.

    Raises:
        UsageError: nothing was named, or all and some, or a group by its number, or a span without end.
    """
    check_span(selection.since, selection.until)
    if is_number(selection.group):
        raise UsageError(
            f"numbers of groups change as messages come and go; name group {selection.group} by its key "
            "(`postdate errors groups` shows it)"
        )
    named = selection != Selection()
    if everything and named:
        raise UsageError("give --all, or say which messages; not both")
    if not everything and not named:
        raise UsageError("say which messages: their ids, --group KEY, another filter, or --all")


def ask(question: str) -> None:
    """Ask on the terminal.

    Raises:
        UsageError: the answer is no, or nobody answered.
    """
    # While the loop's own handler is there, the first Ctrl-C would wait for an answer.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sure: bool | None = None
    try:
        with suppress(typer.Abort):
            sure = typer.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)
    if sure is None:
        raise UsageError("nobody answered; --yes skips the question. Nothing was changed")
    if not sure:
        raise UsageError("not confirmed; nothing was changed")
