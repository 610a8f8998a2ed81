"""What `errors retry` and `errors discard` share: move what is held, and say what became of each message."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from postdate.cli.command import Call, finish
from postdate.cli.errors.groups import print_groups
from postdate.cli.errors.listing import tell_hidden
from postdate.cli.failures import INTERRUPTED
from postdate.cli.progress import Display, progress_display
from postdate.cli.signals import stop_signals
from postdate.core.error_groups import grouped
from postdate.core.error_selection import Selection
from postdate.endpoint import Endpoint
from postdate.engine.error_moves import SETTLED, ErrorMoves, Moved, MoveSettings, Outcome
from postdate.engine.error_queue import ErrorQueue, Hold
from postdate.engine.undo_file import Header, UndoWriter
from postdate.errors import PostdateError, UsageError

UndoFileOption = Annotated[
    Path | None,
    typer.Option(
        "--undo-file",
        help="Where to keep what undo needs; default: postdate-errors-INSTANT.jsonl in this folder.",
    ),
]
#: What `--json` prints of each message, and at the end.
MOVE_KEYS = (
    "one object for each message: `message_id`, `native_id`, `destination`, `outcome`, `reason`; and one at "
    "the end: `selected`, `done`, `outcomes` (numbers by outcome), `left` (not tried, because it was "
    "interrupted), `destinations` (numbers by queue, of a retry), `undo_file` (null where nothing was to be "
    "done), `preview`, `seconds`"
)
_NOT_FOUND = "not found"


@dataclass
class Move:
    """One run of a command that moves messages."""

    call: Call
    endpoint: Endpoint
    queue: ErrorQueue
    selection: Selection
    #: `retry` or `discard`.
    did: str
    settings: MoveSettings
    undo_file: Path | None
    #: Numbers by queue, of a retry.
    destinations: dict[str, int] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    _selected: int = 0
    _told: int = 0

    def check_found(self, hold: Hold) -> None:
        """Say which ids were not found; refuse a group's key that fits none, or several.

        Raises:
            UsageError: there are several such groups.
            PostdateError: there is none.
        """
        self._selected = len(hold.held)
        found = {one.message.message_id for one in hold.held} | {one.message.native_id for one in hold.held}
        for missing in sorted(self.selection.ids - found):
            self.outcomes[_NOT_FOUND] += 1
            self._print(missing, None, None, _NOT_FOUND, "no such message in the error queue")
        if self.selection.group is None:
            return
        groups = sorted({one.message.group for one in hold.held})
        if len(groups) > 1:
            raise UsageError(
                f"--group {self.selection.group} fits {', '.join(groups)}; write more of the key"
            )
        if not groups:
            raise PostdateError(
                f"there is no message of group {self.selection.group} in {self.queue.queue}; "
                "`postdate errors groups` shows the groups"
            )

    def preview(self, hold: Hold) -> None:
        """Say what would be done."""
        self._finish(hold, None, 0.0, preview=True)
        if hold.held and not self.call.out.json:
            self.call.out.text("")
            print_groups(
                self.call, grouped(one.message for one in hold.held), self.endpoint.parts.clock.now()
            )
        finish(ok=not self.outcomes)

    async def carry_out(self, hold: Hold) -> None:
        """Move what is held, and say what became of it; ends with the exit code.

        Raises:
            UsageError: the undo file can't be made; nothing was moved.
            StorageError, OSError: service or disk failed; what became of whom was told.
        """
        clock = self.endpoint.parts.clock
        if not hold.held:
            self._finish(hold, None, 0.0)
            finish(ok=not self.outcomes)
            return
        undo = await self._undo_writer(clock.now())
        self.call.out.note(
            f"what is needed to undo it goes to {undo.path}; it holds bodies, and only you can read it"
        )
        began = clock.monotonic()
        failure: PostdateError | OSError | None = None
        tried = 0
        try:
            with stop_signals() as stop, self._progress() as display:
                moves = ErrorMoves(self.endpoint.parts.backend, clock, self.queue, undo, self.settings)
                work = moves.retry if self.did == "retry" else moves.discard
                tried = await self._work(work, hold, stop, display)
        except (PostdateError, OSError) as error:
            failure = error
        finally:
            await undo.close()
        self._finish(hold, undo.path, clock.monotonic() - began)
        if failure is not None:
            raise failure
        finish(ok=tried == len(hold.held), code=INTERRUPTED)
        finish(ok=set(self.outcomes) <= SETTLED)

    async def _work(
        self,
        work: Callable[[Hold, asyncio.Event, Callable[[Moved], object]], Awaitable[int]],
        hold: Hold,
        stop: asyncio.Event,
        display: Display,
    ) -> int:
        def tell(moved: Moved) -> None:
            self._told += 1
            self.outcomes[moved.outcome] += 1
            message = moved.message
            self._print(
                message.message_id, message.native_id, moved.destination, moved.outcome, moved.reason, display
            )
            display.update(f"{self._told:,} of {self._selected:,}", self._told)

        return await work(hold, stop, tell)

    def _progress(self) -> AbstractContextManager[Display]:
        return progress_display(self._selected, self.endpoint.parts.clock, prints=self.call.out.json)

    async def _undo_writer(self, now: datetime) -> UndoWriter:
        header = Header(self.did, self.queue.queue, self.endpoint.settings.endpoint, now)
        path = self.undo_file or Path(f"postdate-errors-{now:%Y%m%dT%H%M%S.%f}Z.jsonl")
        return await UndoWriter.create(path, header)

    def _print(
        self,
        message_id: str,
        native_id: str | None,
        destination: str | None,
        outcome: str,
        reason: str | None,
        display: Display | None = None,
    ) -> None:
        """One line for each message; people see only those that were not moved as they wanted."""
        if self.call.out.json:
            self.call.out.line(
                {
                    "message_id": message_id,
                    "native_id": native_id,
                    "destination": destination,
                    "outcome": outcome,
                    "reason": reason,
                }
            )
        elif outcome not in (Outcome.RETRIED, Outcome.DISCARDED):
            text = f"{message_id}: {outcome}" + (f": {reason}" if reason else "")
            (display or self.call.out).note(text)

    def _finish(self, hold: Hold, undo_file: Path | None, seconds: float, *, preview: bool = False) -> None:
        values = {
            "selected": self._selected,
            "done": self.outcomes[Outcome.RETRIED] + self.outcomes[Outcome.DISCARDED],
            "outcomes": dict(sorted(self.outcomes.items())),
            "left": 0 if preview else self._selected - self._told,
            "destinations": self.destinations,
            "undo_file": None if undo_file is None else str(undo_file),
            "preview": preview,
            "seconds": round(seconds, 3),
        }
        if self.call.out.json:
            self.call.out.line(values)
            return
        values |= {name: _numbers(values[name]) for name in ("outcomes", "destinations")}
        # What is nothing is no news.
        told = {name: value for name, value in values.items() if value or name == "selected"}
        self.call.out.record(told)
        tell_hidden(self.call, hold.hidden)


def _numbers(by_name: object) -> str | None:
    """Numbers by name, for people."""
    assert isinstance(by_name, dict)
    return ", ".join(f"{name} {number:,}" for name, number in by_name.items()) or None
