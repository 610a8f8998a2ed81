"""Requests to a storage account: what each one does, how it ended, and how many there were.

Operations have the words of Azure's REST reference. The transport of a backend counts; who wants to know
the price of an operation asks `model.prices`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Self

#: A request that none of our backends makes; it has no price.
UNKNOWN = "unknown"


class Service(StrEnum):
    """A storage service."""

    TABLE = "table"
    QUEUE = "queue"
    BLOB = "blob"


class Outcome(StrEnum):
    """How one attempt ended."""

    #: Answered with success.
    OK = "ok"
    #: Answered with 4xx: no such row, somebody else holds the lease. Billed as any other.
    REFUSED = "refused"
    #: Answered with 429 or 503: the service was busy. Not billed.
    THROTTLED = "throttled"
    #: Another 5xx, or no answer. Taken as billed.
    FAILED = "failed"


class RequestKind(NamedTuple):
    """What a request does. As text: `table query`."""

    service: str
    operation: str

    def __str__(self) -> str:
        return f"{self.service} {self.operation}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The kind of a text that `str` made."""
        service, _, operation = text.partition(" ")
        return cls(service, operation)


_ENTITY = {"POST": "insert", "GET": "get", "PATCH": "merge", "PUT": "replace", "DELETE": "delete"}
_MESSAGES = {"POST": "put message", "DELETE": "clear messages", "PUT": "create queue"}
_MESSAGE = {"DELETE": "delete message", "PUT": "update message"}
_QUEUE = {"PUT": "create queue", "DELETE": "delete queue"}
_CONTAINER = {
    "PUT": "create container",
    "DELETE": "delete container",
    "GET": "get container properties",
    "HEAD": "get container properties",
}
_BLOB = {"PUT": "put blob", "GET": "get blob", "HEAD": "get properties", "DELETE": "delete blob"}


def table_operation(method: str, url: str) -> str:
    """What a request to the table service does."""
    last = url.partition("?")[0].rpartition("/")[2]
    if last == "$batch":
        return "batch"
    if last.endswith("()"):
        return "query"
    if last == "Tables":
        return "create table" if method == "POST" else "list tables"
    if last.startswith("Tables("):
        return "delete table"
    return _ENTITY.get(method, UNKNOWN)


def queue_operation(method: str, url: str) -> str:
    """What a request to the queue service does."""
    path, _, query = url.partition("?")
    if "comp=" in query:
        if "comp=metadata" in query:
            return "set metadata" if method == "PUT" else "get metadata"
        return "list queues" if "comp=list" in query else UNKNOWN
    if path.endswith("/messages"):
        if method == "GET":
            return "peek messages" if "peekonly=" in query else "get messages"
        return _MESSAGES.get(method, UNKNOWN)
    return (_MESSAGE if "/messages/" in path else _QUEUE).get(method, UNKNOWN)


def blob_operation(method: str, url: str, lease_action: str | None) -> str:
    """What a request to the blob service does; `lease_action`: its header of that name."""
    if lease_action:
        return f"{lease_action} lease"
    query = url.partition("?")[2]
    if "comp=" in query:
        if "comp=list" in query:
            return "list blobs" if "restype=container" in query else "list containers"
        if "comp=appendblock" in query:
            return "append block"
        if "comp=block" in query:
            return "put block list" if "comp=blocklist" in query else "put block"
        return "set metadata" if "comp=metadata" in query and method == "PUT" else UNKNOWN
    return (_CONTAINER if "restype=container" in query else _BLOB).get(method, UNKNOWN)


def outcome_of(status: int) -> Outcome:
    """How an attempt that was answered so has ended."""
    if status < 400:
        return Outcome.OK
    if status in (429, 503):
        return Outcome.THROTTLED
    return Outcome.REFUSED if status < 500 else Outcome.FAILED


Counts = Mapping[tuple[RequestKind, Outcome], int]


class RequestCounter:
    """Counts the attempts of requests, retries included; it only grows."""

    def __init__(self) -> None:
        self._counts: dict[tuple[RequestKind, Outcome], int] = {}

    def add(self, kind: RequestKind, outcome: Outcome) -> None:
        """Count one attempt."""
        key = kind, outcome
        self._counts[key] = self._counts.get(key, 0) + 1

    def counts(self) -> Counts:
        """How many there were up to now; a copy. May be asked from any thread."""
        return self._counts.copy()


def by_operation(counts: Counts) -> dict[str, dict[str, int]]:
    """Counts as an event carries them: by operation, then by outcome, in order."""
    named: dict[str, dict[str, int]] = {}
    for (kind, outcome), count in sorted(counts.items()):
        named.setdefault(str(kind), {})[outcome.value] = count
    return named
