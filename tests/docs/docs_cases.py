"""Pages as their tests see them: code blocks with their place, and what is left of a page without them."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Pages in the order in which people read them.
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "samples").glob("*/README.md")),
]
PAGE_NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
SHELLS = {"bash", "sh", "console"}
_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)")


@dataclass(frozen=True)
class Block:
    """A fenced block. The first word behind the fence is its language, the others say how it is tested.

    python            runs with the page's other blocks, in order, in one namespace, on the memory backend
    python azurite    the same, on Azurite
    python script     runs as a program of its own, on Azurite
    python pytest     is a test module that passes
    bash              its commands and options exist
    bash session      the same, and it runs with the page's other sessions, in order, in one shell, on Azurite
    toml              is a settings file
    json, text        json parses; text is not looked at

    In a page with the comment `<!-- inside: endpoint -->` the first kind finds an open `endpoint`.
    """

    page: str
    line: int
    language: str
    words: frozenset[str]
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A page taken apart. `prose` has as many lines as the page: those of blocks are empty."""

    name: str
    text: str
    prose: str
    blocks: tuple[Block, ...]

    @property
    def path(self) -> Path:
        return ROOT / self.name

    def of(self, language: str, *words: str) -> list[Block]:
        """Blocks of a language with exactly these words."""
        return [b for b in self.blocks if b.language == language and b.words == frozenset(words)]


@cache
def page(name: str) -> Page:
    text = (ROOT / name).read_text(encoding="utf-8")
    prose: list[str] = []
    blocks: list[Block] = []
    fence: re.Match[str] | None = None
    inside: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.fullmatch(line)
        if fence is None and found:
            fence, inside, start = found, [], number + 1
        elif fence is not None and found and found["ticks"] == fence["ticks"] and not found["info"].strip():
            info = fence["info"].split()
            code = textwrap.dedent("\n".join(inside)) + "\n"
            blocks.append(Block(name, start, info[0] if info else "", frozenset(info[1:]), code))
            fence = None
        elif fence is not None:
            inside.append(line)
        if fence is None and not found:
            prose.append(line)
        else:
            prose.append("")
    assert fence is None, f"{name}:{start}: a block is not closed"
    return Page(name, text, "\n".join(prose), tuple(blocks))


def all_blocks() -> list[Block]:
    return [block for name in PAGE_NAMES for block in page(name).blocks]


def shell_lines(block: Block) -> Iterator[tuple[int, str]]:
    """Commands of a shell block, continued lines joined; in a console block, what stands behind the `$`."""
    pending, start = "", 0
    for number, raw in enumerate(block.text.splitlines(), block.line):
        line = raw
        if block.language == "console":
            if not pending and not line.startswith("$ "):
                continue
            line = line.removeprefix("$ ")
        start = start if pending else number
        pending += line.removesuffix("\\")
        if not line.endswith("\\"):
            if pending.strip():
                yield start, pending
            pending = ""


def simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line of shell, without assignments and redirections; `$(...)` runs commands too."""
    flat = re.sub(r'"?\$\((.*)\)"?', r" ; \1 ; ", line)
    lexer = shlex.shlex(flat, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if re.fullmatch(r"[;|&]+", word):
            if words:
                yield words
            words = []
        elif re.fullmatch(r"[<>]+&?", word):
            skip = True
            if words and words[-1].isdecimal():  # 2> file
                words.pop()
        elif skip:
            skip = False
        elif words or not re.fullmatch(r"[A-Za-z_]\w*=.*", word, re.DOTALL):
            words.append(word)


def code_spans(prose: str) -> Iterator[tuple[int, str]]:
    """What stands in single backticks, and on which line."""
    for number, line in enumerate(prose.splitlines(), 1):
        for match in re.finditer(r"(?<!`)`([^`]+)`(?!`)", line):
            yield number, match[1]
