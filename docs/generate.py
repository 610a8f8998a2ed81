"""Writes docs/reference from the code: `python docs/generate.py`. A test fails when the pages are behind."""  # noqa: INP001 - a program, in no package

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from logging import getLevelName
from pathlib import Path
from typing import Any, get_type_hints

from postdate import errors
from postdate.bench.report import CONTENDER_COLUMNS, RATIO_COLUMNS, contender_rows, ratio_rows
from postdate.cli.command import option_name
from postdate.cli.main import COMMANDS, click_command
from postdate.events import EVENTS
from postdate.model.durations import FORMS
from postdate.settings import FILE_VARIABLE, PREFIX, Settings, show_value

FOLDER = Path(__file__).parent / "reference"
#: What `python -m bench` found last.
RESULTS = Path(__file__).parents[1] / "bench" / "results.json"
IMAGES = Path(__file__).parent / "images"
_SHARED = ("json_", "verbose")
_MADE = "<!-- Made from the code by docs/generate.py; change it there. -->"


def pages() -> dict[str, str]:
    """Each page's text, by file name."""
    makers: dict[str, Callable[[], Iterable[str]]] = {
        "cli.md": cli,
        "settings.md": settings,
        "errors.md": error_tree,
        "events.md": events,
        "benchmark.md": benchmark,
    }
    return {name: "\n".join([_MADE, "", *make(), ""]) for name, make in makers.items()}


def cli() -> Iterable[str]:
    """The command line."""
    yield from [
        "# Command line",
        "",
        "The `--help` of each command says the same. Commands print for people; with `--json` they print",
        "JSON, one object or one per line, whose keys are listed here and stay: instants are ISO 8601 in",
        "UTC with `Z`, names that end in `_s` are seconds.",
        "",
        "## Exit codes",
        "",
        "0 done, 1 failed, 2 wrong usage, 3 storage unreachable, 130 interrupted by Ctrl-C, 141 the reader",
        "of the output went away. A mistake is told in one line on stderr, `postdate: error: ...`, and",
        "changes nothing.",
        "",
        "## Options of every command",
        "",
        "Every [setting](settings.md) is an option of every command, in front of the command's name or after",
        "it. An option wins over the environment, and the environment over the settings file. Besides:",
        "",
    ]
    first = click_command(next(iter(COMMANDS)))
    yield from _options([p for p in first.params if p.name in _SHARED])
    yield from ["", "## Commands", ""]
    anchors = {name: name.replace(" ", "-") for name in COMMANDS}
    yield from _table(
        ["Command", "Effect"], [[f"[{n}](#postdate-{anchors[n]})", _first(n)] for n in COMMANDS]
    )
    for name in COMMANDS:
        yield from ["", f"## postdate {name}", ""]
        yield from _command(name, click_command(name))


def _first(name: str) -> str:
    return _doc(COMMANDS[name]).split("\n\n")[0]


def _command(name: str, command: Any) -> Iterable[str]:
    own = [p for p in command.params if p.name not in _SHARED and not p.name.startswith("setting_")]
    arguments = [p for p in own if p.param_type_name == "argument"]
    options = [p for p in own if p.param_type_name == "option"]
    usage = " ".join([f"postdate {name}", *map(_usage, arguments), "[OPTIONS]"])
    yield from ["```text", usage, "```", "", _doc(COMMANDS[name])]
    for argument in arguments:
        yield from ["", f"`{argument.metavar}`: {argument.help}"]
    if options:
        yield ""
        yield from _options(options)
    yield from ["", f"`--json` prints {_prints(name)}."]


def _usage(argument: Any) -> str:
    text = f"{argument.metavar}..." if argument.nargs != 1 else str(argument.metavar)
    return text if argument.required else f"[{text}]"


def _prints(name: str) -> str:
    return str(vars(COMMANDS[name])["prints"])


def _options(options: Sequence[Any]) -> Iterable[str]:
    rows = []
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        default = "" if option.default in (None, False) else show_value(option.default)
        if option.default is True:
            default = option.opts[0].removeprefix("--")
        rows.append([flags, f"`{option.envvar}`", f"`{default}`" if default else "", option.help])
    yield from _table(["Option", "Variable", "Default", "Meaning"], rows)


