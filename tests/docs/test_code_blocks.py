"""Code in README and docs runs, and what it names is there. `docs_cases.Block` tells what each kind means."""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from docs_cases import PAGE_NAMES, ROOT, SHELLS, all_blocks, page, shell_lines, simple_commands
from typer.main import get_command

from postdate import Endpoint
from postdate.cli.main import app
from postdate.settings import cache_folder, child_environment, load_settings

#: Programs beside our own that blocks may call.
PROGRAMS = {"cd", "echo", "export", "git", "kill", "pip", "printf", "python", "trap", "wait"}
_SAYS = re.compile(r"print\(.*\)  # (?P<said>.+)")
#: Spark alone takes ten to start, and more where other tests run.
_SECONDS = 180


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in child_environment():
        if name.upper().startswith(("POSTDATE_", "AZUREWEBJOBSSTORAGE")):
            monkeypatch.delenv(name)


def pages_with(language, *words):
    return [name for name in PAGE_NAMES if page(name).of(language, *words)]


def environment(azurite, folder):
    """For a program that a reader would start: our command in the path, Azurite as the account."""
    ours = child_environment()
    return child_environment(
        PATH=os.pathsep.join([str(Path(sys.executable).parent), ours.get("PATH", "")]),
        HOME=str(folder),
        XDG_CACHE_HOME=str(cache_folder().parent),
        POSTDATE_CONNECTION=azurite.connection_string,
        PYTHONWARNINGS="error",
    )


def check_said(text, said, place):
    """What the comments behind `print` say came out, in this order."""
    lines = iter(said.splitlines())
    for match in _SAYS.finditer(text):
        wanted = match["said"]
        assert wanted in lines, f"{place}: {wanted!r} was not printed; all of it:\n{said}"


