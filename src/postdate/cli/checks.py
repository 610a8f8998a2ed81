"""What `postdate doctor` looks at. Nothing here changes anything in the storage account."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches

from postdate.cli.findings import Check, Status, failed
from postdate.cli.render import instant, relative
from postdate.clock import StorageClock
from postdate.endpoint import Endpoint
from postdate.engine.lookup import ScheduledMessage, State
from postdate.errors import (
    AccessDenied,
    ConfigurationError,
    DestinationNotFound,
    PostdateError,
    StorageUnreachable,
)
from postdate.model.delayed import UnreadableRow
from postdate.model.keys import EPOCH, RowKey
from postdate.model.names import split_address
from postdate.ports import LeaderRecord, Receipt
from postdate.settings import LeaseTarget, Settings

#: Seconds of offset between the clocks that are worth a word.
_OFFSET_SECONDS = 5.0
#: The service refuses keys and signatures from a machine whose clock is off by more.
_REFUSED_OFFSET_SECONDS = 900.0
#: The service tells whole seconds, so readings spread over one narrow the offset down.
_CLOCK_READINGS = 12
_CLOCK_PAUSE_SECONDS = 0.09
#: Destinations asked for; more are counted, not asked for.
_DESTINATIONS = 200
_NOWHERE = RowKey("postdate-doctor", "postdate-doctor")


@dataclass(slots=True)
class Scan:
    """What the waiting rows tell, in a size that does not depend on how many they are."""

    rows: int = 0
    foreign: int = 0
    failing: int = 0
    unreadable: int = 0
    oldest_due_at: datetime | None = None
    destinations: Counter[str] = field(default_factory=Counter)

    def add(self, message: ScheduledMessage) -> None:
        """Count one row."""
        self.rows += 1
        self.unreadable += message.state is State.UNREADABLE
        self.failing += message.state is State.FAILING
        # Only we write when a message was scheduled.
        self.foreign += message.scheduled_at is None and message.state is not State.UNREADABLE
        if message.state is State.WAITING and message.due_at is not None:
            self.oldest_due_at = min(self.oldest_due_at or message.due_at, message.due_at)
        if message.destination in self.destinations or len(self.destinations) < _DESTINATIONS:
            self.destinations[message.destination] += 1


async def check_clock(endpoint: Endpoint) -> Check:
    """How far this machine's clock is from the storage service's."""
    clock = endpoint.parts.clock
    if not isinstance(clock, StorageClock):
        return Check("clock", Status.SKIPPED, "this backend has no clock of its own")
    for _ in range(_CLOCK_READINGS):
        await endpoint.parts.backend.reach()
        await clock.sleep(_CLOCK_PAUSE_SECONDS)
    offset, uncertainty = clock.offset, clock.uncertainty
    if offset is None or uncertainty is None:
        return Check("clock", Status.SKIPPED, "the service told no time")
    found = (
        f"the service's clock is {offset:+.3f} s from this machine's, give or take {uncertainty / 2:.3f} s"
    )
    beyond = abs(offset) - uncertainty
    if beyond > _REFUSED_OFFSET_SECONDS:
        return Check("clock", Status.FAILED, found, "set this machine's clock (NTP): keys are refused")
    if beyond > _OFFSET_SECONDS:
        fix = "set this machine's clock (NTP); due times are judged by the service's, so delivery is right"
        return Check("clock", Status.WARNING, found, fix)
    return Check("clock", Status.OK, found)


async def check_table(endpoint: Endpoint) -> list[Check]:
    """Table there, rows readable and removable."""
    store = endpoint.parts.backend.store
    next_due = await store.next_due()
    nowhere = UnreadableRow(_NOWHERE, "W/\"datetime'2000-01-01T00%3A00%3A00Z'\"", "probe", {})
    return [
        Check("read rows", Status.OK, f"next due {instant(next_due)}" if next_due else "nothing waits"),
        # A row that is not there: says whether we might, and changes nothing.
        await _allowed("remove rows", store.remove([nowhere])),
    ]


async def _allowed(name: str, operation: Awaitable[object]) -> Check:
    """Whether an operation that finds nothing to do is allowed; any other answer than 403 says yes."""
    try:
        await operation
    except (AccessDenied, StorageUnreachable) as error:
        return failed(name, error)
    except PostdateError:
        pass
    return Check(name, Status.OK, "allowed")


async def check_queues(endpoint: Endpoint) -> list[Check]:
    """Error queue and own queue, and what we may do with queues."""
    sender, settings = endpoint.parts.backend.sender, endpoint.settings
    checks = [await _error_queue(endpoint)]
    try:
        if not await sender.exists(settings.own_queue):
            fix = "`postdate setup`, unless this endpoint only sends"
            checks.append(Check("own queue", Status.WARNING, f"{settings.own_queue!r} is missing", fix))
        else:
            checks.append(Check("own queue", Status.OK, f"{settings.own_queue!r} is there"))
    except ConfigurationError:
        checks.append(Check("own queue", Status.SKIPPED, "it has none"))
    nowhere = Receipt("00000000-0000-0000-0000-000000000000", "AAAA")
    checks.append(await _allowed("remove messages", sender.withdraw(settings.error_queue, nowhere)))
    return checks


async def _error_queue(endpoint: Endpoint) -> Check:
    name = endpoint.settings.error_queue
    try:
        count = await endpoint.parts.backend.sender.approximate_count(name)
    except DestinationNotFound:
        fix = "`postdate setup`; until then what can't be delivered stays in the table"
        return Check("error queue", Status.FAILED, f"{name!r} is missing", fix)
    if count:
        fix = f"`postdate receive {name} --no-ack` shows them"
        return Check("error queue", Status.WARNING, f"{name!r} holds about {count:,} messages", fix)
    return Check("error queue", Status.OK, f"{name!r} is there, and empty")


async def check_lease(endpoint: Endpoint) -> list[Check]:
    """Container there, lease usable, and who leads."""
    backend = endpoint.parts.backend
    record = await backend.lease.holder()
    await backend.payloads.sweep(EPOCH)  # lists, and finds nothing that old; tells a missing container
    return [
        # Gives back what we do not hold: says whether we might, and changes nothing.
        await _allowed("use the lease", backend.lease.release()),
        await _allowed("read large bodies", backend.payloads.get("postdate-doctor")),
        _leader(record, endpoint.settings, endpoint.parts.clock.now()),
    ]


def _leader(record: LeaderRecord | None, settings: Settings, now: datetime) -> Check:
    if record is None or not record.leased:
        last = "" if record is None else f"; the last was {record.holder} in term {record.term}"
        return Check("leader", Status.WARNING, f"no process of ours leads{last}", "start `postdate run`")
    found = f"{record.holder} in term {record.term}, since {relative(record.since, now)}"
    ours = settings.lookahead.total_seconds()
    if record.lookahead_s != ours:
        fix = "give all processes of the endpoint the same POSTDATE_LOOKAHEAD"
        return Check(
            "leader",
            Status.WARNING,
            f"{found}; its lookahead is {record.lookahead_s:g} s, ours {ours:g} s",
            fix,
        )
    return Check("leader", Status.OK, found)


async def scan(messages: AsyncIterator[ScheduledMessage]) -> Scan:
    """Read the waiting rows."""
    found = Scan()
    async for message in messages:
        found.add(message)
    return found


async def check_backlog(endpoint: Endpoint, found: Scan, limit: int) -> list[Check]:
    """What the waiting rows tell."""
    more = f" (the first {limit:,} were read)" if limit and found.rows >= limit else ""
    checks: list[Check | None] = [
        Check("backlog", Status.OK, f"{found.rows:,} messages wait{more}, {found.failing:,} of them failing"),
        _overdue(found, endpoint.settings, endpoint.parts.clock.now()),
        _foreign(found, endpoint.settings),
        *[await _destination(endpoint, name, n) for name, n in found.destinations.most_common()],
    ]
    if found.unreadable:
        fix = "nothing: at its due time each goes to the error queue, with the reason"
        checks.append(Check("readable", Status.WARNING, f"{found.unreadable:,} rows can't be read", fix))
    return [check for check in checks if check is not None]


def _overdue(found: Scan, settings: Settings, now: datetime) -> Check:
    tolerated = settings.idle_interval + settings.lease_duration + settings.probe_interval
    oldest = found.oldest_due_at
    if oldest is None or now - oldest <= tolerated:
        return Check("overdue", Status.OK, "nothing waits past its due time")
    found_text = f"a message waits since {instant(oldest)} ({relative(oldest, now)})"
    return Check("overdue", Status.FAILED, found_text, "start `postdate run`, and look at its log")


def _foreign(found: Scan, settings: Settings) -> Check:
    if not found.foreign:
        return Check(".NET", Status.OK, "no waiting row was written by a .NET endpoint")
    text = f"{found.foreign:,} waiting rows were written by others (.NET)"
    if settings.lease_target is LeaseTarget.BLOB:
        fix = "set POSTDATE_LEASE_TARGET=container, so that both elect one leader"
        return Check(".NET", Status.FAILED, f"{text}, and the lease is on a blob", fix)
    return Check(".NET", Status.OK, f"{text}; both sides elect one leader by the container's lease")


async def _destination(endpoint: Endpoint, name: str, count: int) -> Check | None:
    """A queue that waiting messages need; None where all is well."""
    sender, title = endpoint.parts.backend.sender, f"destination {name}"
    found = f"the queue is missing for {count:,} waiting message{'s' if count > 1 else ''}"
    try:
        if await sender.exists(name):
            return None
        address = split_address(name)
        near = get_close_matches(address.queue, await sender.names(address.alias), n=2, cutoff=0.5)
    except PostdateError as error:
        return failed(title, error)
    hint = f"; there is {', '.join(near)}" if near else ""
    return Check(title, Status.FAILED, found + hint, f"`postdate setup --queue {name}`")
