"""The undo file of a drain, as it is written: each step is on disk before the next is made.

A line that a killed process left unfinished is cut off. The file holds headers and bodies, so only its owner
may read it.
"""

import os
import stat
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from postdate.errors import UsageError
from postdate.legacy.undo_lines import (
    VERSION,
    Batch,
    Began,
    Finished,
    Line,
    Undone,
    batches,
    read_lines,
)
from postdate.local.locks import claim

_TAIL_BYTES = 65_536
_BEGINNING = b'{"kind":"began"'


class UndoFile(AbstractContextManager["UndoFile"]):
    """An undo file that is being written. One process at a time has it."""

    def __init__(self, path: Path, *, endpoint: str, table: str, create: bool = True) -> None:
        self.path = path
        self._endpoint = endpoint
        self._table = table
        self._flags = os.O_RDWR | (os.O_CREAT if create else 0)
        self._file: BinaryIO | None = None
        #: Of the run that is not finished yet.
        self.run: str | None = None
        #: The batch that a killed process left open.
        self.open_batch: Batch | None = None

    def __enter__(self) -> Self:
        """Take the file, and recall the run that is not finished.

        Raises:
            UsageError: it can't be written, another process has it, or it is not of this endpoint.
        """
        try:
            descriptor = os.open(self.path, self._flags, 0o600)
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{self.path}: not a file that can be read again")
            if not claim(self._file):
                raise UsageError(f"{self.path}: another process works with this file; wait for its end")
            self._recall()
            _cut_unfinished(self._file)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, lines: Sequence[Line]) -> None:
        """Append lines; they are on disk when this returns.

        Raises:
            UsageError: they may not be, so what they tell of must not be done.
        """
        assert self._file is not None
        content = memoryview(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        try:
            while content:
                content = content[self._file.write(content) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}; nothing more was moved") from None

    def finish(self, run: str, at: datetime) -> None:
        """The run is over."""
        self.write([Finished(run, at)])

    def _recall(self) -> None:
        assert self._file is not None
        began = False
        for line in read_lines(self.path):
            if isinstance(line, Began):
                self._check(line)
                self.run, began = line.run, True
            elif isinstance(line, Finished | Undone):
                self.run = None
        if not began and not _is_beginning(self._file):
            raise UsageError(f"{self.path}: this is no undo file; name another file")
        last = deque(batches(read_lines(self.path)), maxlen=1)
        self.open_batch = last[0] if last and last[0].open else None

    def _check(self, began: Began) -> None:
        if began.version != VERSION:
            raise UsageError(f"{self.path}: version {began.version} of the undo file is not known here")
        if (began.endpoint, began.table) != (self._endpoint, self._table):
            raise UsageError(
                f"{self.path}: this file is of endpoint {began.endpoint!r} with table {began.table}, not of "
                f"{self._endpoint!r} with {self._table}; name another file"
            )


def _is_beginning(file: BinaryIO) -> bool:
    """Whether a file without a whole line is empty, or the unfinished first line of ours."""
    file.seek(0)
    content = file.read(len(_BEGINNING))
    return _BEGINNING.startswith(content)


def _cut_unfinished(file: BinaryIO) -> None:
    """Cut off a line that has no end, and stand behind the last one that has."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _TAIL_BYTES)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    file.truncate(end)
    file.seek(end)
