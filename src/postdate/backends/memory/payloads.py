"""Large bodies in memory."""

from datetime import datetime

from postdate.errors import PoisonMessage

#: Body (None: done with) and when age may clean it up, by name.
PayloadSlot = dict[str, tuple[bytes | None, datetime]]


class MemoryPayloads:
    """PayloadStore in memory."""

    def __init__(self, slot: PayloadSlot) -> None:
        self._slot = slot

    async def put(self, name: str, body: bytes, *, keep_until: datetime) -> None:
        """Store it, unless it is there or done with."""
        self._slot.setdefault(name, (body, keep_until))

    async def keep(self, name: str, *, keep_until: datetime) -> None:
        """Keep it longer."""
        if name in self._slot:
            body, until = self._slot[name]
            self._slot[name] = (body, max(until, keep_until))

    async def get(self, name: str) -> bytes | None:
        """The body, or None when its message is done with."""
        if name not in self._slot:
            raise PoisonMessage(f"the large body {name!r} is not there; it was removed by age or by hand")
        return self._slot[name][0]

    async def delete(self, name: str) -> None:
        """Leave a mark in place of the body."""
        if name in self._slot:
            self._slot[name] = (None, self._slot[name][1])

    async def sweep(self, now: datetime) -> int:
        """Remove what is past its age."""
        old = [name for name, (_, until) in self._slot.items() if until <= now]
        for name in old:
            del self._slot[name]
        return len(old)
