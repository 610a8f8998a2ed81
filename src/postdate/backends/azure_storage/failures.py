"""What the services' refusals mean: the only file that knows status and error codes.

Codes come from three places (fact sheet 1.4), and never does a bare status decide that something "is
there already": 409 is also what a table that is being deleted answers (fact 11).
"""

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

import aiohttp
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceRequestTimeoutError,
)

from postdate.backends.azure_storage.connection import Place
from postdate.errors import (
    AccessDenied,
    DestinationNotFound,
    MessageTooLarge,
    NotProvisioned,
    OutcomeUnknown,
    PostdateError,
    ServiceBusy,
    StorageError,
    StorageUnreachable,
)

#: Begins the message of a transaction's refusal, where one operation is to blame.
_NUMBERED = re.compile(r"(\d+):")

#: What a call to a service can end in besides an answer. TimeoutError is an OSError.
CALL_ERRORS = (AzureError, aiohttp.ClientError, OSError, http.client.HTTPException)


class Refusal(Enum):
    """Why a service said no, as far as callers tell the cases apart."""

    EXISTS = auto()
    #: The row, message or blob is not there.
    GONE = auto()
    #: The etag doesn't match.
    CHANGED = auto()
    #: The pop receipt is old: somebody received the message.
    RECEIVED = auto()
    #: The lease is held by somebody else.
    LEASED = auto()
    #: Our lease is no longer ours, whichever way it went.
    LEASE_LOST = auto()
    NOT_PROVISIONED = auto()
    NO_QUEUE = auto()
    BUSY = auto()
    DENIED = auto()
    TOO_LARGE = auto()
    #: What was sent can't be stored, whoever sends it.
    INVALID = auto()
    OTHER = auto()


_BY_CODE = {
    "EntityAlreadyExists": Refusal.EXISTS,
    "TableAlreadyExists": Refusal.EXISTS,
    "QueueAlreadyExists": Refusal.EXISTS,
    "ContainerAlreadyExists": Refusal.EXISTS,
    "BlobAlreadyExists": Refusal.EXISTS,
    "ResourceNotFound": Refusal.GONE,
    "EntityNotFound": Refusal.GONE,
    "MessageNotFound": Refusal.GONE,
    "BlobNotFound": Refusal.GONE,
    "ConditionNotMet": Refusal.CHANGED,
    "UpdateConditionNotSatisfied": Refusal.CHANGED,
    "PopReceiptMismatch": Refusal.RECEIVED,
    "LeaseAlreadyPresent": Refusal.LEASED,
    # Azure and Azurite name the same loss differently (fact sheet 3.1, 7).
    "LeaseLost": Refusal.LEASE_LOST,
    "LeaseIdMissing": Refusal.LEASE_LOST,
    "LeaseIdMismatchWithLeaseOperation": Refusal.LEASE_LOST,
    "LeaseIdMismatchWithBlobOperation": Refusal.LEASE_LOST,
    "LeaseIdMismatchWithContainerOperation": Refusal.LEASE_LOST,
    "LeaseNotPresentWithLeaseOperation": Refusal.LEASE_LOST,
    "LeaseNotPresentWithBlobOperation": Refusal.LEASE_LOST,
    "LeaseNotPresentWithContainerOperation": Refusal.LEASE_LOST,
    "LeaseIsBrokenAndCannotBeRenewed": Refusal.LEASE_LOST,
    "LeaseIsBreakingAndCannotBeAcquired": Refusal.LEASE_LOST,
    "LeaseIsBreakingAndCannotBeChanged": Refusal.LEASE_LOST,
    "TableNotFound": Refusal.NOT_PROVISIONED,
    "ContainerNotFound": Refusal.NOT_PROVISIONED,
    "QueueNotFound": Refusal.NO_QUEUE,
    "TableBeingDeleted": Refusal.BUSY,  # fact 11
    "QueueBeingDeleted": Refusal.BUSY,
    "ContainerBeingDeleted": Refusal.BUSY,
    "ServerBusy": Refusal.BUSY,
    "OperationTimedOut": Refusal.BUSY,
    "InternalError": Refusal.BUSY,
    "RequestBodyTooLarge": Refusal.TOO_LARGE,
    "EntityTooLarge": Refusal.TOO_LARGE,
    "PropertyValueTooLarge": Refusal.TOO_LARGE,
    "InvalidInput": Refusal.INVALID,
    "InvalidValueType": Refusal.INVALID,
    "KeyValueTooLarge": Refusal.INVALID,
    "OutOfRangeInput": Refusal.INVALID,
    "PropertyNameInvalid": Refusal.INVALID,
    "PropertyNameTooLong": Refusal.INVALID,
    "TooManyProperties": Refusal.INVALID,
}
_BY_STATUS = {
    401: Refusal.DENIED,
    403: Refusal.DENIED,
    404: Refusal.GONE,
    408: Refusal.BUSY,
    412: Refusal.CHANGED,
    413: Refusal.TOO_LARGE,
    429: Refusal.BUSY,
    500: Refusal.BUSY,
    502: Refusal.BUSY,
    503: Refusal.BUSY,
    504: Refusal.BUSY,
    # create_queue on a queue that is there, with the same metadata, is a 204 that the SDK raises.
    204: Refusal.EXISTS,
}


