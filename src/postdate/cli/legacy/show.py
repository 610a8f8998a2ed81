"""`postdate legacy show`: what is left for the timeout manager."""

from postdate.cli.command import Call, command
from postdate.cli.legacy.printing import deletable, print_tally, tally_fields
from postdate.legacy.remains import Remains


@command(
    name="legacy show",
    prints="one object: `now` (by the storage service), `store` (whether there is one), `waiting`, "
    "`overdue`, `unreadable`, `hidden` (by a migration tool that did not finish), `earliest_due_at`, "
    "`latest_due_at`, `by_destination` (list of `destination`, `count`, `earliest_due_at`, "
    "`latest_due_at`), `queues` (list of `name`, `count`, approximate; null where there is no such queue), "
    "`can_be_switched_off`, `deletable` (list of what is there for the timeout manager alone, once it is "
    "switched off)",
)
async def show(call: Call) -> None:
    """Show what the legacy timeout manager has left to do, and whether it can be switched off.

    Looks at its store and its two queues. Reads every timeout once, page by page, without bodies.
    """
    async with call.endpoint() as endpoint:
        remains = await endpoint.parts.migration.look()
        settings = endpoint.settings
    there = [name for name, count in remains.queues.items() if count is not None]
    values = {
        "now": remains.now,
        "store": remains.store,
        "waiting": remains.waiting.count,
        "overdue": remains.overdue,
        "unreadable": remains.unreadable,
        "hidden": remains.hidden,
        **tally_fields(remains.waiting),
        "queues": [{"name": name, "count": count} for name, count in remains.queues.items()],
        "can_be_switched_off": remains.can_be_switched_off,
        "deletable": deletable(there, settings, store=remains.store),
    }
    if call.out.json:
        call.out.line(values)
        return
    for queue in remains.queues:
        values[f"queue {queue}"] = remains.queues[queue]
    call.out.record({name: values[name] for name in values if name not in ("by_destination", "queues")})
    print_tally(call, remains.waiting)
    if not remains.can_be_switched_off:
        call.out.note(f"the timeout manager has work left: {'; '.join(_ways_out(remains))}")
    elif remains.store:
        call.out.note(f"nothing waits for endpoint {settings.endpoint!r}; its name counts to the letter")


def _ways_out(remains: Remains) -> list[str]:
    """Who does away with what is left."""
    ways = []
    if remains.waiting.count:
        ways.append("`postdate legacy drain` moves the timeouts")
    if any(remains.queues.values()):
        ways.append("`postdate run` takes up the messages in its queues")
    if remains.hidden:
        ways.append("end or abort the migration that hides timeouts, with the tool that began it")
    if remains.unreadable:
        ways.append("look at those that can't be read: `postdate run` logs their ids (`timeout_unreadable`)")
    return ways
