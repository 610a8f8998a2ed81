"""Which failures a retry can help: by type, by error number, by HTTP status (recoverability, section 9).

Types are named, not imported: nobody pays for a database driver that they don't use. The chain of causes is
walked, and the innermost error that is known decides: a wrapper tells less than what it wraps.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum, auto


class Kind(StrEnum):
    """What a failure means for the next attempt."""

    #: Passes by itself, soon: a deadlock, a dropped connection, a race.
    TRANSIENT = auto()
    #: Passes by itself, not at once: throttled, refused, out of connections.
    BUSY = auto()
    #: The same message fails for ever.
    PERMANENT = auto()
    #: The code is wrong; one more attempt tells whether it was a fluke.
    BROKEN = auto()
    UNKNOWN = auto()


#: What one rule says of one error; None: nothing.
Rule = Callable[[BaseException], Kind | None]

_BY_NAME = {
    "postdate.errors.PoisonMessage": Kind.PERMANENT,
    "postdate.errors.UsageError": Kind.PERMANENT,
    "postdate.errors.DestinationNotFound": Kind.PERMANENT,
    "postdate.errors.NotProvisioned": Kind.PERMANENT,
    "postdate.errors.StorageUnreachable": Kind.BUSY,
    "postdate.errors.ServiceBusy": Kind.BUSY,
    "postdate.errors.OutcomeUnknown": Kind.TRANSIENT,
    "postdate.errors.AccessDenied": Kind.PERMANENT,
    "postdate.errors.HandlerNeverEnded": Kind.UNKNOWN,
    "builtins.ConnectionRefusedError": Kind.BUSY,
    "socket.gaierror": Kind.BUSY,
    "builtins.ConnectionError": Kind.TRANSIENT,
    "builtins.TimeoutError": Kind.TRANSIENT,
    "builtins.TypeError": Kind.BROKEN,
    "builtins.AttributeError": Kind.BROKEN,
    "builtins.NameError": Kind.BROKEN,
    "builtins.LookupError": Kind.BROKEN,
    "builtins.AssertionError": Kind.BROKEN,
    "builtins.NotImplementedError": Kind.BROKEN,
    "builtins.ImportError": Kind.PERMANENT,
    "pydantic_core._pydantic_core.ValidationError": Kind.PERMANENT,
    "sqlite3.IntegrityError": Kind.PERMANENT,
    "sqlalchemy.exc.IntegrityError": Kind.PERMANENT,
    "sqlalchemy.exc.NoSuchTableError": Kind.PERMANENT,
    "sqlalchemy.exc.TimeoutError": Kind.BUSY,
    "azure.core.exceptions.ServiceRequestError": Kind.BUSY,
    "azure.core.exceptions.ServiceResponseError": Kind.TRANSIENT,
    "aiohttp.client_exceptions.ClientConnectorError": Kind.BUSY,
    "aiohttp.client_exceptions.ClientConnectionError": Kind.TRANSIENT,
    "httpx.ConnectError": Kind.BUSY,
    "httpx.TransportError": Kind.TRANSIENT,
    "requests.exceptions.ConnectionError": Kind.TRANSIENT,
    "requests.exceptions.Timeout": Kind.TRANSIENT,
}
_BY_STATUS = {
    400: Kind.PERMANENT,
    401: Kind.PERMANENT,
    403: Kind.PERMANENT,
    404: Kind.PERMANENT,
    408: Kind.TRANSIENT,
    409: Kind.PERMANENT,
    412: Kind.TRANSIENT,
    422: Kind.PERMANENT,
    429: Kind.BUSY,
    502: Kind.TRANSIENT,
    503: Kind.BUSY,
    504: Kind.TRANSIENT,
}
#: By SQLSTATE, or its class of two characters.
_BY_SQLSTATE = {
    "40001": Kind.TRANSIENT,
    "40P01": Kind.TRANSIENT,
    "55P03": Kind.TRANSIENT,
    "08": Kind.TRANSIENT,
    "08001": Kind.BUSY,
    "53": Kind.BUSY,
    "57P": Kind.BUSY,
    "22": Kind.PERMANENT,
    "23": Kind.PERMANENT,
    "42": Kind.PERMANENT,
}
_BY_SQLITE_NAME = {"SQLITE_BUSY": Kind.TRANSIENT, "SQLITE_LOCKED": Kind.TRANSIENT}


#: An error that was only being handled when the real trouble began does not say these of the trouble: a
#: unique key that is there already, before an update that lost its connection; a KeyError before a time-out.
_OF_THE_ERROR_ITSELF = (Kind.BROKEN, Kind.PERMANENT)


class Classifier:
    """Tells kinds of failures apart. Rules of your own come first, the latest of them before the others.

    classifier = Classifier()
    classifier.add(PaymentDeclined, Kind.PERMANENT)
    classifier.rule(lambda error: Kind.BUSY if "quota" in str(error) else None)
    """

    def __init__(self) -> None:
        self._rules: list[Rule] = [_by_type, _by_sqlite, _by_sqlstate, _by_status]

    def add(self, error_type: type[BaseException], kind: Kind) -> None:
        """All errors of a type, subclasses too, are of this kind."""
        self.rule(lambda error: kind if isinstance(error, error_type) else None)

    def rule(self, rule: Rule) -> None:
        """Ask `rule` before all others; None from it means that the others are asked."""
        self._rules.insert(0, rule)

    def __call__(self, error: BaseException) -> Kind:
        """The kind of a failure: that of the innermost error of its chain that any rule knows."""
        found = Kind.UNKNOWN
        for link, meant in _chain(error):
            kind = next((kind for rule in self._rules if (kind := rule(link)) is not None), None)
            if kind is None or (not meant and (found is not Kind.UNKNOWN or kind in _OF_THE_ERROR_ITSELF)):
                continue
            found = kind
        return found


def _chain(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """An error, what it was raised from or while handling, and so on; False: only while handling."""
    seen: set[int] = set()
    link: BaseException | None = error
    meant = True
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link, meant
        explicit = link.__cause__ is not None or link.__suppress_context__
        link, meant = (link.__cause__, meant) if explicit else (link.__context__, False)


def _by_type(error: BaseException) -> Kind | None:
    for kind in type(error).__mro__:
        found = _BY_NAME.get(f"{kind.__module__}.{kind.__qualname__}")
        if found is not None:
            return found
    return None


def _by_sqlite(error: BaseException) -> Kind | None:
    name = getattr(error, "sqlite_errorname", None)
    return _BY_SQLITE_NAME.get(name.partition("_SNAPSHOT")[0]) if isinstance(name, str) else None


def _by_sqlstate(error: BaseException) -> Kind | None:
    """As psycopg, asyncpg (`sqlstate`) and psycopg2 (`pgcode`) tell it."""
    for attribute in ("sqlstate", "pgcode"):
        state = getattr(error, attribute, None)
        if isinstance(state, str):
            for length in (5, 3, 2):
                if state[:length] in _BY_SQLSTATE:
                    return _BY_SQLSTATE[state[:length]]
    return None


def _by_status(error: BaseException) -> Kind | None:
    """As azure-core (`status_code`), aiohttp (`status`), httpx and requests (`response`) tell it."""
    response = getattr(error, "response", None)
    for place in (error, response):
        for attribute in ("status_code", "status"):
            status = getattr(place, attribute, None)
            if isinstance(status, int):
                return _BY_STATUS.get(status)
    return None
