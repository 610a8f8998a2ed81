"""Where the delivery log is kept: append-only files by name, each with one writer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


class LogDisplaced(Exception):
    """A file of the log can't be continued: it is full, or somebody else wrote into it."""


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """A file of the log, and its length in bytes when it was listed."""

    name: str
    length: int


class DeliveryLogStore(Protocol):
    """Append-only files."""

    async def append(self, name: str, block: bytes, *, at: int) -> int:
        """Append a block to the file that is `at` bytes long; its new length.

        The file is made where `at` is 0. The same call again, after an answer was lost, appends nothing
        twice. Files of the writer are its own: their names are used by nobody else.

        Args:
            name: of the file.
            block: at most `model.limits.APPEND_BLOCK_BYTES`.
            at: how long the file is, as the call before told.

        Raises:
            LogDisplaced: it has another length, or takes no more blocks; nothing was appended.
            NotProvisioned: the container is missing.
        """
        ...

    def files(self, first: str | None = None, last: str | None = None) -> AsyncIterator[LogFile]:
        """Files of the hours `first` to `last` (`yyyyMMdd/HH`, both included; None: open), by name."""
        ...

    async def read(self, name: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, of a file that is at least so long.

        Raises:
            StorageError: the file is gone.
        """
        ...