def run_program(command, *, env, folder, text=None):
    done = subprocess.run(
        command, cwd=folder, env=env, input=text, capture_output=True, text=True, timeout=_SECONDS
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


# --- Python ---------------------------------------------------------------------------------------


def test_there_are_blocks_of_every_kind():
    kinds = {(block.language, *sorted(block.words)) for block in all_blocks()}
    assert {("python",), ("python", "script"), ("python", "pytest"), ("bash",), ("bash", "session")} <= kinds


@pytest.mark.parametrize("block", all_blocks(), ids=lambda block: block.place)
def test_a_block_is_of_a_kind_that_is_tested(block):
    known = {"python": {"azurite", "script", "pytest"}, "bash": {"session"}}
    assert block.language in {"python", "toml", "json", "text", *SHELLS}
    assert block.words <= known.get(block.language, set())


@pytest.mark.parametrize("name", sorted({*pages_with("python"), *pages_with("python", "azurite")}))
async def test_the_blocks_of_a_page_run_one_after_the_other(name, monkeypatch, request):
    blocks = [b for b in page(name).blocks if b.language == "python" and b.words <= {"azurite"}]
    if "<!-- inside: endpoint -->" not in page(name).prose:
        await run_blocks(blocks, {}, monkeypatch, request)
        return
    async with Endpoint("Contoso.Orders", backend="memory") as endpoint:
        await endpoint.setup("invoices")
        await run_blocks(blocks, {"endpoint": endpoint}, monkeypatch, request)


async def run_blocks(blocks, given, monkeypatch, request):
    namespace = {"__name__": "docs_example"}
    for block in blocks:
        namespace |= given  # a block before may have used the name for one of its own
        if "azurite" in block.words:
            monkeypatch.delenv("POSTDATE_BACKEND", raising=False)
            monkeypatch.setenv("POSTDATE_CONNECTION", request.getfixturevalue("azurite").connection_string)
        else:
            monkeypatch.setenv("POSTDATE_BACKEND", "memory")
        # As many empty lines in front as the page has, so that a traceback names the page's line.
        code = compile(
            "\n" * (block.line - 1) + block.text,
            str(ROOT / block.page),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        )
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            result = eval(code, namespace)  # noqa: S307 - our own documentation
            if inspect.iscoroutine(result):
                async with asyncio.timeout(_SECONDS):
                    await result
        check_said(block.text, said.getvalue(), block.place)


@pytest.mark.parametrize("name", pages_with("python", "script"))
def test_scripts_run_as_programs_of_their_own(name, azurite, tmp_path):
    for number, block in enumerate(page(name).of("python", "script")):
        program = tmp_path / f"script{number}.py"
        program.write_text(block.text, encoding="utf-8")
        said = run_program([sys.executable, program], env=environment(azurite, tmp_path), folder=tmp_path)
        check_said(block.text, said, block.place)


def test_test_modules_pass(azurite, tmp_path):
    for name in pages_with("python", "pytest"):
        for block in page(name).of("python", "pytest"):
            module = f"test_{re.sub(r'[^a-z]', '_', name.removesuffix('.md').lower())}_{block.line}.py"
            (tmp_path / module).write_text(block.text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    said = run_program(command, env=environment(azurite, tmp_path), folder=tmp_path)
    assert "skipped" not in said


# --- shell ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [b for b in all_blocks() if b.language in SHELLS], ids=lambda b: b.place)
def test_commands_and_options_exist(block):
    for number, line in shell_lines(block):
        for words in simple_commands(line):
            complaint = what_is_wrong_with(words)
            assert complaint is None, f"{block.page}:{number}: {line.strip()}: {complaint}"


def what_is_wrong_with(words):
    """None where a command would be understood: nothing is run."""
    program, *arguments = words
    if program == "postdate":
        return refusal_of_postdate(arguments)
    if program == "make":
        targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        missing = {a for a in arguments if "=" not in a} - targets
        return f"no such target: {missing}" if missing else None
    if program == "pip":
        wanted = {e for a in arguments for e in re.findall(r"postdate\[([^\]]+)\]", a)}
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        missing = {extra for extra in wanted for extra in extra.split(",")} - extras.keys()
        return f"no such extra: {missing}" if missing else None
    return None if program in PROGRAMS else f"no test knows the program {program!r}"


def refusal_of_postdate(arguments):
    group = get_command(app)
    try:
        outer = group.make_context("postdate", list(arguments))
        while hasattr(group, "resolve_command"):
            name, group, rest = group.resolve_command(outer, [*outer._protected_args, *outer.args])
            outer = group.make_context(name, rest, parent=outer)
    except Exception as error:
        if type(error).__name__ == "Exit":  # --help
            return None
        return str(error) or type(error).__name__
    return None


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("postdate schedule invoices hello --delay 10s", True),
        ("POSTDATE_LOOKAHEAD=0 postdate run --log-format json 2> log.txt &", True),
        ('HANDLE="$(postdate schedule invoices hello --delay 1h | unknown)"', False),
        ("X=$(postdate schedule a@b hello --delay 1h | python -c 'print(1)')", True),
        ("postdate leader --help", True),
        ("postdate legacy drain --preview", True),
        ("postdate legacy drain --preveiw", False),
        ("postdate legacy dran", False),
        ("postdate schedule invoices hello --dely 10s", False),
        ("postdate schedule", False),
        ("postdate scheduel", False),
        ("postdate errors groups --json", True),
        ("postdate errors gruops", False),
        ("postdate errors retry --grop 3f2a", False),
        ("postdate run --log-format xml", False),
        ("make demo && make tset", False),
        ("make install PYTHON=python3.12", True),
        ("pip install 'postdate[azurite]'", True),
        ("pip install 'postdate[azurit]'", False),
        ("postdate receive error --json > failed.jsonl && rm failed.jsonl", False),
    ],
)
def test_the_check_of_commands_finds_mistakes(line, good):
    assert all(what_is_wrong_with(words) is None for words in simple_commands(line)) is good


@pytest.mark.parametrize("name", pages_with("bash", "session"))
def test_sessions_run_in_a_shell(name, azurite, tmp_path):
    script = "".join(block.text for block in page(name).of("bash", "session"))
    run_program(
        ["bash", "-euo", "pipefail"], env=environment(azurite, tmp_path), folder=tmp_path, text=script
    )


# --- settings and data ----------------------------------------------------------------------------


@pytest.mark.parametrize("block", [b for b in all_blocks() if b.language == "toml"], ids=lambda b: b.place)
def test_settings_files_are_taken(block, tmp_path, monkeypatch):
    path = tmp_path / "postdate.toml"
    path.write_text(block.text, encoding="utf-8")
    monkeypatch.setenv("POSTDATE_SETTINGS_FILE", str(path))
    settings = load_settings()
    assert set(tomllib.loads(block.text)) <= settings.model_fields_set


def test_json_is_json():
    for block in all_blocks():
        if block.language == "json":
            json.loads(block.text)


ASSIGNED = re.compile(r"\b(POSTDATE_[A-Z_]+)=('[^']*'|\"[^\"$]*\"|[^\s'\"`$<…]+)(?=[\s`]|$)", re.MULTILINE)


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_settings_that_a_page_shows_are_taken(name, monkeypatch):
    for variable, value in ASSIGNED.findall(page(name).text):
        if variable == "POSTDATE_SETTINGS_FILE":
            continue
        with monkeypatch.context() as patch:
            patch.setenv(variable, value.strip("'\""))
            load_settings()
