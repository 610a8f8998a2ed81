"""Accepting a message: everything that could fail later is checked now, then it is made durable.

A message that is due within the lookahead goes straight to its queue, hidden until its due time; any other
becomes a row. Either way it is durable when `schedule` returns.
"""

import hashlib
import platform
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

from postdate.clock import Clock
from postdate.engine.handover import EnvelopeFormOf, HandOverTo
from postdate.errors import (
    DestinationNotFound,
    InvalidDueTime,
    InvalidHeader,
    MessageTooLarge,
    PostdateError,
    UsageError,
)
from postdate.events import Events, Scheduled
from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage
from postdate.model.durations import check_due_time, due_after, parse_duration
from postdate.model.envelope import EnvelopeForm, fits, wrap
from postdate.model.handles import Handle, QueueHandle, RowHandle, format_handle
from postdate.model.headers import Headers
from postdate.model.keys import identity
from postdate.model.limits import (
    ENVELOPE_BYTES,
    FAULT_RESERVE_BYTES,
    MAX_TIME_TO_LIVE,
)
from postdate.model.message import EncodedBody, Message, check_headers, check_headers_size, encode_body
from postdate.model.names import destination as parse_destination
from postdate.ports import Backend

#: A queue that was seen is not asked for again for so long. "Not there" is never remembered.
_SEEN_SECONDS = 60.0
#: Short-delay messages whose (id, destination, due time) is remembered, so that a repeat is one message.
_REMEMBERED = 10_000
#: Messages validated and stored together by `schedule_many`.
_CHUNK = 500
#: Space kept for the leader's term, which the dispatcher adds.
_TERM_PLACEHOLDER = "9" * 10


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message for `schedule_many`: the arguments of `schedule`."""

    destination: str
    body: Any
    delay: timedelta | float | str | None = None
    at: datetime | None = None
    headers: Mapping[str, str | None] | None = None
    message_id: str | None = None
    expires_after: timedelta | float | str | None = None


@dataclass(frozen=True, slots=True)
class ScheduledMany:
    """What became of many messages: a handle for each that was accepted, an error for each that was not."""

    #: In the order given; None where the message was refused.
    handles: list[str | None] = field(default_factory=list)
    #: By index: why a message was refused. The others are durable.
    failures: dict[int, PostdateError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """What intake needs to know of the endpoint's settings."""

    endpoint: str
    reply_to: str | None
    lookahead: timedelta
    claim_check: bool
    payload_retention: timedelta
    check_destinations: bool
    envelope_form: EnvelopeFormOf


@dataclass(frozen=True, slots=True)
class _Checked:
    """A message that passed every check, its large body (if any) not yet stored."""

    delayed: DelayedMessage
    payload: bytes | None
    #: The caller named the message, so a repeat must be one message.
    named: bool