def settings() -> Iterable[str]:
    """All settings."""
    yield from [
        "# Settings",
        "",
        "Each can be passed in code, as an option of the command line, as an environment variable, or in a",
        f"TOML file that `{FILE_VARIABLE}` names; the first of these that has it wins. `postdate config`",
        "shows the effective values, and where each came from.",
        "",
        f"Durations are written as {FORMS}.",
        "",
    ]
    rows = []
    for name, field in Settings.model_fields.items():
        default = show_value(field.get_default(call_default_factory=True))
        shown = f"`{default}`" if default else ""
        options = [f"`--{option_name(name)}`"]
        if field.annotation is bool:
            options.append(f"`--no-{option_name(name)}`")
        rows.append([f"`{PREFIX}{name.upper()}`", ", ".join(options), shown, field.description or ""])
    yield from _table(["Variable", "Option", "Default", "Meaning"], rows)
    yield from [
        "",
        "In code and in the file a setting is called as its variable, in lower case and without the prefix:",
        "",
        "```toml",
        'endpoint = "Contoso.Orders"',
        'lookahead = "45s"',
        'envelopes = { partner = "raw" }',
        "```",
        "",
        "## The storage account",
        "",
        "The first of these that is set names it:",
        "",
        "1. `POSTDATE_CONNECTION`: a connection string, or `UseDevelopmentStorage=true`.",
        "2. `POSTDATE_ACCOUNT_NAME`, or all three of `POSTDATE_TABLE_URL`, `POSTDATE_QUEUE_URL` and",
        "   `POSTDATE_BLOB_URL`: reached by identity, the default one or that of `POSTDATE_CLIENT_ID`.",
        "3. What `POSTDATE_CONNECTION_NAME` points to, as on Azure Functions: `AzureWebJobsStorage` as a",
        "   connection string, or `AzureWebJobsStorage__accountName`, or",
        "   `AzureWebJobsStorage__tableServiceUri`, `…__queueServiceUri` and `…__blobServiceUri`; with",
        "   `…__clientId` for an identity of its own.",
    ]


def error_tree() -> Iterable[str]:
    """All errors."""
    yield from [
        "# Errors",
        "",
        "All stand in `postdate.errors`. Each text is one line that names the thing, the value and the way",
        "out, and never holds a secret.",
        "",
        "```text",
        *_tree(errors.PostdateError),
        "```",
        "",
        "Catch `UsageError` to show callers their mistake, `StorageError` to try again later, and",
        "`PostdateError` for all.",
        "",
    ]
    kinds = [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.PostdateError)
    ]
    rows = [[f"`{k.__name__}`", f"`{k.__bases__[0].__name__}`", str(k.exit_code), _doc(k)] for k in kinds]
    yield from _table(["Error", "Kind of", "Exit code", "Meaning"], rows)


def _tree(kind: type, before: str = "", branch: str = "") -> Iterable[str]:
    yield f"{before}{branch}{kind.__name__}"
    inner = before + {"": "", "├── ": "│   ", "└── ": "    "}[branch]
    below: list[type] = type.__subclasses__(kind)
    children = [child for child in below if child.__module__ == errors.__name__]
    for child in children:
        yield from _tree(child, inner, "└── " if child is children[-1] else "├── ")


def events() -> Iterable[str]:
    """All events."""
    yield from [
        "# Events",
        "",
        "What happened, as records of `postdate.events`. An observer, a callable that is passed as",
        "`Endpoint(..., observers=[...])`, hears all of them. They are logged under `postdate.events` at",
        "their level, and `postdate run --log-format json` writes one JSON object for each to stderr, with",
        "the keys `time`, `level`, `logger`, `event` and the record's fields.",
        "",
    ]
    rows = []
    for event in EVENTS:
        hints = get_type_hints(event)
        shown = ", ".join(f"`{f.name}` ({_type(hints[f.name])})" for f in fields(event))
        rows.append(
            [f"`{event.name}`", f"`{event.__name__}`", getLevelName(event.level).lower(), _doc(event), shown]
        )
    yield from _table(["Event", "Record", "Level", "Meaning", "Fields"], rows)


