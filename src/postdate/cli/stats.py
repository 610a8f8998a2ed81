"""`postdate stats`: the backlog in figures."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.text import Text

from postdate.cli.command import Call, command
from postdate.cli.cost import print_expected, print_measured
from postdate.cli.leader import leader_fields
from postdate.cli.render import instant, relative
from postdate.endpoint import Endpoint
from postdate.engine.lookup import ScheduledMessage, State
from postdate.errors import ConfigurationError, DestinationNotFound

_HOUR = timedelta(hours=1)
_BAR = 40


@dataclass(slots=True)
class Backlog:
    """What waits, counted in one go over the rows; its size does not depend on theirs."""

    now: datetime
    hours: int
    waiting: int = 0
    overdue: int = 0
    failing: int = 0
    unreadable: int = 0
    later: int = 0
    oldest_due_at: datetime | None = None
    next_due_at: datetime | None = None
    by_hour: dict[datetime, int] = field(default_factory=dict)

    def add(self, message: ScheduledMessage) -> None:
        """Count one message."""
        self.waiting += 1
        self.failing += message.state is State.FAILING
        self.unreadable += message.state is State.UNREADABLE
        due_at = message.due_at
        if due_at is None or due_at <= self.now:
            self.overdue += 1
            if due_at is not None and (self.oldest_due_at is None or due_at < self.oldest_due_at):
                self.oldest_due_at = due_at
            return
        if self.next_due_at is None or due_at < self.next_due_at:
            self.next_due_at = due_at
        hour = due_at.replace(minute=0, second=0, microsecond=0)
        if hour < self.now + self.hours * _HOUR:
            self.by_hour[hour] = self.by_hour.get(hour, 0) + 1
        else:
            self.later += 1


@command(
    prints="one object: `now` (by the storage service), `waiting`, `overdue`, `oldest_overdue_at`, "
    "`oldest_overdue_s`, `next_due_at`, `failing`, `unreadable`, `by_hour` (list of `hour`, `count`), "
    "`later`, `own_queue_count`, `error_queue_count` (approximate; null where there is no such queue), "
    "and the keys of `leader`. With `--cost` or `--requests`: `prices` (what they are), `currency`, and "
    "either `waiting`, `expected` (list of `what`, `per`, `requests`, `counts` by operation, `cost`, "
    "`cost_per_month`, `unpriced`), or `covered_s` (of all processes together), `requests`, `handed_over`, "
    "`cost`, `cost_per_million` (hand-overs; null without any), `unpriced` (operations without a price, left "
    "out of the cost), `operations` (list of `operation`, `requests`, `throttled`, `cost`)"
)
async def stats(
    call: Call,
    hours: Annotated[int, typer.Option(min=1, max=8760, help="Hours ahead to count one by one.")] = 24,
    cost: Annotated[bool, typer.Option("--cost", help="What requests will cost, by the settings.")] = False,
    requests: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="What requests did cost, by the JSON log in FILE (- is stdin); may be repeated.",
        ),
    ] = None,
) -> None:
    """Show the backlog by hour, the oldest overdue message, failing rows, and who leads; or what it costs.

    Reads every waiting row once, page by page; with --requests it asks nothing of the storage account.
    Prices are list prices, or those of POSTDATE_PRICES.
    """
    if requests:
        print_measured(call, requests)
        return
    if cost:
        await print_expected(call)
        return
    async with call.endpoint() as endpoint:
        record = await endpoint.parts.backend.lease.holder()
        backlog = await count(endpoint.upcoming(), endpoint.parts.clock.now(), hours)
        own, failed = await _queue_counts(endpoint)
    oldest = backlog.oldest_due_at
    values = {
        "now": backlog.now,
        "waiting": backlog.waiting,
        "overdue": backlog.overdue,
        "oldest_overdue_at": oldest,
        "oldest_overdue_s": None if oldest is None else (backlog.now - oldest).total_seconds(),
        "next_due_at": backlog.next_due_at,
        "failing": backlog.failing,
        "unreadable": backlog.unreadable,
        "by_hour": [{"hour": hour, "count": n} for hour, n in backlog.by_hour.items()],
        "later": backlog.later,
        "own_queue_count": own,
        "error_queue_count": failed,
        **leader_fields(record),
    }
    if call.out.json:
        call.out.line(values)
    else:
        _print(call, backlog, values)


async def count(messages: AsyncIterator[ScheduledMessage], now: datetime, hours: int) -> Backlog:
    """Count messages as they come."""
    backlog = Backlog(now, hours)
    async for message in messages:
        backlog.add(message)
    return backlog


async def _queue_counts(endpoint: Endpoint) -> tuple[int | None, int | None]:
    try:
        own: str | None = endpoint.settings.own_queue
    except ConfigurationError:
        own = None
    return await _count(endpoint, own), await _count(endpoint, endpoint.settings.error_queue)


async def _count(endpoint: Endpoint, queue: str | None) -> int | None:
    if queue is None:
        return None
    try:
        return await endpoint.parts.backend.sender.approximate_count(queue)
    except DestinationNotFound:
        return None


def _print(call: Call, backlog: Backlog, values: dict[str, object]) -> None:
    people = {name: value for name, value in values.items() if name not in ("by_hour", "oldest_overdue_s")}
    people["oldest_overdue_at"] = _when(backlog.oldest_due_at, backlog.now)
    people["next_due_at"] = _when(backlog.next_due_at, backlog.now)
    call.out.record(people)
    if not backlog.by_hour:
        return
    most = max(backlog.by_hour.values())
    call.out.text("")
    call.out.table(
        ["hour (UTC)", "messages", ""],
        (
            (f"{hour:%Y-%m-%d %H}:00", n, Text("#" * max(1, round(_BAR * n / most)), style="blue"))
            for hour, n in backlog.by_hour.items()
        ),
    )


def _when(value: datetime | None, now: datetime) -> str:
    return "-" if value is None else f"{instant(value)} ({relative(value, now)})"
