"""`postdate doctor`: what is wrong, and how to put it right."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from postdate.cli import checks as c
from postdate.cli.command import Call, command, finish, unread_variables
from postdate.cli.findings import Check, Status, check_lookahead, check_names, check_reach, failed
from postdate.cli.legacy_checks import check_timeout_manager
from postdate.cli.render import plain
from postdate.clock import StorageClock
from postdate.endpoint import Endpoint
from postdate.errors import ConfigurationError, PostdateError

_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.FAILED: "bold red", Status.SKIPPED: "dim"}


@command(
    prints="one object: `ok` (false if a check failed), `checks` (list of `name`, `status`: `ok`, `warning`, "
    "`failed` or `skipped`, `found`, `fix`)"
)
async def doctor(
    call: Call,
    rows: Annotated[int, typer.Option(min=0, help="Waiting rows to look at; 0: all.")] = 10_000,
) -> None:
    """Check account, services, rights, clock, names, lease, queues and backlog; each with its fix.

    Changes nothing. Exit code 1 if a check failed, also where the storage service can't be reached.
    """
    done = await diagnose(call, rows)
    ok = not any(check.status is Status.FAILED for check in done)
    if call.out.json:
        call.out.line({"ok": ok, "checks": [asdict(check) for check in done]})
    else:
        _print(call, done)
    finish(ok=ok)


async def diagnose(call: Call, rows: int) -> list[Check]:
    """All checks that make sense, in order; a check that can't be made fails alone."""
    try:
        settings = call.settings()
        names = check_names(settings)
        endpoint = Endpoint(settings)
        async with endpoint:
            account = endpoint.parts.backend.description.get("account", "in memory")
            done = [Check("settings", Status.OK, f"account {account}"), *_unread(), names]
            done += await _on_storage(endpoint, rows)
    except ConfigurationError as error:
        return [failed("settings", error)]
    return done


def _unread() -> list[Check]:
    unread = unread_variables()
    way_out = "correct or unset it; `postdate config` lists all settings"
    return [Check("variables", Status.WARNING, ", ".join(unread), way_out)] if unread else []


async def _on_storage(endpoint: Endpoint, rows: int) -> list[Check]:
    backend = endpoint.parts.backend
    answers = await backend.reach()
    done = check_reach(answers, backend.description)
    down = {name for name, error in answers.items() if error is not None}
    place = "store" if "store" in answers else "table"
    steps: list[tuple[str, Collection[str], Callable[[], Awaitable[list[Check]]]]] = [
        ("clock", {"queue"}, lambda: _one(c.check_clock(endpoint))),
        ("queues", {"queue"}, lambda: c.check_queues(endpoint)),
    ]
    if endpoint.settings.disable_delayed_delivery:
        done.append(
            Check("delayed delivery", Status.SKIPPED, "switched off (POSTDATE_DISABLE_DELAYED_DELIVERY)")
        )
    else:
        steps += [
            (place, {place}, lambda: c.check_table(endpoint)),
            ("lease", {"blob"}, lambda: c.check_lease(endpoint)),
            ("backlog", {place, "queue"}, lambda: _backlog(endpoint, rows)),
            ("timeout manager", {"table", "queue"}, lambda: check_timeout_manager(endpoint)),
        ]
    for name, needed, step in steps:
        missing = down.intersection(needed)
        if missing:
            done.append(Check(name, Status.SKIPPED, f"needs {' and '.join(sorted(missing))}, see above"))
            continue
        try:
            done += await step()
        except PostdateError as error:
            down.add(name)
            done.append(failed(name, error))
    done.append(check_lookahead(endpoint.settings, _uncertainty(endpoint)))
    return done


async def _one(check: Awaitable[Check]) -> list[Check]:
    return [await check]


async def _backlog(endpoint: Endpoint, rows: int) -> list[Check]:
    found = await c.scan(endpoint.upcoming(limit=rows or None))
    return await c.check_backlog(endpoint, found, rows)


def _uncertainty(endpoint: Endpoint) -> float | None:
    clock = endpoint.parts.clock
    return clock.uncertainty if isinstance(clock, StorageClock) else None


def _print(call: Call, done: list[Check]) -> None:
    call.out.table(
        ["check", "", "found"],
        (
            (check.name, Text(check.status.value, style=_STYLES[check.status]), _found(check))
            for check in done
        ),
    )


def _found(check: Check) -> Text:
    text = Text(plain(check.found))
    if check.fix is not None:
        text.append(f"\n-> {plain(check.fix)}", style="bold")
    return text
