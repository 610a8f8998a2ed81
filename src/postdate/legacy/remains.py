"""What is left for the timeout manager, and what a drain would do: both only look."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postdate.errors import DestinationNotFound, NotProvisioned
from postdate.legacy.ground import BATCH, SHORT_NOTICE, Ground, Selection, Tally, with_bodies
from postdate.legacy.judge import Movable, Refused
from postdate.model.durations import format_duration
from postdate.model.legacy_timeout import LegacyTimeout


@dataclass(slots=True)
class Remains:
    """What the timeout manager of an endpoint has left to do."""

    now: datetime
    #: Whether there is a timeout store at all.
    store: bool
    waiting: Tally = field(default_factory=Tally)
    #: Of them, due by now.
    overdue: int = 0
    #: Nobody can read them; they wait for ever.
    unreadable: int = 0
    #: Out of the manager's sight, since a migration tool has hidden them and did not finish.
    hidden: int = 0
    #: Messages in the manager's queues, about; None: there is no such queue.
    queues: dict[str, int | None] = field(default_factory=dict)

    @property
    def can_be_switched_off(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.waiting.count or self.unreadable or self.hidden or any(self.queues.values()))


@dataclass(slots=True)
class Preview:
    """What a drain would do."""

    movable: Tally = field(default_factory=Tally)
    too_soon: int = 0
    refused: list[Refused] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


async def look(ground: Ground, queues: Sequence[str]) -> Remains:
    """Count what is left.

    Raises:
        StorageError: the service did not tell all of it.
    """
    store = ground.backend.timeouts
    there = await store.exists()
    found = Remains(ground.clock.now(), there)
    if there:
        async for timeout in store.all():
            if isinstance(timeout, LegacyTimeout):
                found.waiting.add(timeout)
                found.overdue += timeout.due_at <= found.now
            else:
                found.unreadable += 1
        found.hidden = await store.hidden()
    for queue in queues:
        try:
            found.queues[queue] = await ground.backend.sender.approximate_count(queue)
        except DestinationNotFound:
            found.queues[queue] = None
    return found


async def preview(ground: Ground, selection: Selection, queues: Sequence[str]) -> Preview:
    """Judge every timeout as a drain would; nothing is written.

    Raises:
        StorageError: the service did not tell all of it.
    """
    result = Preview()
    result.warnings += await _before(ground, queues)
    reach = await ground.reach()
    latest = ground.clock.latest()
    batch: list[LegacyTimeout] = []
    async for timeout in ground.backend.timeouts.all(due_from=selection.due_from):
        if not isinstance(timeout, LegacyTimeout):
            result.refused.append(Refused(timeout.id, "", timeout.due_at, timeout.reason))
        elif selection.too_soon(timeout.due_at, latest=latest, reach=reach):
            result.too_soon += 1
        else:
            batch.append(timeout)
        if len(batch) >= BATCH:
            await _judge(ground, batch, result)
            batch = []
    await _judge(ground, batch, result)
    result.warnings += short_notice(result.movable.earliest, ground.clock.now())
    return result


async def _judge(ground: Ground, batch: Sequence[LegacyTimeout], result: Preview) -> None:
    whole = await with_bodies(ground, batch)
    verdicts = await ground.judge.judge([one for one in whole if isinstance(one, LegacyTimeout)])
    result.refused += [one for one in (*whole, *verdicts) if isinstance(one, Refused)]
    for one in verdicts:
        if isinstance(one, Movable):
            result.movable.add(one.timeout)


def short_notice(earliest: datetime | None, now: datetime) -> list[str]:
    """A warning, where the first is due soon."""
    if earliest is None or earliest - now >= SHORT_NOTICE:
        return []
    span = timedelta(seconds=round((earliest - now).total_seconds()))
    when = f"in {format_duration(span)}" if span > timedelta(0) else "already"
    limit = format_duration(SHORT_NOTICE)
    return [f"the earliest is due {when}, less than {limit} from now: what is delivered can't be put back"]


async def _before(ground: Ground, queues: Sequence[str]) -> list[str]:
    """What should be put right before anything is moved."""
    warnings = []
    try:
        await ground.backend.store.next_due()
    except NotProvisioned:
        warnings.append(f"table {ground.table} is missing; create it with `postdate setup`")
    leader = await ground.backend.lease.holder()
    if leader is None or not leader.leased:
        warnings.append(
            "no process of ours leads this endpoint: start `postdate run`, unless .NET processes deliver "
            "its rows"
        )
    hidden = await ground.backend.timeouts.hidden()
    if hidden:
        warnings.append(
            f"{hidden:,} timeouts are hidden by another migration tool: end or abort that migration first"
        )
    first = queues[0]
    try:
        coming = await ground.backend.sender.approximate_count(first)
    except DestinationNotFound:
        coming = 0
    if coming:
        warnings.append(
            f"{coming:,} messages in queue {first} are no timeouts yet; their manager stores them"
        )
    return warnings
