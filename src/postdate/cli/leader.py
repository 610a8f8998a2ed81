"""`postdate leader`: who leads, and taking the lease away."""

from typing import Annotated

import typer

from postdate.cli.command import Call, command
from postdate.cli.render import instant, relative
from postdate.errors import UsageError
from postdate.ports import LeaderRecord


@command(
    prints="one object: `leads` (whether anybody holds the lease), `holder`, `term`, `since`, `lookahead_s` "
    "(null if nobody ever led); with `--break` also `broken`"
)
async def leader(
    call: Call,
    break_lease: Annotated[
        bool, typer.Option("--break", help="Take the lease away from whoever holds it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --break.")] = False,
) -> None:
    """Show which process leads; --break takes the lease away from it.

    A leader whose lease is broken stops handing over at its next renewal, and some process takes over.
    """
    async with call.endpoint() as endpoint:
        lease = endpoint.parts.backend.lease
        record = await lease.holder()
        now = endpoint.parts.clock.now()
        if not break_lease:
            fields = leader_fields(record)
            if record is not None and not call.out.json:
                fields["since"] = f"{instant(record.since)} ({relative(record.since, now)})"
            call.out.record(fields)
            return
        held = record is None or record.leased
        if held and not yes:
            _ask(record)
        broken = held and await lease.break_lease()
    if call.out.json:
        call.out.line({**leader_fields(record), "broken": broken})
    else:
        call.out.text("the lease is broken" if broken else "nobody held the lease")


def leader_fields(record: LeaderRecord | None) -> dict[str, object]:
    """Who leads, in JSON."""
    if record is None:
        return {"leads": False, "holder": None, "term": None, "since": None, "lookahead_s": None}
    return {
        "leads": record.leased,
        "holder": record.holder,
        "term": record.term,
        "since": record.since,
        "lookahead_s": record.lookahead_s,
    }


def _ask(record: LeaderRecord | None) -> None:
    who = f"{record.holder} (term {record.term})" if record is not None else "whoever holds it"
    try:
        sure = typer.confirm(f"Take the lease away from {who}?", err=True)
    except typer.Abort:
        raise UsageError("nobody answered; --break asks first, and --yes skips the question") from None
    if not sure:
        raise UsageError("not confirmed; nothing was changed")
