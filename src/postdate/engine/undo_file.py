r"""What a command did to an error queue, line by line, so that it can be undone.

Lines of JSON, each on the disk (fsync) before the step that it makes harmless:

    {"postdate": "errors", "version": 1, "did": "retry", "error_queue": "error", "endpoint": ..., "at": ...}
    {"entry": 1, "native_id": ..., "message_id": ..., "destination": ..., "text": ..., "payload": ...}
    {"sent": 1, "native_id": ..., "pop_receipt": ...}         a retry's copy is in its queue
    {"outcome": 1, "is": "retried", "at": ...}                what became of it
    {"undone": 1, "is": "withdrawn", "at": ...}               added by `undo`

`text` is the queue message's, as it was in the error queue. `payload` is the name of its large body (claim
check) and `payload_body`, in a discard, that body in base64, since a discard drops it. An entry without an
outcome is one during which the process ended. A last line that was cut by that does not count.
"""

import asyncio
import base64
import binascii
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from postdate.errors import UsageError
from postdate.model.failed import FailedMessage
from postdate.ports import Receipt

_VERSION = 1
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Header:
    """What the whole file is about."""

    did: str
    error_queue: str
    endpoint: str
    at: datetime


class UndoWriter:
    """Writes an undo file. Each method returns when the line is on the disk."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._entries = 0
        # Lines are written whole, and one after the other; none behind one that was cut by a full disk.
        self._turn = asyncio.Lock()
        self._failure: OSError | None = None

    @classmethod
    async def create(cls, path: Path, header: Header) -> Self:
        """A new file that only its owner can read.

        Raises:
            UsageError: there is one of that name, or it can't be created.
        """
        writer = cls(path, await asyncio.to_thread(_opened, path, os.O_CREAT | os.O_EXCL))
        about = {"did": header.did, "error_queue": header.error_queue, "endpoint": header.endpoint}
        await writer._write({"postdate": "errors", "version": _VERSION, **about, "at": header.at})
        await asyncio.to_thread(_sync_folder, path.parent)
        return writer

    @classmethod
    async def append(cls, file: "UndoFile") -> Self:
        """The file of an earlier command, to be added to; a last line that was cut is dropped.

        Raises:
            UsageError: it can't be written.
        """
        descriptor = await asyncio.to_thread(_opened, file.path, os.O_APPEND)
        os.ftruncate(descriptor, file.length)
        return cls(file.path, descriptor)

    async def entry(
        self, message: FailedMessage, text: str, *, destination: str | None, payload_body: bytes | None = None
    ) -> int:
        """A message is about to be moved or deleted; the entry's number."""
        self._entries += 1
        number = self._entries
        await self._write(
            {
                "entry": number,
                "native_id": message.native_id,
                "message_id": message.message_id,
                "destination": destination,
                "text": text,
                "payload": message.payload,
                "payload_body": payload_body,  # bytes are written as base64
            }
        )
        return number

    async def sent(self, number: int, receipt: Receipt) -> None:
        """The copy of a retried message is in its queue."""
        await self._write(
            {"sent": number, "native_id": receipt.native_id, "pop_receipt": receipt.pop_receipt}
        )

    async def outcome(self, number: int, outcome: str, at: datetime) -> None:
        """What became of it."""
        await self._write({"outcome": number, "is": outcome, "at": at})

    async def undone(self, number: int, result: str, at: datetime) -> None:
        """What undoing it came to."""
        await self._write({"undone": number, "is": result, "at": at})

    async def close(self) -> None:
        """No more lines."""
        async with self._turn:
            os.close(self._descriptor)

    async def _write(self, values: dict[str, Any]) -> None:
        line = msgspec.json.encode(values) + b"\n"
        async with self._turn:
            if self._failure is not None:
                raise self._failure
            try:
                await asyncio.to_thread(_write_and_sync, self._descriptor, line)
            except OSError as error:
                self._failure = OSError(error.errno, error.strerror, str(self.path))
                raise self._failure from error


@dataclass(slots=True)
class Entry:
    """One message of an undo file; its text is read when it is needed."""

    number: int
    native_id: str
    message_id: str
    destination: str | None
    #: Where its line begins, and its bytes.
    place: tuple[int, int]
    sent: Receipt | None = None
    #: None: the process ended before.
    outcome: str | None = None
    undone: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a discard or retry keeps of a message."""

    text: str
    payload: str | None
    payload_body: bytes | None


class UndoFile:
    """An undo file that is read. Its size does not matter: of each entry little is kept."""

    def __init__(self, path: Path, header: Header, entries: list[Entry], length: int) -> None:
        self.path = path
        self.header = header
        self.entries = entries
        #: Bytes of its whole lines.
        self.length = length

    @classmethod
    def read(cls, path: Path) -> "UndoFile":
        """Read it.

        Raises:
            UsageError: it can't be read, or is no undo file.
        """
        entries: dict[int, Entry] = {}
        header: Header | None = None
        start = 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.endswith(b"\n"):
                        break  # cut by the end of the process: the step after it was never taken
                    try:
                        values = msgspec.json.decode(line, type=dict[str, Any])
                        header = header or _header(values)
                        _note(entries, values, (start, len(line)))
                    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
                        raise UsageError(f"{path}, line {number}: this is not an undo file") from None
                    start += len(line)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        if header is None:
            raise UsageError(f"{path} is empty: its command ended before it changed anything")
        return cls(path, header, list(entries.values()), start)

    def recorded(self, entry: Entry) -> Recorded:
        """What was kept of a message.

        Raises:
            UsageError: the file was changed meanwhile.
        """
        start, length = entry.place
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                values = msgspec.json.decode(file.read(length), type=dict[str, Any])
            body = values["payload_body"]
            return Recorded(
                str(values["text"]),
                values["payload"],
                None if body is None else base64.b64decode(body, validate=True),
            )
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}") from None
        except (msgspec.MsgspecError, KeyError, TypeError, binascii.Error):
            raise UsageError(f"{self.path}: entry {entry.number} can't be read") from None


def _header(values: dict[str, Any]) -> Header:
    if values["postdate"] != "errors" or values["version"] != _VERSION:
        raise ValueError("of something else")
    return Header(
        str(values["did"]),
        str(values["error_queue"]),
        str(values["endpoint"]),
        datetime.fromisoformat(values["at"]),
    )


def _note(entries: dict[int, Entry], values: dict[str, Any], place: tuple[int, int]) -> None:
    """What a line adds to what is known."""
    if "entry" in values:
        number = values["entry"]
        destination = values["destination"]
        entries[number] = Entry(number, values["native_id"], values["message_id"], destination, place)
    elif "sent" in values:
        entries[values["sent"]].sent = Receipt(values["native_id"], values["pop_receipt"])
    elif "outcome" in values:
        entries[values["outcome"]].outcome = values["is"]
    elif "undone" in values:
        entries[values["undone"]].undone = values["is"]


def _opened(path: Path, flags: int) -> int:
    try:
        return os.open(path, os.O_WRONLY | flags, _OWNER_ONLY)
    except FileExistsError:
        raise UsageError(f"{path} is there already; give another name with --undo-file") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give another place with --undo-file") from None


def _write_and_sync(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    """So that the file's name outlives a power failure too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
