"""What all commands share: an option per setting, `--json`, `--verbose`, and how errors end.

A command is a function, plain or async, whose first parameter is a `Call`; the others are its own options.
`@command` gives it the shared ones. Shared options may also stand before the command's name.
"""

import asyncio
import functools
import inspect
import logging
import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import version
from typing import Annotated, Any, get_args, get_origin

import msgspec
import typer
from typer.models import OptionInfo

from postdate.cli.failures import DONE, report
from postdate.cli.logs import log_to_stderr
from postdate.cli.render import Output
from postdate.endpoint import Endpoint
from postdate.errors import ConfigurationError
from postdate.events import Observer
from postdate.settings import FILE_VARIABLE, PREFIX, Settings, load_settings, names_with

#: Settings whose option has another name: `setup --queue` names queues to create.
_OPTION_NAMES = {"queue": "own-queue"}
#: Settings that every command's help shows; the others work too, and `config --help` shows them all.
_SHOWN = frozenset({"endpoint", "connection", "account_name", "delays_table"})
_PANEL = "Settings"
_JSON = "json_"
# The parameters of settings have names of their own: `receive QUEUE` is not the setting `queue`.
_SETTING = "setting_"
#: Variables that are read although they are no setting; `command` adds those of options.
_VARIABLES = {FILE_VARIABLE, f"{PREFIX}JSON", f"{PREFIX}VERBOSE"}


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a command."""

    #: Settings that options gave, by name.
    given: Mapping[str, object]
    out: Output
    verbose: bool

    def settings(self) -> Settings:
        """The effective settings: options, then environment, then file.

        Raises:
            ConfigurationError: one is wrong; an option is named as it was written.
        """
        try:
            return load_settings(**self.given)
        except ConfigurationError as error:
            name, colon, rest = str(error).partition(": ")
            if colon and name in self.given:
                raise ConfigurationError(f"--{option_name(name)}: {rest}") from None
            raise

    def endpoint(self, *observers: Observer) -> Endpoint:
        """The endpoint, to be opened with `async with`."""
        return Endpoint(self.settings(), observers=observers)


Plain = Callable[..., None]
Command = Callable[..., Coroutine[Any, Any, None] | None]


def command(
    *, name: str | None = None, prints: str = "", show: Collection[str] = _SHOWN
) -> Callable[[Command], Plain]:
    """Make a typer command of a function that takes a `Call`.

    Args:
        name: what users type, with its group; default: the function's name.
        prints: what `--json` prints, for the reference.
        show: settings whose options its help shows.
    """

    def decorate(function: Command) -> Plain:
        called = name or function.__name__.replace("_", "-")
        _, *parameters = inspect.signature(function, eval_str=True).parameters.values()
        own = [_with_variable(parameter, called) for parameter in parameters]

        @functools.wraps(function)
        def run(ctx: typer.Context, **values: Any) -> None:
            call = _call(ctx, values)
            try:
                result = function(call, **values)
                if result is not None:
                    asyncio.run(result)
            except (typer.Exit, typer.Abort, typer.TyperException):
                raise
            except Exception as error:  # noqa: BLE001 - the one place where errors become exit codes
                raise typer.Exit(report(error, verbose=call.verbose)) from None

        run.__signature__ = _signature([*own, *_shared(show)])  # type: ignore[attr-defined] # typer reads it
        run.command_name, run.prints = called, prints  # type: ignore[attr-defined] # the reference reads it
        return run

    return decorate


def shared_callback(function: Plain) -> Plain:
    """The callback of the whole app: takes the shared options, where they stand before the command."""
    option = typer.Option("--version", is_eager=True, callback=_say_version, help="Print the version.")

    @functools.wraps(function)
    def run(ctx: typer.Context, **values: Any) -> None:
        ctx.obj = values

    own = _parameter("version", Annotated[bool, option], default=False)
    run.__signature__ = _signature([own, *_shared(_SHOWN)])  # type: ignore[attr-defined] # typer reads it
    return run


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"postdate {version('postdate')}")
        raise typer.Exit


def finish(*, ok: bool, code: int = 1) -> None:
    """End with an exit code other than 0 unless `ok`."""
    if not ok:
        raise typer.Exit(code)


def option_name(setting: str) -> str:
    """A setting's option, without the dashes in front."""
    return _OPTION_NAMES.get(setting, setting.replace("_", "-"))


