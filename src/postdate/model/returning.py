"""The text of a failed message without what its failure added, so that its endpoint may try it afresh.

Nothing else changes: the message id, the body, all other headers, and the form of the envelope. Its endpoint
reads the form that it was written in, and may read no other (nservicebus-azure, 2.1): System.Text.Json or
Newtonsoft (with a byte order mark), in an array or not, with names in any case, or XML.
"""

import base64
import json
from typing import Any
from xml.parsers import expat

from postdate.model import headers as h
from postdate.model.envelope import ReadForm, unwrap
from postdate.model.jsontext import quote, read

_EXCEPTION_INFO = "NServiceBus.ExceptionInfo."
_ADDED = frozenset(
    {
        h.FAILED_QUEUE,
        h.TIME_OF_FAILURE,
        h.PROCESSING_ENDPOINT,
        h.PROCESSING_MACHINE,
        h.HOST_ID,
        h.HOST_NAME,
        h.ATTEMPTS,
        # A stale one would cost it its delayed retries (recoverability, REC-5).
        *h.RETRY_HEADERS,
    }
)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Line ends that Newtonsoft escapes.
_NEWTONSOFT = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}


def is_of_failure(header: str) -> bool:
    """Whether a header was added by retries or by the failure."""
    return header in _ADDED or header.startswith(_EXCEPTION_INFO)


def without_fault(text: str) -> str:
    """A queue message's text without the headers of its failure; the same text where it has none.

    Raises:
        PoisonMessage: it is an envelope, and a broken one.
    """
    opened = unwrap(text, "")
    if opened.form is ReadForm.PLAIN or not any(map(is_of_failure, opened.message.headers)):
        return text
    content = base64.b64decode(text)
    edited = _json(content) if opened.form is ReadForm.JSON else _xml(content)
    return base64.b64encode(edited).decode()


def with_payload_name(text: str, old: str, new: str) -> str:
    """A queue message's text with the name of its large body changed: names are hex digits and a dash."""
    return base64.b64encode(base64.b64decode(text).replace(old.encode(), new.encode())).decode()


def _json(content: bytes) -> bytes:
    parsed = read(content)
    wrapper: dict[str, Any] = parsed[0] if isinstance(parsed, list) else parsed
    for name, value in wrapper.items():
        if name.lower() == "headers" and isinstance(value, dict):
            wrapper[name] = {key: text for key, text in value.items() if not is_of_failure(key)}
    if content.startswith(_BYTE_ORDER_MARK):  # Newtonsoft's: what is not ASCII stays as it is
        written = json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))
        return _BYTE_ORDER_MARK + written.translate(_NEWTONSOFT).encode()
    written = "{" + ",".join(_member(name, value) for name, value in wrapper.items()) + "}"
    return (f"[{written}]" if isinstance(parsed, list) else written).encode()


def _member(name: str, value: object) -> str:
    # .NET writes base64 as it is, without the escapes of other text, which would make it longer.
    plain = name.lower() == "body" and isinstance(value, str)
    return f'{quote(name)}:"{value}"' if plain else f"{quote(name)}:{_written(value)}"


def _written(value: object) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote(name)}:{_written(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def _xml(content: bytes) -> bytes:
    start = content.index(b"<")  # the parser takes nothing before the declaration
    document = content[start:]
    finder = _PairFinder(document)
    kept, end = [content[:start]], 0
    for first, last in finder.found():
        kept.append(document[end:first])
        end = last
    return b"".join([*kept, document[end:]])


class _PairFinder:
    """Finds the bytes that pairs of failure headers take, so that all others stay as they are."""

    def __init__(self, document: bytes) -> None:
        self._document = document
        # Given, so that no declared encoding makes something else of what was checked (see `envelope`).
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._starts
        self._parser.CharacterDataHandler = self._reads
        self._parser.EndElementHandler = self._ends
        #: Names from the root down, without prefixes.
        self._path: list[str] = []
        self._first = 0
        self._key = ""
        self._spans: list[tuple[int, int]] = []

    def found(self) -> list[tuple[int, int]]:
        """First byte, and first byte behind, of each."""
        self._parser.Parse(self._document, True)
        return self._spans

    @property
    def _in_pair(self) -> bool:
        return self._path[1:2] == ["Headers"]

    def _starts(self, name: str, _attributes: dict[str, str]) -> None:
        self._path.append(name.rpartition(":")[2])
        if len(self._path) == 3:
            self._first, self._key = self._parser.CurrentByteIndex, ""

    def _reads(self, text: str) -> None:
        if len(self._path) == 4 and self._in_pair and self._path[3] == "Key":
            self._key += text

    def _ends(self, _name: str) -> None:
        if len(self._path) == 3 and self._in_pair and is_of_failure(self._key):
            last = self._document.index(b">", self._parser.CurrentByteIndex) + 1
            self._spans.append((self._first, last))
        self._path.pop()
