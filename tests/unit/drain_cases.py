"""Timeouts as older endpoints leave them, an older manager that releases them, and drains of them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from engine_cases import World

from postdate.legacy.drain import Drained
from postdate.legacy.ground import Selection
from postdate.legacy.undo import PutBack
from postdate.legacy.undo_file import UndoFile
from postdate.model import headers as h
from postdate.model.legacy_timeout import LegacyTimeout

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
SAGA = "7c1f3b52-9a40-4c43-8b7e-b3f2007a11c6"


async def stored(world: World, count: int, *, after: timedelta = DAY, **more: Any) -> list[LegacyTimeout]:
    """So many timeouts in the store, a minute apart, the first due after so long."""
    timeouts = [
        timeout(world, number, after=after + number * timedelta(minutes=1), **more) for number in range(count)
    ]
    await world.backend.timeouts.create()
    for one in timeouts:
        await world.backend.timeouts.add(one)
    return timeouts


def timeout(world: World, number: int = 0, *, after: timedelta = DAY, **more: Any) -> LegacyTimeout:
    """A timeout as the manager of an older endpoint stores it."""
    due_at = world.clock.now() + after + timedelta(microseconds=987_654)
    destination = more.get("destination", "orders")
    headers = {
        h.MESSAGE_ID: f"m{number:05d}",
        "Größe": 'XL "& <b>',
        h.TIMEOUT_EXPIRE: h.format_instant(due_at),
        h.TIMEOUT_DESTINATION: destination,
    }
    made = LegacyTimeout(
        id=f"3f0d7f3e-6a1c-4f0b-9a55-{number:012d}",
        destination=destination,
        due_at=due_at,
        headers=headers,
        body=f'{{"n":{number}}}'.encode(),
        owner=world.endpoint.settings.endpoint,
        saga_id=SAGA if number % 2 else None,
    )
    return replace(made, **more)


class OldManager:
    """What an older endpoint does with what is due: look up, send, remove. Its clock may be ahead."""

    def __init__(self, world: World, *, ahead: timedelta = timedelta(0)) -> None:
        self._timeouts = world.backend.timeouts
        self._world = world
        self._ahead = ahead
        #: Message ids, in the order of their sending.
        self.released: list[str | None] = []

    async def poll(self) -> None:
        async for page in self._timeouts.due(self._world.clock.now() + self._ahead):
            for due in page:
                found = await self._timeouts.get(due.id)
                if found is not None:
                    self.released.append(found.headers[h.MESSAGE_ID])
                    await self._timeouts.remove(due.id)


class Watched:
    """A store that tells of each call before it is made, and after."""

    def __init__(self, inner: Any, tell: Callable[[str, bool], None]) -> None:
        self._inner = inner
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        if name in ("due", "all", "upcoming"):
            return member

        async def call(*args: Any, **more: Any) -> Any:
            self._tell(name, False)
            answer = await member(*args, **more)
            self._tell(name, True)
            return answer

        return call


async def drain(world: World, path: Any, selection: Selection | None = None, stop: Any = None) -> Drained:
    """Run a drain with this undo file."""
    with undo_file(world, path) as file:
        return await world.endpoint.parts.migration.drain(selection or Selection(), file, stop)


async def undo(world: World, path: Any, stop: Any = None) -> PutBack:
    """Undo what is in this undo file."""
    with undo_file(world, path) as file:
        return await world.endpoint.parts.migration.undo(file, stop)


def undo_file(world: World, path: Any) -> UndoFile:
    settings = world.endpoint.settings
    return UndoFile(path, endpoint=settings.endpoint, table=settings.table_name)


async def waiting(world: World) -> list[str]:
    """Message ids of all rows, in due order."""
    return [row.delayed.message.message_id async for row in world.backend.store.upcoming()]


async def left(world: World) -> list[str]:
    """Ids in the timeout store, in due order; each has its main row."""
    found = [one.id async for one in world.backend.timeouts.all()]
    return [one for one in found if await world.backend.timeouts.get(one) is not None]


def message_ids(timeouts: list[LegacyTimeout]) -> list[str | None]:
    return [one.headers[h.MESSAGE_ID] for one in timeouts]


def ids(timeouts: list[LegacyTimeout]) -> list[str]:
    return [one.id for one in timeouts]