def benchmark() -> Iterable[str]:
    """What the benchmark found."""
    yield from [
        "# Figures of the benchmark",
        "",
        "What `make bench` found, written by it into `bench/results.json`. How it is measured, what each",
        "figure means, and what is unfair to whom: [the benchmark](../explain/benchmark.md).",
        "",
    ]
    if not RESULTS.exists():
        yield "No run of this version is recorded yet."
        return
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    machine, versions = found["machine"], found["versions"]
    yield from [
        f"{found['date'][:10]}, {found['seconds'] / 60:.0f} minutes, on {machine['cores']} cores of",
        f"{machine['cpu']}, {machine['memory_gb']} GB, {machine['system']};",
        ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        "## Goals",
        "",
    ]
    yield from _table(RATIO_COLUMNS, ratio_rows(found["goals"]))
    yield from ["", f"Classic is there in its faster form, `{found['classic']}`.", "", "## Contenders", ""]
    yield from _table(CONTENDER_COLUMNS, contender_rows(found["contenders"]))
    yield from _pictures("drain", "trickle", "burst", "idle", "cpu", "memory")
    yield from ["", "## Classic and the alternatives: what to know of each", ""]
    for one in found["contenders"]:
        yield f"- **{one['name']}** ({one['version']}): {'; '.join(one['notes'])}."
    yield from _behind(found)
    if found["failures"]:
        yield from ["", "## What failed", "", *(f"- {failure}" for failure in found["failures"])]


def _pictures(*names: str) -> Iterable[str]:
    for name in names:
        if (IMAGES / f"bench-{name}.png").exists():
            yield from ["", f"![{name}](../images/bench-{name}.png)"]


def _behind(found: dict[str, Any]) -> Iterable[str]:
    """The figures behind those of the contenders: limit, growth, quiet, consumer."""
    ours, classic = found["details"].get("postdate", {}), found["details"].get("classic", {})
    if found["limit"]:
        yield from ["", "## The service's limit", ""]
        kinds = {False: "puts alone", True: "puts with deletes"}
        yield from _table(
            ["What", "At once", "Puts a second", "CPU of the client for each, µs"],
            [
                [
                    kinds[run["with_deletes"]],
                    str(run["concurrency"]),
                    f"{run['per_s']:,.0f}",
                    f"{run['client_cpu_us']:.0f}",
                ]
                for run in found["limit"]["runs"]
            ],
        )
    if "linear" in ours:
        yield from ["", "## Growth: µs for each message, by how many are due", ""]
        yield from _table(
            [
                "Due",
                "In all",
                "CPU, ours",
                "CPU, the service's",
                "A raw put before",
                "and after",
                "First page",
            ],
            [
                [f"{one['messages']:,}"]
                + [
                    f"{one[name]:,.0f}"
                    for name in (
                        "wall_us",
                        "client_cpu_us",
                        "server_cpu_us",
                        "put_before_us",
                        "put_after_us",
                        "page_wall_us",
                    )
                ]
                for one in ours["linear"]
            ],
        )
    if "flat" in ours:
        yield from ["", "## Memory of the engine alone, over rows that are made as they are read", ""]
        yield from _table(
            ["Due rows", "Peak, MB", "CPU for each, µs"],
            [
                [f"{one['rows']:,.0f}", f"{one['peak_mb']:.1f}", f"{one['cpu_us']:.0f}"]
                for one in (ours["flat"]["few"], ours["flat"]["many"])
            ],
        )
    hours = {
        "classic": classic.get("idle_classic"),
        "Postdate, leader": ours.get("idle_leader"),
        "Postdate, follower": ours.get("idle_follower"),
    }
    if all(hours.values()):
        yield from ["", "## Requests in idle hours, one after the other", ""]
        yield from _table(
            ["Process", "Requests"],
            [
                [
                    who,
                    ", ".join(
                        str(sum(sum(ends.values()) for ends in hour.values())) for hour in told["hours"]
                    ),
                ]
                for who, told in hours.items()
                if told
            ],
        )
    if "cross_check" in ours:
        seen = ours["cross_check"]
        yield from [
            "",
            "## A real consumer",
            "",
            f"It received {seen['sample']} messages: {seen['early']} before their due time,",
            f"{seen['before_bounds']} before the computed bounds, and each within",
            f"{seen['behind_max_s'] * 1000:.0f} ms of the lower one.",
        ]


def _type(hint: Any) -> str:
    names = {
        "str": "text",
        "int": "number",
        "float": "number",
        "bool": "true or false",
        "datetime": "instant",
        "dict[str, dict[str, int]]": "numbers by name and name",
        "tuple[str, ...]": "texts",
    }
    text = hint.__name__ if isinstance(hint, type) else str(hint).replace("datetime.datetime", "datetime")
    parts = [part.strip() for part in text.split("|")]
    return " or ".join(names.get(part, part.lower()) for part in parts)


def _doc(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join([' --- '] * len(head))}|"
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{FOLDER.name}/{name}\n")


if __name__ == "__main__":
    main()
