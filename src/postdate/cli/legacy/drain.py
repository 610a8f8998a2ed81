"""`postdate legacy drain`: timeouts become rows of ours."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from postdate.cli.command import Call, command, finish
from postdate.cli.failures import INTERRUPTED
from postdate.cli.legacy.printing import (
    named_fields,
    print_named,
    print_tally,
    refused_fields,
    tally_fields,
    undo_file,
)
from postdate.cli.render import note
from postdate.cli.signals import stop_signals
from postdate.cli.times import optional_instant
from postdate.errors import DelayedDeliveryDisabled, UsageError
from postdate.events import Event, TimeoutsMoved
from postdate.legacy.drain import Drained
from postdate.legacy.ground import Selection
from postdate.model.durations import parse_duration
from postdate.settings import Settings


@command(
    name="legacy drain",
    prints="one object: `run`, `moved`, `earliest_due_at`, `latest_due_at`, `by_destination` (of what was "
    "moved: list of `destination`, `count`, `earliest_due_at`, `latest_due_at`), `too_soon` (left to the "
    "timeout manager), `taken` (by others, meanwhile), `arrived` (meanwhile; run it again), `refused` "
    "(list of `id`, `destination`, `due_at`, `reason`), `possible_duplicates` (list of `id`, `destination`, "
    "`due_at`), `verified` (null: it was stopped), `expected`, `found` (rows), `delivered`, "
    "`checksum_expected`, `checksum_found`, `missing` and `changed` (lists as `possible_duplicates`), "
    "`undo_file`. With `--preview`: `movable` in place of `moved`, `too_soon`, `refused`, `warnings`",
)
async def drain(
    call: Call,
    preview: Annotated[
        bool, typer.Option("--preview", help="Tell what would be moved and what not; change nothing.")
    ] = False,
    due_from: Annotated[
        str | None, typer.Option("--from", help="Only what is due at or after this instant, with its zone.")
    ] = None,
    margin: Annotated[
        str,
        typer.Option(
            help="What is due sooner than this stays with the timeout manager, which may be releasing it. 0 "
            "moves that too: only where no timeout manager runs any more."
        ),
    ] = "5m",
    undo: Annotated[
        Path | None,
        typer.Option(
            "--undo-file", help="Where to keep what is moved; default: postdate-drain-TABLE.jsonl, here."
        ),
    ] = None,
) -> None:
    """Move the timeouts of the legacy timeout manager into the delays table.

    Old and new endpoints may go on meanwhile. Each timeout keeps its message id, headers, body and due time;
    running it twice moves nothing twice, and after a crash the same command goes on. What can't be moved
    stays where it is and is told with its reason. At the end counts and checksums are compared. Exit code 1
    if they differ, or if anything can't be moved.

    The undo file holds headers and bodies; `postdate legacy undo` puts back from it what is not delivered.
    """
    selection = Selection(optional_instant(due_from), _margin(margin))
    if preview:
        await _preview(call, selection)
        return
    with stop_signals() as stop:
        async with call.endpoint(_Progress()) as endpoint:
            settings = endpoint.settings
            _need_delayed_delivery(settings)
            path = undo or Path(f"postdate-drain-{settings.table_name}.jsonl")
            with undo_file(settings, path, create=True) as file:
                done = await endpoint.parts.migration.drain(selection, file, stop)
    _tell(call, done, path)
    finish(ok=done.verified is not None, code=INTERRUPTED)
    finish(ok=not done.refused and done.verified is not None and done.verified.ok)


async def _preview(call: Call, selection: Selection) -> None:
    async with call.endpoint() as endpoint:
        _need_delayed_delivery(endpoint.settings)
        found = await endpoint.parts.migration.preview(selection)
    refused = refused_fields(found.refused)
    values = {
        "movable": found.movable.count,
        "too_soon": found.too_soon,
        **tally_fields(found.movable),
        "refused": refused,
        "warnings": found.warnings,
    }
    if call.out.json:
        call.out.line(values)
    else:
        people = {**values, "refused": len(refused)}
        call.out.record({n: people[n] for n in people if n not in ("by_destination", "warnings")})
        print_tally(call, found.movable)
        print_named(call, "can't be moved", refused)
        for warning in found.warnings:
            note(f"warning: {warning}")
    finish(ok=not refused)


def _margin(text: str) -> timedelta:
    try:
        margin = parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--margin {error}") from None
    if not timedelta(0) <= margin <= timedelta(days=3650):
        raise UsageError(f"--margin {text!r} must be from 0 to 3650 days")
    return margin


def _need_delayed_delivery(settings: Settings) -> None:
    if settings.disable_delayed_delivery:
        raise DelayedDeliveryDisabled(
            f"delayed delivery of endpoint {settings.endpoint!r} is switched off, so nobody would deliver "
            "what is moved; unset POSTDATE_DISABLE_DELAYED_DELIVERY"
        )


class _Progress:
    """A line after every so many batches."""

    def __init__(self) -> None:
        self._batches = 0

    def __call__(self, event: Event) -> None:
        """Hear an event."""
        if isinstance(event, TimeoutsMoved):
            self._batches += 1
            if self._batches % 10 == 0:
                note(f"{event.moved_in_all:,} timeouts moved")


def _tell(call: Call, done: Drained, path: Path) -> None:
    verified = done.verified
    lists = {
        "refused": refused_fields(done.refused),
        "possible_duplicates": named_fields(done.doubtful),
        "missing": named_fields(verified.missing if verified else []),
        "changed": named_fields(verified.changed if verified else []),
    }
    values: dict[str, object] = {
        "run": done.run,
        "moved": done.moved.count,
        **tally_fields(done.moved),
        "too_soon": done.too_soon,
        "taken": done.taken,
        "arrived": done.arrived,
        **lists,
        "verified": verified.ok if verified else None,
        "expected": verified.expected.count if verified else None,
        "found": verified.found.count if verified else None,
        "delivered": verified.delivered if verified else None,
        "checksum_expected": verified.expected.text if verified else None,
        "checksum_found": verified.found.text if verified else None,
        "undo_file": str(path),
    }
    if call.out.json:
        call.out.line(values)
        return
    counted = {name: len(lists[name]) if name in lists else value for name, value in values.items()}
    del counted["by_destination"]
    call.out.record(counted)
    print_tally(call, done.moved)
    print_named(call, "can't be moved, and stay where they are", lists["refused"])
    print_named(call, "may be delivered twice", lists["possible_duplicates"])
    print_named(call, "missing: lost, cancelled or moved by somebody", lists["missing"])
    print_named(call, "changed", lists["changed"])
    if done.arrived:
        note(f"{done.arrived:,} timeouts came meanwhile; run the same command again")
    if done.too_soon:
        note(f"{done.too_soon:,} timeouts are due so soon that they stay with the timeout manager")