def code_of(error: BaseException) -> str | None:
    """The service's error code, wherever it stands; None: it gave none, or no answer came."""
    code = getattr(error, "error_code", None)
    if code:
        return str(getattr(code, "value", code))
    response = getattr(error, "response", None)
    if response is None:
        return None
    code = response.headers.get("x-ms-error-code")
    if code:
        return str(code)
    try:
        # create_entity's exception carries no code (fact 11): the body does.
        return str(json.loads(response.text())["odata.error"]["code"]) or None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def refusal(error: BaseException) -> Refusal:
    """What a service's answer means; OTHER where there was none."""
    code = code_of(error)
    if code in _BY_CODE:
        return _BY_CODE[code]
    return _BY_STATUS.get(getattr(error, "status_code", None) or 0, Refusal.OTHER)


def failing_index(error: BaseException) -> int:
    """Which operation of a transaction failed; 0 where the service doesn't tell."""
    return int(getattr(error, "index", 0))


def refused_row(error: BaseException, rows: int) -> int | None:
    """Which of the rows of an insert the service refuses for what it holds.

    None: it is not that. -1: it is, and the service doesn't tell which row it is.
    """
    if refusal(error) not in (Refusal.TOO_LARGE, Refusal.INVALID):
        return None
    if rows == 1:
        return 0
    named = _NUMBERED.match(getattr(error, "message", ""))
    return int(named[1]) if named and int(named[1]) < rows else -1


def outcome_unknown(error: BaseException) -> bool:
    """Whether the request may have been applied although no answer came."""
    answered = isinstance(error, HttpResponseError) and bool(getattr(error, "status_code", None))
    return not answered and not isinstance(error, ClientAuthenticationError) and not _never_left(error)


#: Answers that don't tell whether the request was applied, above all 500 OperationTimedOut.
_UNSURE_STATUS = (408, 500, 502, 504)


def may_be_applied(error: BaseException) -> bool:
    """Whether a write may have been applied although it failed, with an answer or without one."""
    return outcome_unknown(error) or getattr(error, "status_code", None) in _UNSURE_STATUS


@contextmanager
def translating(what: str, place: Place, *, queue: str | None = None, changes: bool = True) -> Iterator[None]:
    """Let errors of a call out as ours, the cause chained. See `translate`."""
    try:
        yield
    except CALL_ERRORS as error:
        raise translate(error, what, place, queue=queue, changes=changes) from error


