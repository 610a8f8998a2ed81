"""Rules for the whole tree that no linter of ours knows."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.settings import in_ci

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "postdate"
MODULE_LINES = 350
TEST_LINES = 500

# Paths of somebody's machine; Azure's own /home/site is none.
MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:work|root|Users|home)/(?!site/)\w")
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|yarnpkg\.com|artifactory|"
    r"(?:index-url|find-links|registry)[\"' ]*[= ][\"' ]*\w+://",
    re.IGNORECASE,
)
# A wall clock or a timer; `time.monotonic` is refused too, since it stands still while a machine sleeps.
CLOCK_CALLS = {
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.clock_gettime"),
    *("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
}
ENVIRONMENT = {"os.environ", "os.getenv", "os.environb", "os.putenv"}
#: An exception from lint or types, and the reason behind it.
EXCEPTION = re.compile(r"# (?:noqa|type: ignore)\b[^#]*?(?P<reason> - \w.*| # \w.*|)$")
#: A longer file needs this, and a reason behind it.
REASON = "# Longer than the limit: "


def python_files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.py"))


def uses(path: Path, names: set[str]) -> list[str]:
    """Where a file uses one of the dotted names, also by `from module import name`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            used = {".".join(ast.unparse(node).split(".")[-2:])}
        elif isinstance(node, ast.ImportFrom):
            used = {f"{node.module}.{alias.name}" for alias in node.names}
        else:
            continue
        found += [f"{path.relative_to(ROOT)}:{node.lineno} uses {name}" for name in used & names]
    return found


def waits(path: Path) -> list[str]:
    """Where a file calls a sleep; `asyncio.sleep(0)` waits for nothing, but gives others a turn."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"asyncio.sleep", "time.sleep", "sleep"}
        and not (node.args and ast.unparse(node.args[0]) == "0")
    ]


@pytest.mark.parametrize(
    ("names", "allowed"), [(ENVIRONMENT, "settings/environment.py"), (CLOCK_CALLS, "clock.py")]
)
def test_only_one_module_asks_the_machine(names, allowed):
    found = [use for path in python_files(SOURCES) if path != SOURCES / allowed for use in uses(path, names)]
    assert found == []


def test_the_library_and_its_unit_and_conformance_tests_never_sleep():
    files = python_files(SOURCES, ROOT / "tests/unit", ROOT / "tests/conformance")
    assert [wait for path in files if path != SOURCES / "clock.py" for wait in waits(path)] == []


@pytest.mark.parametrize(("folder", "limit"), [(SOURCES, MODULE_LINES), (ROOT / "tests", TEST_LINES)])
def test_a_long_file_says_why(folder, limit):
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in python_files(folder)}
    long = {path: len(text.splitlines()) for path, text in texts.items() if REASON not in text}
    assert {path: lines for path, lines in long.items() if lines > limit} == {}


def unexplained(text: str) -> list[int]:
    """Lines with an exception and no reason; exceptions in a row share the reason of the first."""
    found, explained = [], False
    for number, line in enumerate(text.splitlines(), 1):
        exception = EXCEPTION.search(line)
        explained = exception is not None and (explained or bool(exception["reason"]))
        if exception and not explained:
            found.append(number)
    return found


def test_each_exception_from_lint_and_types_says_why():
    without = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in python_files(SOURCES, ROOT / "bench")
        for number in unexplained(path.read_text(encoding="utf-8"))
    ]
    assert not without


def test_exceptions_in_a_row_share_a_reason_and_others_do_not():
    row = "a  # noqa: X1 - late\nb  # noqa: X1\n\nc  # noqa: X1\nd  # type: ignore[x] # so\ne  # type: ignore[x]\n"
    assert unexplained(row) == [4]


def test_no_two_test_modules_share_a_name():
    # pytest imports them by their bare names, and a whole run would stop at the second.
    names = [path.name for path in python_files(ROOT / "tests") if path.name != "conftest.py"]
    assert sorted(names) == sorted(set(names))


def tracked_texts() -> Iterator[tuple[str, str]]:
    git = shutil.which("git")
    listed = (
        subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True) if git else None
    )
    if listed is None or listed.returncode:
        if in_ci():
            pytest.fail("git does not list this tree's files")
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY], ids=["machine path", "registry"])
def test_no_tracked_file_names_a_machine_or_a_registry(pattern):
    texts = list(tracked_texts())
    assert len(texts) > 1
    found = [
        f"{name}: {match[0]}"
        for name, text in texts
        if name != "tests/unit/test_repo_rules.py"
        for match in pattern.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (MACHINE_PATH, "see /home/someone/x", True),
        (MACHINE_PATH, "see /home/site/wwwroot", False),
        (MACHINE_PATH, "docs/" + "work/plan", False),
        (REGISTRY, f'"resolved": "https://{"npmjs"}.org/azurite"', True),
        (REGISTRY, "--extra-index-url https://example.org/simple", True),
        (REGISTRY, "--no-emit-index-url --no-emit-find-links", False),
    ],
)
def test_the_patterns_find_what_they_should(pattern, text, matches):
    assert bool(pattern.search(text)) is matches
