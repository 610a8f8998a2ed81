"""The delivery log in memory."""

from collections.abc import AsyncIterator

from postdate.errors import StorageError
from postdate.model.delivery_log import hour_in
from postdate.ports import LogDisplaced, LogFile

#: Content by name.
LogSlot = dict[str, bytearray]


class MemoryLog:
    """DeliveryLogStore in memory."""

    def __init__(self, slot: LogSlot) -> None:
        self._slot = slot

    async def append(self, name: str, block: bytes, *, at: int) -> int:
        """Append a block; one that is there already is not appended again."""
        content = self._slot.setdefault(name, bytearray())
        if len(content) == at:
            content += block
        elif len(content) != at + len(block):
            raise LogDisplaced(f"{name} has {len(content)} bytes, not {at}")
        return len(content)

    async def files(self, first: str | None = None, last: str | None = None) -> AsyncIterator[LogFile]:
        """Files of a span of hours, by name."""
        for name, content in sorted(self._slot.items()):
            hour = hour_in(name) or ""
            if (first is None or hour >= first) and (last is None or hour <= last):
                yield LogFile(name, len(content))

    async def read(self, name: str, start: int, end: int) -> bytes:
        """A part of a file."""
        if name not in self._slot:
            raise StorageError(f"the file {name} of the delivery log is gone")
        return bytes(self._slot[name][start:end])