def translate(
    error: BaseException, what: str, place: Place, *, queue: str | None = None, changes: bool = True
) -> PostdateError:
    """The error of ours that tells people what happened, and the way out; never a secret.

    Args:
        error: what the SDK, the transport or a timeout raised.
        what: what was tried, like "adding rows to table delays0a1b".
        place: the service it was tried on.
        queue: the destination, where it is a queue's call.
        changes: False where the call only reads, so that a lost answer leaves nothing unknown.
    """
    if isinstance(error, HttpResponseError) and getattr(error, "status_code", None):
        return _answered(error, what, place, queue)
    if isinstance(error, ClientAuthenticationError):
        return AccessDenied(
            f"{what}: no token for account {place.account!r}: {_first_line(error)}; sign in with "
            "`az login`, or give this host a managed identity (POSTDATE_CLIENT_ID names one)"
        )
    if _never_left(error):
        return StorageUnreachable(f"{what}: no answer from {place.address} {_way_to(place)}")
    if not changes:
        return StorageUnreachable(
            f"{what}: the answer of {place.address} broke off or took too long {_way_to(place)}"
        )
    return OutcomeUnknown(
        f"{what}: no answer came from {place.address} ({place.service} service of {place.account!r}), "
        "so it may or may not have been done"
    )


def _answered(error: HttpResponseError, what: str, place: Place, queue: str | None) -> PostdateError:
    kind = refusal(error)
    code = code_of(error) or "no code"
    answer = f"{what}: the {place.service} service of {place.account!r} answered {error.status_code} {code}"
    if kind is Refusal.NO_QUEUE and queue is not None:
        return DestinationNotFound(queue)
    if code.endswith("BeingDeleted"):
        return ServiceBusy(f"{answer}: its deletion is under way, which takes 40 s or more; try again then")
    if code == "InvalidHeaderValue" and place.is_local:
        return StorageError(f"{answer}: the emulator is too old; `postdate azurite` starts one that fits")
    known: dict[Refusal, PostdateError] = {
        Refusal.NOT_PROVISIONED: NotProvisioned(
            f"{what}: the {'table' if place.service == 'table' else 'container'} is missing; "
            "create it with `postdate setup`"
        ),
        Refusal.DENIED: AccessDenied(f"{answer}: {_why_denied(code, place)}"),
        Refusal.TOO_LARGE: MessageTooLarge(f"{answer}: what was sent is too large for it"),
        Refusal.BUSY: ServiceBusy(f"{answer}: it is throttling or overloaded; try again later"),
    }
    return known.get(kind) or StorageError(answer)


_ROLES = {
    "table": "'Storage Table Data Contributor'",
    # fact 20: the Message Sender can't cancel what it sent.
    "queue": "'Storage Queue Data Contributor' ('… Message Sender' can send, but not cancel)",
    "blob": "'Storage Blob Data Contributor'",
}


def _why_denied(code: str, place: Place) -> str:
    if code == "KeyBasedAuthenticationNotPermitted":
        return f"the account takes no keys; use an identity: POSTDATE_ACCOUNT_NAME instead of {place.source}"
    if place.by_key:
        return (
            f"the key or signature in {place.source} is not one of account {place.account!r}, lacks "
            "permission, or a firewall rule forbids this network"
        )
    if code in ("AuthorizationPermissionMismatch", "InsufficientAccountPermissions"):
        return f"the identity lacks role {_ROLES[place.service]} on account {place.account!r}"
    if code == "AuthorizationFailure":
        return f"a firewall rule of account {place.account!r} forbids this network"
    return (
        f"the identity's token was refused; it needs role {_ROLES[place.service]} on account "
        f"{place.account!r}, and this machine's clock must be right to 15 minutes"
    )


def _way_to(place: Place) -> str:
    where = f"({place.service} service of {place.account!r}, from {place.source})"
    if place.is_local:
        return f"{where}; start an emulator with `postdate azurite`"
    return f"{where}; check the account's name, the network and the account's firewall"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _never_left(error: BaseException) -> bool:
    """Whether it is sure that the request did not reach the service: there was no connection for it."""
    if isinstance(error, ServiceRequestTimeoutError):
        return True
    cause = error.inner_exception if isinstance(error, ServiceRequestError) else error
    return isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
