"""`postdate config`: the effective settings."""

from dataclasses import asdict

from postdate.cli.command import Call, command, unread_variables
from postdate.cli.render import note
from postdate.errors import ConfigurationError
from postdate.settings import Settings, explain_settings


@command(
    prints="one object: `settings` (list of `name`, `variable`, `value`, `source`, `meaning`), `table`, "
    "`own_queue`, `account` (which setting names it), these three null where they can't be told; `unread` "
    "(list of text: variables that begin with POSTDATE_ and are no setting)",
    show=Settings.model_fields,
)
def config(call: Call) -> None:
    """Show every setting: its value, where that came from, and what it means. Secrets are masked."""
    settings = call.settings()
    lines = explain_settings(settings, dict(call.given))
    made = {"table": _table(settings), "own_queue": _own_queue(settings), "account": _account(settings)}
    if call.out.json:
        call.out.line({"settings": [asdict(line) for line in lines], **made, "unread": unread_variables()})
        return
    call.out.table(
        ["setting", "value", "source", "meaning"],
        ((line.variable, line.value or "-", line.source, line.meaning) for line in lines),
    )
    call.out.text("")
    call.out.record(made)
    for unread in unread_variables():
        note(unread)
    if made["account"] is None:
        note("no storage account is configured; set POSTDATE_CONNECTION or POSTDATE_ACCOUNT_NAME")


def _table(settings: Settings) -> str | None:
    try:
        return settings.table_name
    except ConfigurationError:
        return None


def _own_queue(settings: Settings) -> str | None:
    try:
        return settings.own_queue
    except ConfigurationError:
        return None


def _account(settings: Settings) -> str | None:
    try:
        return settings.account().source
    except ConfigurationError:
        return None
