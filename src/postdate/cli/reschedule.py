"""`postdate reschedule`: another due time."""

from postdate.cli.command import Call, command, finish
from postdate.cli.show import Handle
from postdate.cli.times import At, Delay, one_of
from postdate.engine.changes import RescheduleOutcome


@command(
    prints="one object: `outcome` (`moved`, `too late` or `unknown`), `handle` (the new one), `due_at`; "
    "both null unless it moved"
)
async def reschedule(call: Call, handle: Handle, at: At = None, delay: Delay = None) -> None:
    """Give a message another due time, and a new handle. Exit code 1 if it did not move."""
    due = one_of(delay, at)
    async with call.endpoint() as endpoint:
        result = await endpoint.reschedule(handle, at=due.at, delay=due.delay)
    values = {"outcome": result.outcome.value, "handle": result.handle, "due_at": result.due_at}
    call.out.record({name: value for name, value in values.items() if call.out.json or value is not None})
    finish(ok=result.outcome is RescheduleOutcome.MOVED)
