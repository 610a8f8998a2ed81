"""What makes a message acceptable: every check that needs no storage, and the headers that it gets.

Nothing that is accepted here may later be undeliverable for a reason that could be seen here: the
*dispatched* size counts, with room for the leader's term and for the headers that a failure adds.
"""

import hashlib
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from postdate.clock import Clock
from postdate.engine.handover import EnvelopeFormOf
from postdate.errors import InvalidDestination, InvalidDueTime, InvalidHeader, MessageTooLarge, UsageError
from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage
from postdate.model.durations import check_due_time, due_after, parse_duration
from postdate.model.envelope import EnvelopeForm, fits, wrap
from postdate.model.headers import Headers
from postdate.model.limits import ENVELOPE_BYTES, FAULT_RESERVE_BYTES, MAX_TIME_TO_LIVE
from postdate.model.message import EncodedBody, Message, check_headers, check_headers_size, encode_body
from postdate.model.names import destination as parse_destination

#: What parse_duration takes.
Delay = timedelta | float | str
#: Space kept for the leader's term, which the dispatcher adds.
_TERM_PLACEHOLDER = "9" * 10


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message for `schedule_many` and `schedule_each`: the arguments of `schedule`."""

    destination: str
    body: Any
    delay: Delay | None = None
    at: datetime | None = None
    headers: Mapping[str, str | None] | None = None
    message_id: str | None = None
    expires_after: Delay | None = None


@dataclass(frozen=True, slots=True)
class AcceptanceSettings:
    """What acceptance needs to know of the endpoint's settings."""

    endpoint: str
    reply_to: str | None
    claim_check: bool
    envelope_form: EnvelopeFormOf


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that passed every check, its large body (if any) not yet stored."""

    delayed: DelayedMessage
    payload: bytes | None
    #: The caller named the message, so a repeat must be one message.
    named: bool


@dataclass(frozen=True, slots=True)
class Parsed:
    """What does not depend on the time."""

    outgoing: Outgoing
    headers: Headers
    message_id: str
    time_to_live: timedelta | None
    body: EncodedBody


class Acceptance:
    """Checks messages and makes them ready to be stored."""

    def __init__(self, settings: AcceptanceSettings) -> None:
        self._settings = settings

    def check(self, outgoing: Outgoing, clock: Clock, *, delayed: bool) -> Parsed:
        """Refuse what is wrong, before anything is asked of the service.

        Raises:
            UsageError: what is wrong.
        """
        if delayed:
            due_time(clock, at=outgoing.at, delay=outgoing.delay)
        if not isinstance(outgoing.destination, str):
            raise InvalidDestination(
                f"destination {outgoing.destination!r} is not text; write queue or queue@alias"
            )
        if type(outgoing.destination) is not str:
            # The text itself: a str enum's member would end up in a row as the member's name.
            outgoing = replace(outgoing, destination=str.__str__(outgoing.destination))
        parse_destination(outgoing.destination)
        headers = check_headers(outgoing.headers)
        if outgoing.expires_after is None:
            _check_time_to_live(headers.get(h.TIME_TO_BE_RECEIVED))
        return Parsed(
            outgoing,
            headers,
            _message_id(outgoing.message_id, headers),
            _time_to_live(outgoing.expires_after),
            encode_body(outgoing.body),
        )

    def accept(self, parsed: Parsed, clock: Clock, *, delayed: bool) -> Accepted:
        """The message as it will be stored.

        Args:
            parsed: from `check`.
            clock: the storage service's: a delay counts by it.
            delayed: False: it is due now, whatever the message says.

        Raises:
            UsageError: it is too large.
        """
        outgoing = parsed.outgoing
        now = clock.now()
        due_at = due_time(clock, at=outgoing.at, delay=outgoing.delay) if delayed else now
        headers = self._headers(parsed, now=now, due_at=due_at if due_at > now else None)
        if parsed.time_to_live is not None:
            headers[h.TIME_TO_BE_RECEIVED] = h.format_timespan(parsed.time_to_live)
        message = Message(parsed.message_id, headers, parsed.body.content)
        message, payload = self.sized(message, outgoing.destination)
        check_headers_size({**message.headers, h.TERM: _TERM_PLACEHOLDER})
        return Accepted(
            DelayedMessage(
                message=message,
                destination=outgoing.destination,
                due_at=due_at,
                scheduled_at=now,
                payload_ref=message.headers.get(h.PAYLOAD) if payload is not None else None,
            ),
            payload,
            named=outgoing.message_id is not None or h.MESSAGE_ID in parsed.headers,
        )

    def _headers(self, parsed: Parsed, *, now: datetime, due_at: datetime | None) -> Headers:
        message_id, body = parsed.message_id, parsed.body
        headers: Headers = {
            h.MESSAGE_ID: message_id,
            h.MESSAGE_INTENT: "Send",
            h.CONVERSATION_ID: str(uuid.uuid4()),
            h.CORRELATION_ID: message_id,
            h.ORIGINATING_MACHINE: platform.node(),
            h.ORIGINATING_ENDPOINT: self._settings.endpoint,
            h.CONTENT_TYPE: body.content_type,
            h.TIME_SENT: h.format_instant(now),
        }
        if self._settings.reply_to is not None:
            headers[h.REPLY_TO] = self._settings.reply_to
        if body.type_name is not None:
            headers[h.ENCLOSED_TYPES] = body.type_name
        if due_at is not None:
            headers[h.DELIVER_AT] = h.format_instant(due_at)
        headers.update(parsed.headers)
        headers[h.MESSAGE_ID] = message_id
        return headers

    def sized(
        self, message: Message, destination: str, *, payload_name: str | None = None
    ) -> tuple[Message, bytes | None]:
        """The message as it will be dispatched, and the body to park in a blob if it is too large.

        Args:
            message: as it is.
            destination: whose form counts.
            payload_name: of the blob; default: a new one.

        Raises:
            MessageTooLarge, InvalidHeader, InvalidBody: it fits no queue, and no blob may help.
        """
        form = self._settings.envelope_form(destination)
        if form is not EnvelopeForm.NSERVICEBUS:
            if form is EnvelopeForm.RAW_TEXT:
                wrap(message, form)  # refuses what a queue can't carry as text
            if not fits(message, form):
                raise MessageTooLarge(
                    f"a body of {len(message.body):,} bytes does not fit queue {destination!r} in form "
                    f"{form.value}; a claim check needs headers, so use form nservicebus or a smaller body"
                )
            return message, None
        probe = Message(message.message_id, {**message.headers, h.TERM: _TERM_PLACEHOLDER}, message.body)
        if fits(probe, form, reserve=FAULT_RESERVE_BYTES):
            return message, None
        if not self._settings.claim_check:
            raise MessageTooLarge(
                f"a body of {len(message.body):,} bytes does not fit a queue once it is wrapped (about "
                "36,000 would; the wrapped message and room for failure headers must stay within "
                f"{ENVELOPE_BYTES:,}); set POSTDATE_LARGE_BODIES=claim-check to keep large bodies in a blob"
            )
        # A blob of its own for each: two messages may share their id and body, and one may be done with.
        name = payload_name or f"{hashlib.sha256(message.body).hexdigest()}-{uuid.uuid4().hex}"
        parked = Message(message.message_id, {**message.headers, h.PAYLOAD: name})
        probe = replace(parked, headers={**parked.headers, h.TERM: _TERM_PLACEHOLDER})
        if not fits(probe, form, reserve=FAULT_RESERVE_BYTES):
            raise InvalidHeader(
                "the headers alone are too large for a queue message; move what is large into the body"
            )
        return parked, message.body


def due_time(clock: Clock, *, at: datetime | None, delay: Delay | None) -> datetime:
    """The due time that a caller asks for.

    A delay counts from the latest that it can be by the service's clock, so that it is never cut short;
    zero and less is due now.

    Raises:
        InvalidDueTime: none or both are given, or it can't be stored.
    """
    if at is not None and delay is not None:
        raise InvalidDueTime("pass either delay or at, not both")
    if at is not None:
        return check_due_time(at)
    if delay is None:
        raise InvalidDueTime("pass delay (a duration) or at (an aware datetime); send() delivers now")
    now = clock.now()
    due_at = due_after(delay, now)
    return due_at if due_at <= now else due_after(delay, clock.latest())


def _message_id(given: object, headers: Headers) -> str:
    if given is None:
        given = headers.get(h.MESSAGE_ID) or str(uuid.uuid4())
    if not isinstance(given, str) or not given:
        raise UsageError(f"message_id {given!r} is not text; use a non-empty str")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise UsageError("message_id holds half of a surrogate pair; it must be valid Unicode") from None
    return str.__str__(given)


def _check_time_to_live(header: str | None) -> None:
    """A header of the caller's own, which counts like `expires_after`."""
    if header is None:
        return
    try:
        positive = h.parse_timespan(header) > timedelta(0)
    except UsageError as error:
        raise InvalidHeader(f"header {h.TIME_TO_BE_RECEIVED}: {error}") from None
    if not positive:
        raise InvalidHeader(f"header {h.TIME_TO_BE_RECEIVED}: {header!r} is not more than zero")


def _time_to_live(expires_after: object) -> timedelta | None:
    if expires_after is None:
        return None
    try:
        span = parse_duration(expires_after)
    except UsageError as error:
        raise InvalidDueTime(f"expires_after {error}") from None
    if not timedelta(0) < span <= MAX_TIME_TO_LIVE:
        raise InvalidDueTime(
            f"expires_after {expires_after!r} must be more than zero and at most {MAX_TIME_TO_LIVE.days} days"
        )
    return span
