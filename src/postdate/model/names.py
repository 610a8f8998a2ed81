"""Names: the delays table, queues, and addresses of the form `queue@alias`.

Rules: nservicebus-azure, 1.1 and 2.5; the service's own limits for tables, containers and queues.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

from postdate.errors import ConfigurationError, InvalidDestination, shown

_TABLE = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_QUEUE = re.compile(r"[a-z0-9](?:-?[a-z0-9])*")
_QUEUE_LENGTH = (3, 63)


def delays_table(endpoint: str, override: str | None = None) -> str:
    """The name of the endpoint's table, and of the container whose lease elects its leader.

    Without an override it is `delays` and the SHA-1 of the endpoint's name in UTF-8, exactly as given:
    no trimming, no lower-casing. An override is lower-cased.

    Raises:
        ConfigurationError: the endpoint's name is empty, or the override is not a table name.
    """
    return _table("delays", endpoint, override)


def inbox_table(endpoint: str, override: str | None = None) -> str:
    """The name of the table where the endpoint's consumers remember messages; made as `delays_table`.

    Raises:
        ConfigurationError: the endpoint's name is empty, or the override is not a table name.
    """
    return _table("inbox", endpoint, override)


def _table(kind: str, endpoint: str, override: str | None) -> str:
    if override is None:
        if not endpoint:
            raise ConfigurationError("the endpoint's name is empty; set POSTDATE_ENDPOINT or pass a name")
        try:
            name = endpoint.encode()
        except UnicodeEncodeError:
            raise ConfigurationError(
                f"the endpoint's name {shown(endpoint)} holds half of a surrogate pair; use valid Unicode"
            ) from None
        return kind + hashlib.sha1(name, usedforsecurity=False).hexdigest()
    if not _TABLE.fullmatch(override) or override.lower() == "tables":
        raise ConfigurationError(
            f"the {kind} table {shown(override)} is not a table name: it takes 3 to 63 letters and digits, "
            "the first a letter"
        )
    return override.lower()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a message goes: a queue, and the alias of the account that holds it ("" is our own)."""

    queue: str
    alias: str = ""

    def __str__(self) -> str:
        return f"{self.queue}@{self.alias}" if self.alias else self.queue


def split_address(text: str) -> Address:
    """Split at the first `@`; the right side is an account alias.

    Raises:
        InvalidDestination: the queue is blank, a connection string stands where a name belongs, or it is
            no text at all.
    """
    given: object = text  # callers without a type checker pass anything
    if not isinstance(given, str):
        raise InvalidDestination(
            f"destination {shown(given)} is not text but {type(given).__name__}; write queue or queue@alias"
        )
    # The text itself: a str enum's member formats as the member's name.
    queue, _, alias = str.__str__(given).partition("@")
    if re.search("[=;]", given):
        raise InvalidDestination(
            f"destination {shown(queue)}{'@…' if alias else ''} carries a connection string; register it as "
            "an alias (POSTDATE_ALIASES) and write queue@alias"
        )
    if not queue.strip():
        raise InvalidDestination(f"destination {shown(given)} names no queue; write queue or queue@alias")
    return Address(queue, alias)


def check_queue(name: str) -> str:
    """`name`, if the service would take it as a queue's name.

    Raises:
        InvalidDestination: what is wrong, and a name that would do where there is an obvious one.
    """
    low, high = _QUEUE_LENGTH
    if not low <= len(name) <= high:
        raise InvalidDestination(
            f"queue name {shown(name)} has {len(name)} characters; it takes {low} to {high}"
        )
    if not _QUEUE.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        hint = f"; did you mean {better!r}?" if len(better) >= low and "=" not in name else ""
        raise InvalidDestination(
            f"queue name {shown(name)} is not valid: lower-case letters, digits, single inner dashes{hint}"
        )
    return name


def destination(text: str) -> Address:
    """Parse and check a destination.

    Raises:
        InvalidDestination: see `split_address` and `check_queue`.
    """
    return _known(text) if type(text) is str else _checked(text)


def _checked(text: str) -> Address:
    address = split_address(text)
    check_queue(address.queue)
    return address


#: Many messages have one destination.
_known = lru_cache(maxsize=1_000)(_checked)


def dispatch_address(text: str) -> str:
    """The address to send a row to: as it stands, or sanitised where no queue can have that name.

    A .NET endpoint stores the destination before its sanitizer has seen it (nservicebus-azure, 1.2), so
    `Contoso.Shipping` has to become the queue that its fleet made of it.

    Raises:
        InvalidDestination: see `split_address`.
    """
    address = split_address(text)
    low, high = _QUEUE_LENGTH
    if low <= len(address.queue) <= high and _QUEUE.fullmatch(address.queue):
        return text
    return str(Address(legacy_queue_name(address.queue), address.alias))


def queue_for_endpoint(endpoint: str) -> str:
    """The endpoint's own queue: lower case, and every run of dots, dashes and underscores as one dash.

    This is the usual sanitizer of .NET fleets for names of letters, digits and dots. Names that hold
    anything else need `POSTDATE_QUEUE`: two of them could end up with one queue.

    Raises:
        ConfigurationError: no valid queue name comes out.
    """
    name = re.sub(r"[._-]+", "-", endpoint.lower()).strip("-")
    low, high = _QUEUE_LENGTH
    if not low <= len(name) <= high or not _QUEUE.fullmatch(name):
        raise ConfigurationError(
            f"endpoint {shown(endpoint)} gives no valid queue name ({shown(name)}); set POSTDATE_QUEUE"
        )
    return name


def satellite_queue(base: str, qualifier: str) -> str:
    """A further queue of an endpoint, by the rule of its own; too long a name is cut and hashed as of old.

    Args:
        base: the endpoint's name, or that of its queue.
        qualifier: what is put behind it, after a dash.
    """
    name = f"{base}-{qualifier}"
    try:
        return queue_for_endpoint(name)
    except ConfigurationError:
        return legacy_queue_name(name)


def _net_guid_text(digest: bytes) -> str:
    """16 bytes as .NET prints a GUID made of them: the first three groups byte-swapped."""
    groups = digest[3::-1], digest[5:3:-1], digest[7:5:-1], digest[8:10], digest[10:16]
    return "-".join(g.hex() for g in groups)


def legacy_queue_name(name: str, *, digest: str = "md5", sanitised_first: bool = False) -> str:
    """The queue name that endpoints up to version 7 made of `name` (nservicebus-azure, 2.5).

    Args:
        name: endpoint or queue name, any characters.
        digest: `md5` (a GUID, their default) or `sha1`.
        sanitised_first: hash the sanitised text, as the documented "compatible" sanitizer does; the two
            differ for names with `_` or `..`.
    """
    lowered = name.lower()
    clean = re.sub(r"-{2,}", "-", re.sub(r"[^a-zA-Z0-9-]", "-", lowered))
    if len(clean) <= _QUEUE_LENGTH[1]:
        return clean
    source = (clean if sanitised_first else lowered.replace(".", "-")).encode()
    if digest == "md5":
        hashed = _net_guid_text(hashlib.md5(source, usedforsecurity=False).digest())
    else:
        hashed = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    head = clean[: _QUEUE_LENGTH[1] - len(hashed) - 1].strip("-")
    return f"{head}-{hashed}"
