"""What pages say is there: files, tests, settings, names in the code, defaults; and the words are ours."""

import ast
import io
import re
import tokenize
import urllib.parse
from functools import cache

import pytest
from docs_cases import PAGE_NAMES, ROOT, SHELLS, code_spans, page

from postdate import errors
from postdate.cli.main import COMMANDS, GROUPS, click_command
from postdate.events import EVENTS
from postdate.settings import FILE_VARIABLE, PREFIX, Settings, show_value

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")  # pictures too
TEST = re.compile(r"(?P<file>tests/[\w/]+\.py)(?:::(?P<name>\w+))?")


# --- links ----------------------------------------------------------------------------------------


def anchors(name):
    """The fragments that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.+)$", page(name).prose, re.MULTILINE)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_relative_links_lead_somewhere(name):
    broken = []
    for match in LINK.finditer(page(name).prose):
        target, _, fragment = urllib.parse.unquote(match["target"]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (page(name).path.parent / target).resolve() if target else page(name).path
        there = path.exists() and path.is_relative_to(ROOT)
        if there and fragment and path.suffix == ".md":
            there = fragment in anchors(str(path.relative_to(ROOT)))
        if not there:
            broken.append(match["target"])
    assert broken == []


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in PAGE_NAMES:
            continue
        seen.add(name)
        for match in LINK.finditer(page(name).prose):
            target = match["target"].partition("#")[0]
            if target and not re.match(r"[a-z]+:", target):
                path = (page(name).path.parent / target).resolve()
                waiting.append(str(path.relative_to(ROOT)))
    assert set(PAGE_NAMES) - seen == set()


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_tests_that_a_page_names_are_there(name):
    missing = []
    for match in TEST.finditer(page(name).text):
        path = ROOT / match["file"]
        if not path.exists() or (match["name"] and f"def {match['name']}(" not in path.read_text()):
            missing.append(match[0])
    assert missing == []


# --- names ----------------------------------------------------------------------------------------


@cache
def commands():
    """Each command's options, and the variables that stand for them."""
    found = {name: click_command(name) for name in COMMANDS}
    options = {
        name: {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
        for name, command in found.items()
    }
    variables = {
        variable
        for command in found.values()
        for param in command.params
        for variable in ([param.envvar] if isinstance(param.envvar, str) else param.envvar or [])
    }
    return options, variables


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_variables_that_a_page_names_are_settings(name):
    known = {PREFIX + field.upper() for field in Settings.model_fields} | commands()[1] | {FILE_VARIABLE}
    found = set(re.findall(rf"\b{PREFIX}[A-Z_]*[A-Z]\b", page(name).text))
    assert found - known == set()


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_commands_in_a_sentence_exist(name):
    options, _ = commands()
    wrong = []
    for line, span in code_spans(page(name).prose):
        words = span.split()
        if words[:1] != ["postdate"] or len(words) < 2 or words[1].startswith("["):
            continue
        flags = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
        if words[1].startswith("-"):
            continue
        called = words[1] if words[1] not in GROUPS else " ".join(words[1:3])
        if called not in {*options, *GROUPS} or flags - options.get(called, set()):
            wrong.append(f"{name}:{line}: {span}")
    assert wrong == []


@cache
def words_of_the_code():
    """Every name in our sources and tests' helpers, and every word in their texts."""
    words = set()
    for folder in ("src/postdate", "samples", "tests/golden"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix == ".json" and path.is_file():
                words |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
            if path.suffix != ".py":
                continue
            words.add(path.stem)
            for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
                if token.type in (tokenize.NAME, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
                    words |= set(re.findall(r"\w+", token.string))
    return words


#: Names of others that pages quote.
OF_OTHERS = {
    *("CancelScheduledMessageAsync", "ScheduledEnqueueTimeUtc", "create_timer", "visibility_timeout"),
    *("FetchNextDueTimeout", "IncrementFailureCount", "SetupInfrastructure", "TransactionScope"),
    *("terminationGracePeriodSeconds", "minReplicas", "asyncio_mode", "worker_eta_task_limit"),
}


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_names_in_backticks_exist_in_the_code(name):
    """An error, event, setting, column or parameter that was renamed is noticed here."""
    unknown = []
    for line, span in code_spans(page(name).prose):
        if TEST.match(span):
            continue  # see above
        for word in re.findall(r"(?<![\w./-])[A-Za-z_]\w*(?:\.\w+)*(?![\w/-])", span):
            last = word.rpartition(".")[2]
            camel = re.fullmatch(r"(?:[A-Z][a-z0-9]+){2,}", last)
            snake = re.fullmatch(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+", last)
            if (camel or snake) and last not in words_of_the_code() and last not in OF_OTHERS:
                unknown.append(f"{name}:{line}: {span}")
    assert unknown == []


def test_every_event_and_error_stands_in_the_reference():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    pages = "".join(page(name).text for name in PAGE_NAMES if name.startswith("docs/reference/"))
    missing = [k.__name__ for k in kinds if k.__name__ not in pages]
    missing += [event.name for event in EVENTS if event.name not in pages]
    assert missing == []


# --- defaults -------------------------------------------------------------------------------------


def default_rows():
    """Table rows of the form: variable, default (both in backticks), and anything."""
    for name in PAGE_NAMES:
        if name.startswith("docs/reference/"):
            continue  # generated
        for match in re.finditer(r"^\| `(POSTDATE_\w+)` \| `([^|`]*)` \|", page(name).prose, re.MULTILINE):
            yield pytest.param(match[1], match[2], id=f"{name}:{match[1]}")


@pytest.mark.parametrize(("variable", "shown"), list(default_rows()))
def test_defaults_in_tables_are_those_of_the_settings(variable, shown):
    default = Settings.model_fields[variable.removeprefix(PREFIX).lower()].get_default(
        call_default_factory=True
    )
    assert (shown or "-") == (show_value(default) or "-")


# --- words ----------------------------------------------------------------------------------------

#: The words of others for things that have a word of ours (docs/glossary.md, "not").
FOREIGN = {
    r"dead[ -]?letter\w*|DLQ": "error queue",
    r"poison queue": "error queue",
    r"(?:un)?lock(?:s|ed|ing)?": "lease",
    r"masters?|primar(?:y|ies)": "leader",
    r"ETAs?|eta|run_at|visible_at": "due time",
    r"jobs?": "delayed message",
    r"enqueue\w*|defer(?:s|red)?": "schedule",
    r"exactly[ -]once": "guarantee",
    r"checkpoints?": "watermark",
    r"data bus|attachments?": "claim check",
    r"epochs?": "term",
    r"latency": "lag, or lateness",
}


def own_words(name):
    """The prose without what quotes others: code, links' targets, quotations, and sections on others."""
    prose = re.sub(r"`[^`\n]*`", "", page(name).prose)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    prose = re.sub(r"https?://\S+", "", prose)
    prose = re.sub(r"[“\"][^”\"\n]*[”\"]", "", prose)
    lines, quoting = [], False
    for line in prose.splitlines():
        if line.startswith("#"):
            quoting = "alternatives" in line.lower()
        lines.append("" if quoting else line)
    return lines


@pytest.mark.parametrize("name", [name for name in PAGE_NAMES if name != "docs/glossary.md"])
def test_words_are_those_of_the_glossary(name):
    found = [
        f"{name}:{number}: {match[0]!r}; ours is: {ours}"
        for number, line in enumerate(own_words(name), 1)
        for pattern, ours in FOREIGN.items()
        for match in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", line)
    ]
    assert found == []


def test_shell_blocks_use_no_words_of_others_in_comments():
    found = [
        f"{block.place}: {comment}"
        for name in PAGE_NAMES
        for block in page(name).blocks
        if block.language in {"python", *SHELLS}
        for comment in re.findall(r"# .*", block.text)
        for pattern in FOREIGN
        if re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", comment)
    ]
    assert found == []


def test_python_blocks_are_formatted_as_our_code():
    """At least: they parse, and no line is longer than ours may be."""
    for name in PAGE_NAMES:
        for block in page(name).blocks:
            if block.language == "python":
                compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                assert all(len(line) <= 110 for line in block.text.splitlines()), block.place
