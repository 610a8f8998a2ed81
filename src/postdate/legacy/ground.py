"""What the ways of leaving the timeout manager share: what they work on, choose, and count."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postdate.clock import Clock
from postdate.concurrency import for_each
from postdate.errors import PoisonMessage
from postdate.events import Events
from postdate.legacy.judge import Judge, Refused, refused
from postdate.model.date_patterns import PartitionScope
from postdate.model.legacy_move import shown_address
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.ports import Backend

#: Timeouts that are moved together, so that a file of that many lines tells what is under way.
BATCH = 100
#: Timeouts read, or removed, at once.
AT_ONCE = 16
#: With less than this to the due time of the earliest, there is little time for a second thought.
SHORT_NOTICE = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class Ground:
    """An endpoint's two stores, and what is needed to judge and to move."""

    backend: Backend
    clock: Clock
    events: Events
    judge: Judge
    #: How long before its due time a leader may hold a copy of a row, at most.
    reach: Callable[[], Awaitable[timedelta]]
    endpoint: str
    table: str
    payload_retention: timedelta
    #: How older endpoints file a timeout by its due time.
    scope: PartitionScope


@dataclass(frozen=True, slots=True)
class Selection:
    """Which timeouts are to be moved."""

    #: Due at or after this instant; None: all.
    due_from: datetime | None = None
    #: What is due sooner than this from now stays with the timeout manager, which may be releasing it. Zero:
    #: no timeout manager runs, so everything is moved.
    margin: timedelta = timedelta(minutes=5)

    def too_soon(self, due_at: datetime, *, latest: datetime, reach: timedelta) -> bool:
        """Whether somebody may be releasing it."""
        return bool(self.margin) and due_at < latest + reach + self.margin

    def may_be_released(self, due_at: datetime, *, latest: datetime, reach: timedelta) -> bool:
        """Whether a timeout manager, its clock ahead by half the margin, may have released it by now."""
        return bool(self.margin) and due_at < latest + reach + self.margin / 2


@dataclass(slots=True)
class Group:
    """Timeouts for one destination."""

    count: int
    earliest: datetime
    latest: datetime


@dataclass(slots=True)
class Tally:
    """Timeouts counted by destination; its size does not depend on how many they are."""

    count: int = 0
    earliest: datetime | None = None
    latest: datetime | None = None
    by_destination: dict[str, Group] = field(default_factory=dict)

    def add(self, timeout: LegacyTimeout) -> None:
        """Count one."""
        due_at = timeout.due_at
        self.count += 1
        self.earliest = due_at if self.earliest is None else min(self.earliest, due_at)
        self.latest = due_at if self.latest is None else max(self.latest, due_at)
        name = shown_address(timeout.destination)
        group = self.by_destination.get(name)
        if group is None:
            self.by_destination[name] = Group(1, due_at, due_at)
            return
        group.count += 1
        group.earliest, group.latest = min(group.earliest, due_at), max(group.latest, due_at)


async def with_bodies(ground: Ground, timeouts: Sequence[LegacyTimeout]) -> list[LegacyTimeout | Refused]:
    """The timeouts as they are now, with their bodies; those that are gone by now are left out."""
    found: dict[str, LegacyTimeout | Refused | None] = {}

    async def read(one: LegacyTimeout) -> None:
        try:
            found[one.id] = await ground.backend.timeouts.get(one.id)
        except PoisonMessage as error:
            found[one.id] = refused(one, error)

    await for_each(timeouts, AT_ONCE, read)
    return [one for timeout in timeouts if (one := found[timeout.id]) is not None]
