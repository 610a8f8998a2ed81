"""The app and the console script."""

import io
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.main import get_command

from postdate.cli.azurite import azurite
from postdate.cli.bench import bench
from postdate.cli.cancel import cancel
from postdate.cli.command import shared_callback
from postdate.cli.config import config
from postdate.cli.deliver_due import deliver_due
from postdate.cli.demo import demo
from postdate.cli.doctor import doctor
from postdate.cli.errors.discard import discard
from postdate.cli.errors.groups import groups
from postdate.cli.errors.listing import list_errors
from postdate.cli.errors.retry import retry
from postdate.cli.errors.show import show_error
from postdate.cli.errors.undo import undo
from postdate.cli.failures import (
    DONE,
    FAILED,
    INTERRUPTED,
    READER_GONE,
    WRONG_USAGE,
    reader_gone,
    report,
    say_error,
)
from postdate.cli.forget import forget
from postdate.cli.leader import leader
from postdate.cli.legacy.drain import drain as legacy_drain
from postdate.cli.legacy.show import show as legacy_show
from postdate.cli.legacy.undo import undo as legacy_undo
from postdate.cli.listing import list_messages
from postdate.cli.receive import receive
from postdate.cli.reschedule import reschedule
from postdate.cli.run import run
from postdate.cli.schedule import schedule
from postdate.cli.schedule_many import schedule_many
from postdate.cli.send import send
from postdate.cli.setup import setup
from postdate.cli.show import show
from postdate.cli.spark.audit import audit as spark_audit
from postdate.cli.spark.drain import drain as spark_drain
from postdate.cli.spark.forecast import forecast as spark_forecast
from postdate.cli.spark.migrate import abort as migrate_abort
from postdate.cli.spark.migrate import migrate as migrate_run
from postdate.cli.spark.migrate import preview as migrate_preview
from postdate.cli.spark.migrate import status as migrate_status
from postdate.cli.spark.schedule import schedule as spark_schedule
from postdate.cli.spark.snapshot import restore as spark_restore
from postdate.cli.spark.snapshot import snapshot as spark_snapshot
from postdate.cli.spark.snapshot import snapshots as spark_snapshots
from postdate.cli.stats import stats
from postdate.cli.version import show_version

_EPILOG = (
    "Every setting is an option and an environment variable: `postdate config --help` lists them all. "
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 storage unreachable."
)

app = typer.Typer(
    name="postdate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=_EPILOG,
)


@app.callback()
@shared_callback
def postdate() -> None:
    """Deliver messages when they are due, on nothing but an Azure Storage account."""


#: Groups of commands, and what they are for.
GROUPS = {
    "errors": "See what lies in the error queue, by cause; send it back, or discard it.",
    "spark": "Bulk, on Spark: needs the extra `spark` and Java 17 or later.",
    "spark migrate": "Old timeouts, in Azure tables or SQL, become waiting rows; and back.",
    "legacy": "Leave the timeout manager of older endpoints behind.",
}
#: Every command, by its full name, in the order of the help.
COMMANDS = {
    "azurite": azurite,
    "setup": setup,
    "run": run,
    "deliver-due": deliver_due,
    "send": send,
    "schedule": schedule,
    "schedule-many": schedule_many,
    "list": list_messages,
    "show": show,
    "cancel": cancel,
    "reschedule": reschedule,
    "receive": receive,
    "errors list": list_errors,
    "errors groups": groups,
    "errors show": show_error,
    "errors retry": retry,
    "errors discard": discard,
    "errors undo": undo,
    "forget": forget,
    "stats": stats,
    "leader": leader,
    "config": config,
    "doctor": doctor,
    "demo": demo,
    "bench": bench,
    "spark schedule": spark_schedule,
    "spark drain": spark_drain,
    "spark audit": spark_audit,
    "spark migrate preview": migrate_preview,
    "spark migrate run": migrate_run,
    "spark migrate abort": migrate_abort,
    "spark migrate status": migrate_status,
    "spark forecast": spark_forecast,
    "spark snapshot": spark_snapshot,
    "spark snapshots": spark_snapshots,
    "spark restore": spark_restore,
    "legacy show": legacy_show,
    "legacy drain": legacy_drain,
    "legacy undo": legacy_undo,
    "version": show_version,
}
_GROUPS = {_name: typer.Typer(no_args_is_help=True) for _name in GROUPS}
for _name, _function in COMMANDS.items():
    _group, _, _last = _name.rpartition(" ")
    (_GROUPS[_group] if _group else app).command(_last)(_function)
for _name, _typer in _GROUPS.items():
    _group, _, _last = _name.rpartition(" ")
    (_GROUPS[_group] if _group else app).add_typer(_typer, name=_last, help=GROUPS[_name])


def click_command(name: str) -> Any:
    """A command as the parser sees it, by its full name."""
    found: Any = get_command(app)
    for word in name.split():
        found = found.commands[word]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code. Nothing is raised."""
    try:
        result = get_command(app).main(arguments, prog_name="postdate", standalone_mode=False)
    except typer.TyperException as error:
        return _wrong_usage(error)
    except typer.Abort:
        say_error("aborted")
        return FAILED
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED
    except Exception as error:  # noqa: BLE001 - nothing may reach the user as a traceback
        return report(error, verbose=False)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return reader_gone()
    if result == INTERRUPTED:
        say_error("interrupted")
    return result if isinstance(result, int) else DONE


def _wrong_usage(error: typer.TyperException) -> int:
    text = error.format_message()
    if not text or type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{text}\n")
        return WRONG_USAGE
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "postdate"
    say_error(f"{text.rstrip('.')}; see `{where} --help`")
    return error.exit_code


def entry() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())


__all__ = ["READER_GONE", "app", "click_command", "entry", "main"]