def unread_variables() -> list[str]:
    """What is set and looks like ours, and nothing reads; each with the nearest setting, in words."""
    known = _VARIABLES | {PREFIX + name.upper() for name in Settings.model_fields}
    told = []
    for name in names_with(PREFIX):
        if name not in known:
            near = get_close_matches(name, known, n=1)
            told.append(f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else ""))
    return told


def _call(ctx: typer.Context, values: dict[str, Any]) -> Call:
    """Take the shared options out of `values`; what stands after the command's name wins."""
    before = ctx.obj if isinstance(ctx.obj, dict) else {}
    given: dict[str, object] = {}
    for name in Settings.model_fields:
        after = values.pop(_SETTING + name, None)
        value = before.get(_SETTING + name) if after is None else after
        if value is not None:
            given[name] = _converted(name, value)
    verbose = values.pop("verbose") or bool(before.get("verbose"))
    json = values.pop(_JSON) or bool(before.get(_JSON))
    log_to_stderr(logging.DEBUG if verbose else logging.WARNING)
    return Call(given, Output(json=json), verbose)


def _converted(name: str, value: object) -> object:
    """What the settings take; those that are maps are written as JSON."""
    if not _is_map(name):
        return value
    try:
        return msgspec.json.decode(str(value), type=dict[str, str])
    except msgspec.MsgspecError:
        raise typer.BadParameter(
            f'--{option_name(name)} takes JSON, like {{"name": "value"}}', param_hint=None
        ) from None


def _with_variable(parameter: inspect.Parameter, called: str) -> inspect.Parameter:
    """An option of the command's own, with an environment variable: POSTDATE_<COMMAND>_<OPTION>."""
    kind, info = get_args(parameter.annotation)
    if isinstance(info, OptionInfo) and info.envvar is None:
        info = copy(info)
        info.envvar = re.sub("[ -]", "_", f"{PREFIX}{called}_{parameter.name}".upper())
    if isinstance(info, OptionInfo) and isinstance(info.envvar, str):
        _VARIABLES.add(info.envvar)
    return parameter.replace(annotation=Annotated[kind, info])


def _signature(parameters: list[inspect.Parameter]) -> inspect.Signature:
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    return inspect.Signature([context, *keyword_only])


def _shared(show: Collection[str]) -> list[inspect.Parameter]:
    json = typer.Option("--json", envvar="POSTDATE_JSON", help="Print JSON, for programs.")
    verbose = typer.Option(
        "--verbose", "-v", envvar="POSTDATE_VERBOSE", help="Log everything; show unexpected errors in full."
    )
    return [
        _parameter(_JSON, Annotated[bool, json], default=False),
        _parameter("verbose", Annotated[bool, verbose], default=False),
        *(_setting(name, hidden=name not in show) for name in Settings.model_fields),
    ]


def _setting(name: str, *, hidden: bool) -> inspect.Parameter:
    option = f"--{option_name(name)}"
    field = Settings.model_fields[name]
    if field.annotation is bool:
        option = f"{option}/--no-{option_name(name)}"
    # The environment is not read here but by the settings, which tell where a value came from.
    declared = typer.Option(
        option,
        help=f"{field.description} [env var: {PREFIX}{name.upper()}]".replace("[", r"\["),
        hidden=hidden,
        show_default=False,
        rich_help_panel=_PANEL,
        metavar=None if field.annotation is bool else "JSON" if _is_map(name) else "VALUE",
    )
    kind = bool if field.annotation is bool else str
    return _parameter(_SETTING + name, Annotated[kind | None, declared], default=None)


def _is_map(name: str) -> bool:
    return get_origin(Settings.model_fields[name].annotation) is dict


def _parameter(name: str, annotation: object, *, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


__all__ = ["DONE", "Call", "command", "finish", "option_name", "shared_callback", "unread_variables"]
