"""What stands in the undo file of a drain: JSON lines, in the order in which things happened.

    began     a process begins a run, or goes on with one: run, endpoint, table, cut-off
    moving    one timeout with all that belongs to it, before anything of it is changed
    added     these have their rows; from now on they may be taken out of the timeout store
    settled   what became of timeouts that were `moving`
    finished  the run is over; the next one has a new name
    undone    these are back in the timeout store

So the file is also the memory of the run: whoever finds timeouts `moving` that are not `settled` looks where
each of them is. They are at most one batch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from postdate.errors import UsageError
from postdate.model.legacy_timeout import LegacyTimeout

VERSION = 1


class Began(msgspec.Struct, tag="began", tag_field="kind", frozen=True):
    """A process begins to work on a run."""

    run: str
    endpoint: str
    table: str
    at: datetime
    due_from: datetime | None
    margin_s: float
    version: int = VERSION


class Moving(msgspec.Struct, tag="moving", tag_field="kind", frozen=True):
    """A timeout is about to be moved."""

    timeout: LegacyTimeout


class Added(msgspec.Struct, tag="added", tag_field="kind", frozen=True):
    """The rows of these are durable."""

    ids: tuple[str, ...]


class Settled(msgspec.Struct, tag="settled", tag_field="kind", frozen=True):
    """What became of timeouts."""

    #: Their rows are what is left of them.
    moved: tuple[str, ...] = ()
    #: Nothing was changed for good: refused, or taken by somebody else and their rows withdrawn.
    left: tuple[str, ...] = ()
    #: Moved, and the timeout manager may have released them as well.
    doubtful: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.moved, *self.left, *self.doubtful)


class Finished(msgspec.Struct, tag="finished", tag_field="kind", frozen=True):
    """A run is over."""

    run: str
    at: datetime


class Undone(msgspec.Struct, tag="undone", tag_field="kind", frozen=True):
    """These are back in the timeout store, and their rows are gone."""

    ids: tuple[str, ...]


Line = Began | Moving | Added | Settled | Finished | Undone


@dataclass(slots=True)
class Batch:
    """Timeouts that were moved together, and how far that came."""

    timeouts: dict[str, LegacyTimeout] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    @property
    def open(self) -> dict[str, LegacyTimeout]:
        """Those of which nobody told what became of them."""
        return {one: self.timeouts[one] for one in self.timeouts if one not in self.moved | self.left}

    def settle(self, settled: Settled) -> None:
        """Note what became of some; not of those of an earlier run, which a later one may finish."""
        self.moved |= self.timeouts.keys() & {*settled.moved, *settled.doubtful}
        self.left |= self.timeouts.keys() & set(settled.left)


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of an undo file; one without its end is left out.

    Raises:
        UsageError: the file can't be read, or is no undo file.
    """
    decoder = msgspec.json.Decoder(Line)
    try:
        with path.open("rb") as source:
            for number, line in enumerate(source, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise UsageError(
                        f"{path}: line {number} is not one of an undo file ({error}); name the file that "
                        "`postdate legacy drain` wrote"
                    ) from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def batches(lines: Iterable[Line], *, run: str | None = None) -> Iterator[Batch]:
    """The batches of a file, or of one run, in the order in which they were moved."""
    batch = Batch()
    current: str | None = None
    for line in lines:
        if isinstance(line, Began):
            current = line.run
        if run is not None and current != run:
            continue
        if isinstance(line, Moving):
            if batch.timeouts and not batch.open:
                yield batch
                batch = Batch()
            batch.timeouts[line.timeout.id] = line.timeout
        elif isinstance(line, Added):
            batch.added.update(line.ids)
        elif isinstance(line, Settled):
            batch.settle(line)
    if batch.timeouts:
        yield batch
