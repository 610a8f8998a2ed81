"""What the commands of `postdate legacy` print alike."""

from collections.abc import Iterable
from pathlib import Path

from postdate.cli.command import Call
from postdate.cli.render import shown
from postdate.legacy.ground import Tally
from postdate.legacy.judge import Refused
from postdate.legacy.undo_file import UndoFile
from postdate.model.legacy_move import shown_address
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.settings import Settings

#: Timeouts that people are told one by one; programs are told all.
_MOST = 50


def deletable(queues: Iterable[str], settings: Settings, *, store: bool) -> list[str]:
    """What nobody needs once the manager is off; the tables belong to the other endpoints too."""
    found = [f"queue {name}" for name in queues]
    if not store:
        return found
    places = settings.timeout_places
    shared = [f"table {places.table}", f"table {places.manager_table}", f"container {places.container}"]
    return [*found, *(f"{one}, if no other endpoint has timeouts there" for one in shared)]


def tally_fields(tally: Tally) -> dict[str, object]:
    """Timeouts by destination, in JSON."""
    return {
        "earliest_due_at": tally.earliest,
        "latest_due_at": tally.latest,
        "by_destination": [
            {
                "destination": name,
                "count": group.count,
                "earliest_due_at": group.earliest,
                "latest_due_at": group.latest,
            }
            for name, group in sorted(tally.by_destination.items())
        ],
    }


def print_tally(call: Call, tally: Tally) -> None:
    """Timeouts by destination, for people."""
    if not tally.count:
        return
    rows = [
        (group.count, group.earliest, group.latest, name)
        for name, group in sorted(tally.by_destination.items())
    ]
    call.out.text("")
    call.out.lines([("timeouts", "earliest due", "latest due", "destination"), *rows], head=True)


def refused_fields(refused: Iterable[Refused]) -> list[dict[str, object]]:
    """Timeouts that stay where they are, in JSON."""
    return [
        {"id": one.id, "destination": one.destination, "due_at": one.due_at, "reason": one.reason}
        for one in refused
    ]


def named_fields(timeouts: Iterable[LegacyTimeout]) -> list[dict[str, object]]:
    """Timeouts by name, in JSON."""
    return [
        {"id": one.id, "destination": shown_address(one.destination), "due_at": one.due_at}
        for one in timeouts
    ]


def print_named(call: Call, title: str, named: list[dict[str, object]]) -> None:
    """Timeouts by name, for people."""
    if not named:
        return
    call.out.text("")
    call.out.text(f"{title}:", style="bold")
    for one in named[:_MOST]:
        call.out.text("  " + "  ".join(shown(value) for value in one.values()))
    if len(named) > _MOST:
        call.out.note(f"{len(named) - _MOST:,} more; --json tells them all")


def undo_file(settings: Settings, path: Path, *, create: bool) -> UndoFile:
    """The undo file of the endpoint's drains."""
    return UndoFile(path, endpoint=settings.endpoint, table=settings.table_name, create=create)
