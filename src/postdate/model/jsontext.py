r"""JSON text as .NET's System.Text.Json writes it by default, and a reader that takes all three styles.

The writer is ours because no library escapes this way: every non-ASCII character as `\uXXXX` in
upper-case hex, and `" & ' + < > backtick` as `\u00XX` (nservicebus-azure, 1.2). Equal bytes matter: the
size of a message is what .NET would see, and golden files compare to the letter.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from postdate.errors import PoisonMessage

_PLAIN = re.compile(r"[ !#$%()*,\-./0-9:;=?@A-Z\[\]^_a-z{|}~]*")
#: Names and values that need no escape, a tab between the two, a line each.
_PLAIN_LINES = re.compile(r"[ !#$%()*,\-./0-9:;=?@A-Z\[\]^_a-z{|}~\t\n]+")
_NOT_PLAIN = re.compile(r"[^ !#$%()*,\-./0-9:;=?@A-Z\[\]^_a-z{|}~]")
_SHORT = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: Newtonsoft takes these for line ends; everything else that is not ASCII it writes as it is.
_NEWTONSOFT_TOO = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        return "\\uFFFD"  # half of a surrogate pair: .NET writes the replacement character too
    if code <= 0xFFFF:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def quote(text: str) -> str:
    """One JSON string, quotes included."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return f'"{_NOT_PLAIN.sub(_escape, text)}"'


def quote_or_null(text: str | None) -> str:
    """A JSON string, or `null`."""
    return "null" if text is None else quote(text)


def write_map(values: dict[str, str | None]) -> str:
    """A flat JSON object of text or null values, compact, in the given order."""
    if None not in values.values():
        # One look at all of it: each message has about ten headers, and is written three times.
        text = "\n".join([f"{name}\t{value}" for name, value in values.items()])
        marks = len(values)
        if _PLAIN_LINES.fullmatch(text) and text.count("\t") == marks and text.count("\n") == marks - 1:
            return '{"' + text.replace("\t", '":"').replace("\n", '","') + '"}'
    return "{" + ",".join(f"{quote(k)}:{quote_or_null(v)}" for k, v in values.items()) + "}"


def longest_map(values: Mapping[str, str | None]) -> int:
    """At least as many characters as `write_map` takes, at a tenth of its cost."""
    return 2 + sum([longest_text(name) + longest_text(value or "") + 4 for name, value in values.items()])


def longest_text(text: str) -> int:
    """At least as many characters as a JSON string of it takes."""
    return 12 * len(text) + 2  # a pair of surrogates, both escaped


def write_newtonsoft_map(values: dict[str, str | None]) -> str:
    """The same as Newtonsoft.Json writes it, for what older endpoints read: little is escaped."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return _whole(text).translate(_NEWTONSOFT_TOO)


def read(text: str | bytes) -> Any:
    """Parse JSON of any of the three writers, with a byte order mark or not.

    Versions 7.4 to 11 wrote control characters raw, which is not JSON; those are taken too.

    Raises:
        PoisonMessage: it is not JSON.
    """
    bare = text.removeprefix(b"\xef\xbb\xbf") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    try:
        return msgspec.json.decode(bare)
    except (ValueError, RecursionError):
        pass  # the standard library's reader takes a little more
    try:
        parsed = json.loads(bare.decode() if isinstance(bare, bytes) else bare, strict=False)
        return json.loads(_whole(json.dumps(parsed, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise PoisonMessage(f"not JSON: {error}") from None


def _whole(text: str) -> str:
    """Halves of surrogate pairs, which nothing could encode later, as replacement characters."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