class Intake:
    """Validates and stores."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        hand_over: HandOverTo,
        settings: IntakeSettings,
        wake: Callable[[datetime], None],
    ) -> None:
        self._backend = backend
        self._hand_over = hand_over
        self._clock = clock
        self._events = events
        self._settings = settings
        self._wake = wake
        self._seen: dict[str, float] = {}
        self._direct: OrderedDict[tuple[str, datetime], QueueHandle] = OrderedDict()

    async def schedule(self, outgoing: Outgoing) -> str:
        """Accept one message; its handle.

        Raises:
            UsageError: something about it is wrong; nothing was changed.
            DestinationNotFound: its queue is not there.
            StorageError: it may not be durable; the same call again, with the same `message_id` and `at`,
                is harmless.
        """
        checked = await self._check(outgoing)
        remaining = checked.delayed.due_at - self._clock.now()
        if remaining <= self._settings.lookahead:
            return format_handle(await self._direct_or_row(checked))
        return (await self._store([checked]))[0]

    async def schedule_many(self, messages: Iterable[Outgoing] | AsyncIterable[Outgoing]) -> ScheduledMany:
        """Accept many; a refused one is reported by its index, and keeps none of the others out.

        Raises:
            StorageError: the service failed; what was stored before stays.
        """
        result = ScheduledMany()
        chunk: list[tuple[int, _Checked]] = []
        index = -1
        async for outgoing in _iterate(messages):
            index += 1
            result.handles.append(None)
            try:
                checked = await self._check(outgoing)
                if checked.delayed.due_at - self._clock.now() <= self._settings.lookahead:
                    result.handles[index] = format_handle(await self._direct_or_row(checked))
                    continue
            except (UsageError, DestinationNotFound) as error:
                result.failures[index] = error
                continue
            chunk.append((index, checked))
            if len(chunk) >= _CHUNK:
                await self._store_chunk(chunk, result)
                chunk = []
        await self._store_chunk(chunk, result)
        return result

    async def send_now(self, outgoing: Outgoing) -> str:
        """Put a message on its destination at once; its message id."""
        checked = await self._check(outgoing, delayed=False)
        await self._hand_to_queue(checked)
        return checked.delayed.message.message_id

    async def check_destination(self, destination: str) -> None:
        """Refuse a destination whose queue is not there, with near names that are.

        Raises:
            DestinationNotFound: it is not there now.
        """
        now = self._clock.monotonic()
        if now < self._seen.get(destination, 0.0):
            return
        if await self._backend.sender.exists(destination):
            self._seen[destination] = now + _SEEN_SECONDS
            return
        address = parse_destination(destination)
        names = await self._backend.sender.names(address.alias)
        near = get_close_matches(address.queue, names, n=3, cutoff=0.5)
        raise DestinationNotFound(destination, [f"{n}@{address.alias}" if address.alias else n for n in near])

    # --- checks -----------------------------------------------------------------------------------

    async def _check(self, outgoing: Outgoing, *, delayed: bool = True) -> _Checked:
        if delayed:
            _due_time(outgoing, self._clock.now())  # refused before anything is asked of the service
        parse_destination(outgoing.destination)
        given = check_headers(outgoing.headers)
        message_id = _message_id(outgoing.message_id, given)
        time_to_live = _time_to_live(outgoing.expires_after)
        body = encode_body(outgoing.body)
        if self._settings.check_destinations:
            await self.check_destination(outgoing.destination)
        # Only now: a delay counts by the service's clock, which the first answer tells.
        now = self._clock.now()
        due_at = _due_time(outgoing, now) if delayed else now
        headers = self._headers(given, message_id, body, now=now, due_at=due_at if due_at > now else None)
        if time_to_live is not None:
            headers[h.TIME_TO_BE_RECEIVED] = h.format_timespan(time_to_live)
        message, payload = self._sized(Message(message_id, headers, body.content), outgoing.destination)
        check_headers_size({**message.headers, h.TERM: _TERM_PLACEHOLDER})
        return _Checked(
            DelayedMessage(
                message=message,
                destination=outgoing.destination,
                due_at=due_at,
                scheduled_at=now,
                payload_ref=message.headers.get(h.PAYLOAD) if payload is not None else None,
            ),
            payload,
            named=outgoing.message_id is not None or h.MESSAGE_ID in given,
        )

    def _headers(
        self,
        given: Headers,
        message_id: str,
        body: EncodedBody,
        *,
        now: datetime,
        due_at: datetime | None,
    ) -> Headers:
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
        headers.update(given)
        headers[h.MESSAGE_ID] = message_id
        return headers

    def _sized(self, message: Message, destination: str) -> tuple[Message, bytes | None]:
        """The message as it will be dispatched, and the body to park in a blob if it is too large."""
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
        probe = replace(message, headers={**message.headers, h.TERM: _TERM_PLACEHOLDER})
        if fits(probe, form, reserve=FAULT_RESERVE_BYTES):
            return message, None
        if not self._settings.claim_check:
            raise MessageTooLarge(
                f"a body of {len(message.body):,} bytes does not fit a queue once it is wrapped (about "
                "36,000 would; the wrapped message and room for failure headers must stay within "
                f"{ENVELOPE_BYTES:,}); set POSTDATE_LARGE_BODIES=claim-check to keep large bodies in a blob"
            )
        name = f"{hashlib.sha256(message.body).hexdigest()}-{identity(message.message_id, destination)}"
        parked = Message(message.message_id, {**message.headers, h.PAYLOAD: name})
        probe = replace(parked, headers={**parked.headers, h.TERM: _TERM_PLACEHOLDER})
        if not fits(probe, form, reserve=FAULT_RESERVE_BYTES):
            raise InvalidHeader(
                "the headers alone are too large for a queue message; move what is large into the body"
            )
        return parked, message.body

    # --- making it durable ------------------------------------------------------------------------

    async def _direct_or_row(self, checked: _Checked) -> Handle:
        """Hand a short delay to its queue, unless the same message already waits or went."""
        delayed = checked.delayed
        place = (identity(delayed.message.message_id, delayed.destination), delayed.due_at)
        if checked.named:
            known = self._direct.get(place)
            if known is not None:
                return known
            if await self._backend.store.get(delayed.key) is not None:
                return RowHandle(delayed.key)
        handle = await self._hand_to_queue(checked)
        if checked.named:
            self._direct[place] = handle
            if len(self._direct) > _REMEMBERED:
                self._direct.popitem(last=False)
        return handle

    async def _hand_to_queue(self, checked: _Checked) -> QueueHandle:
        delayed = checked.delayed
        await self._park(checked)
        receipt, hidden_for = await self._hand_over.send(delayed)
        self._tell(delayed, "queue" if hidden_for else "now")
        return QueueHandle(
            delayed.destination,
            receipt.native_id,
            receipt.pop_receipt,
            delayed.due_at,
            delayed.payload_ref,
        )

    async def _store(self, batch: Sequence[_Checked]) -> list[str]:
        for checked in batch:
            await self._park(checked)
        results = await self._backend.store.add([checked.delayed for checked in batch])
        for checked in batch:
            self._tell(checked.delayed, "row")
        self._wake(min(checked.delayed.due_at for checked in batch))
        return [format_handle(RowHandle(result.key)) for result in results]

    async def _store_chunk(self, chunk: list[tuple[int, _Checked]], result: ScheduledMany) -> None:
        if not chunk:
            return
        handles = await self._store([checked for _, checked in chunk])
        for (index, _), handle in zip(chunk, handles, strict=True):
            result.handles[index] = handle

    async def _park(self, checked: _Checked) -> None:
        """Store the large body before anything refers to it."""
        delayed = checked.delayed
        if checked.payload is not None and delayed.payload_ref is not None:
            await self._backend.payloads.put(
                delayed.payload_ref,
                checked.payload,
                keep_until=delayed.due_at + self._settings.payload_retention,
            )

    def _tell(self, delayed: DelayedMessage, path: str) -> None:
        self._events.emit(Scheduled(delayed.message.message_id, delayed.destination, delayed.due_at, path))


def _due_time(outgoing: Outgoing, now: datetime) -> datetime:
    if outgoing.at is not None and outgoing.delay is not None:
        raise InvalidDueTime("pass either delay or at, not both")
    if outgoing.at is not None:
        return check_due_time(outgoing.at)
    if outgoing.delay is None:
        raise InvalidDueTime("pass delay (a duration) or at (an aware datetime); send() delivers now")
    return due_after(outgoing.delay, now)


def _message_id(given: object, headers: Headers) -> str:
    if given is None:
        given = headers.get(h.MESSAGE_ID) or str(uuid.uuid4())
    if not isinstance(given, str) or not given:
        raise UsageError(f"message_id {given!r} is not text; use a non-empty str")
    return given


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


async def _iterate(messages: Iterable[Outgoing] | AsyncIterable[Outgoing]) -> AsyncIterator[Outgoing]:
    if isinstance(messages, AsyncIterable):
        async for outgoing in messages:
            yield outgoing
    else:
        for outgoing in messages:
            yield outgoing
