"""A message of the error queue as people see it: what failed, where, when and why; without its body."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from postdate.errors import PoisonMessage, UsageError
from postdate.model import headers as h
from postdate.model.causes import Cause, masked
from postdate.model.envelope import Opened, unwrap
from postdate.model.headers import Headers

#: Characters kept of an exception's message: all of it is in the message itself.
_SHOWN_CHARACTERS = 300


class FailedState(StrEnum):
    """What can be told of a message in the error queue."""

    #: Its fault headers say why it is there.
    FAILED = "failed"
    #: It can be read, and has no fault headers: moved as it was, or put there by hand.
    UNEXPLAINED = "unexplained"
    #: It can't be read.
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """One message of the error queue; small, whatever the message holds."""

    native_id: str
    #: The native id where the message has none that can be read.
    message_id: str
    state: FailedState
    cause: Cause
    #: The group's key.
    group: str
    exception_message: str
    failed_queue: str | None
    failed_at: datetime | None
    #: When it came into the error queue, by the service's clock, cut to seconds.
    inserted_at: datetime
    #: How often anybody took it out of the error queue, looks included.
    dequeue_count: int
    #: How often it was tried before it came here, where that was told.
    attempts: int | None
    message_type: str | None
    #: Bytes of the queue message's text.
    size: int
    #: The name of its large body (claim check).
    payload: str | None

    @property
    def at(self) -> datetime:
        """When it failed, or else when it came."""
        return self.failed_at or self.inserted_at


def failed_message(text: str, native_id: str, inserted_at: datetime, dequeue_count: int) -> FailedMessage:
    """What the text of a message in the error queue tells. Never raises."""
    try:
        opened = unwrap(text, native_id)
    except PoisonMessage as error:
        return _message(None, str(error), text, native_id, (inserted_at, dequeue_count))
    return _message(opened, "", text, native_id, (inserted_at, dequeue_count))


def _message(
    opened: Opened | None, unreadable: str, text: str, native_id: str, seen: tuple[datetime, int]
) -> FailedMessage:
    headers: Headers = {} if opened is None else opened.message.headers
    explained = bool(headers.get(h.FAILED_QUEUE) or headers.get(h.EXCEPTION_TYPE))
    failed_queue = headers.get(h.FAILED_QUEUE) or None
    if opened is None:
        state, kind, message = FailedState.UNREADABLE, "", unreadable
    else:
        state = FailedState.FAILED if explained else FailedState.UNEXPLAINED
        kind, message = headers.get(h.EXCEPTION_TYPE) or "", headers.get(h.EXCEPTION_MESSAGE) or ""
    cause = Cause(kind, masked(message), failed_queue or "")
    types = headers.get(h.ENCLOSED_TYPES)
    attempts = headers.get(h.ATTEMPTS) or ""
    return FailedMessage(
        native_id=native_id,
        message_id=native_id if opened is None else opened.message.message_id,
        state=state,
        cause=cause,
        group=cause.key,
        exception_message=" ".join(message[:_SHOWN_CHARACTERS].split()),
        failed_queue=failed_queue,
        failed_at=_instant(headers.get(h.TIME_OF_FAILURE)),
        inserted_at=seen[0],
        dequeue_count=seen[1],
        attempts=int(attempts) if attempts.isascii() and attempts.isdecimal() else None,
        message_type=types.partition(";")[0].partition(",")[0].strip() if types else None,
        size=len(text.encode("utf-8", "surrogatepass")),
        payload=headers.get(h.PAYLOAD) or None,
    )


def _instant(text: str | None) -> datetime | None:
    try:
        return None if text is None else h.parse_instant(text)
    except UsageError:
        return None
