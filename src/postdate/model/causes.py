"""Why messages failed, with what differs from one to the next masked: equal causes are one group."""

import hashlib
import re
from dataclasses import dataclass

#: Characters of a message that are looked at, and that are kept once it is masked.
_READ_CHARACTERS, _KEPT_CHARACTERS = 2_000, 200
#: Hex digits of a group's key: some thousand groups have no two alike.
_KEY_DIGITS = 8
# An apostrophe inside a word opens no quotation: "can't".
_QUOTED = re.compile(
    r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`|\u201c[^\u201d]*\u201d|\u2018[^\u2019]*\u2019|«[^»]*»)(?!\w)"""
)
_IDENTITY = re.compile(
    r"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a GUID
    r"|0x[0-9a-f]+|[0-9a-f]{32}|(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{12,})\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def masked(message: str) -> str:
    """The message on one line, with quoted values, identities and numbers masked, and cut."""
    text = " ".join(message[:_READ_CHARACTERS].split())
    text = _QUOTED.sub("<text>", text)
    text = _IDENTITY.sub("<id>", text)
    return _NUMBER.sub("<n>", text)[:_KEPT_CHARACTERS]


@dataclass(frozen=True, slots=True)
class Cause:
    """What messages of one group have in common."""

    exception_type: str
    #: Masked.
    message: str
    #: Where it failed: the queue that the message goes back to. "" where it names none.
    failed_queue: str

    @property
    def key(self) -> str:
        """The group's name: the same in every process and at any time."""
        text = f"{self.exception_type}\n{self.message}\n{self.failed_queue.lower()}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_KEY_DIGITS]
