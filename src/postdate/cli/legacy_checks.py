"""What `postdate doctor` says about the legacy timeout manager."""

from postdate.cli.findings import Check, Status
from postdate.cli.legacy.printing import deletable
from postdate.endpoint import Endpoint
from postdate.errors import AccessDenied, DestinationNotFound
from postdate.legacy.manager import MAKE_A_STORE

_NAME = "timeout manager"
#: Timeouts that are counted; more are told as more.
_COUNTED = 10_000
_SWITCH_OFF = "set POSTDATE_DISABLE_TIMEOUT_MANAGER=true"
_END_IT = "end or abort that migration with the tool that began it; `postdate legacy show` tells more"


async def check_timeout_manager(endpoint: Endpoint) -> list[Check]:
    """What older instances left, and whether the manager can be switched off."""
    settings = endpoint.settings
    if settings.disable_timeout_manager or not settings.endpoint:
        reason = "it has no name" if not settings.endpoint else "POSTDATE_DISABLE_TIMEOUT_MANAGER"
        return [Check(_NAME, Status.SKIPPED, f"switched off ({reason})")]
    if endpoint.parts.timeouts is None:
        return [Check(_NAME, Status.SKIPPED, "it does not run beside a store of your own")]
    try:
        return [await _check(endpoint)]
    except AccessDenied:
        return [Check(_NAME, Status.SKIPPED, "this identity may not look at what older instances left")]


async def _check(endpoint: Endpoint) -> Check:
    settings, backend = endpoint.settings, endpoint.parts.backend
    queues = {name: await _count(endpoint, name) for name in settings.timeout_queues}
    there = {name: count for name, count in queues.items() if count is not None}
    in_queues = ", ".join(f"{count:,} messages in {name}" for name, count in there.items())
    if not await backend.timeouts.exists():
        if not there:
            return Check(_NAME, Status.OK, "older instances left nothing, nor any queue")
        found = f"there is no store (table {settings.timeout_table}); {in_queues}"
        return Check(_NAME, Status.WARNING if any(there.values()) else Status.OK, found, MAKE_A_STORE)
    waiting = await backend.timeouts.count(limit=_COUNTED)
    more = "at least " if waiting >= _COUNTED else ""
    found = f"{more}{waiting:,} timeouts wait in table {settings.timeout_table}"
    if there:
        found = f"{found}; {in_queues}"
    hidden = await backend.timeouts.hidden()
    if hidden:
        return Check(_NAME, Status.WARNING, f"{found}; {hidden:,} are hidden by a migration tool", _END_IT)
    if waiting or any(there.values()):
        return Check(_NAME, Status.OK, found)
    named = "; ".join(deletable(there, settings, store=True))
    return Check(_NAME, Status.OK, found, f"{_SWITCH_OFF}, then delete {named}")


async def _count(endpoint: Endpoint, queue: str) -> int | None:
    """Messages in a queue, hidden ones included; None: it is not there."""
    try:
        return await endpoint.parts.backend.sender.approximate_count(queue)
    except DestinationNotFound:
        return None
