"""The text of errors as others may read it: one line, cut, and without what looks like a secret.

A handler raises what it likes, and drivers quote connection strings, signed URLs and headers. The text goes
into logs, metrics and the error queue, where more people read than may know the secret.
"""

import re

_HIDDEN = "…"
#: Of an error's text in a log line; the error queue has the rest.
_LINE_CHARACTERS = 1_000

_NAMES = (
    "account_?key|shared_?access_?key|shared_?access_?signature|access_?key|api[-_]?key|secret|secret_?key"
    "|(?:access|refresh|id|auth|session|sas)_?token|password|passwd|passphrase|pwd"
)
_VALUE = r"""[^\s;&,"')}\]]+"""
#: Each with what stays in front of the secret.
_SECRETS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # AccountKey=…, "client_secret": "…", DB_PASSWORD=…, x-api-key: …
        rf"""(?P<before>(?:{_NAMES})["']?\s*[=:]\s*)(?:"[^"]*"|'[^']*'|{_VALUE})""",
        # …?sv=…&sig=…
        rf"(?P<before>(?<![a-z0-9_])(?:sig|token)=){_VALUE}",
        # Authorization: Bearer …
        r"(?P<before>\b(?:bearer|basic|sharedkey(?:lite)?)\s+)(?=\S*[0-9=])[a-z0-9+/=_.:~-]{8,}",
        # scheme://user:…@host
        r"(?P<before>://[^/\s:@]*:)[^/\s@]+(?=@)",
        # A token in three parts (JWT)
        r"(?P<before>)\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
        # The key of a storage account, by itself
        r"(?P<before>)(?<![a-z0-9+/])[a-z0-9+/]{86}==",
        r"(?P<before>-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)",
    )
)


def without_secrets(text: str) -> str:
    """The text with `…` in place of what looks like a key, a password, a token or a signature.

    Known are the ways in which connection strings, URLs, headers, JSON and variables write them. A secret in
    other words stays: who raises an error must not put one there.
    """
    for pattern in _SECRETS:
        text = pattern.sub(rf"\g<before>{_HIDDEN}", text)
    return text


def line_of(error: BaseException) -> str:
    """An error as one line for logs: its type, and the first line of its text, cut where it is long."""
    first = str(error).strip().partition("\n")[0]
    # Some more than is shown: what is cut in the middle is not known for what it is.
    text = without_secrets(first[: 2 * _LINE_CHARACTERS])
    if len(text) > _LINE_CHARACTERS:
        text = f"{text[:_LINE_CHARACTERS]} …"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
