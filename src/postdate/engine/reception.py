"""Receiving: an iterator of deliveries with ack and nack.

A delivery is one appearance of a message; there may be several. What can't be read goes to the error queue
as it is. (The receiver with handlers and retries builds on this.)
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from postdate.clock import Clock
from postdate.engine.fitting import Fitting
from postdate.engine.outliving import Outliving
from postdate.errors import PoisonMessage, PostdateError, UsageError
from postdate.events import DuplicateDropped, Events, PoisonMoved
from postdate.model import headers as h
from postdate.model.envelope import Opened, ReadForm, unwrap
from postdate.model.error_text import line_of
from postdate.model.headers import Headers
from postdate.model.jsontext import read
from postdate.model.message import Message
from postdate.model.names import check_queue
from postdate.ports import Backend, Received

#: Seconds between two looks at an empty queue: they grow from the first to the second.
IDLE_SECONDS = (0.05, 1.0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One appearance of a message. Acknowledge it when it is done with, or it comes again."""

    message_id: str
    headers: Headers
    body: bytes
    #: The due time its sender gave it (a message moved while it lay in the queue keeps its first one).
    due_at: datetime | None
    #: When this process took it, by the storage service's clock.
    received_at: datetime
    #: How often the service handed it out, this time included.
    dequeue_count: int
    #: The leader's term that handed it over; None for messages sent without a row.
    term: int | None
    form: ReadForm
    received: Received = field(repr=False)
    #: As it lies in the queue: without its body, where that lies in a blob.
    message: Message = field(repr=False)
    _reception: "Reception" = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            PoisonMessage: it is not JSON.
        """
        return read(self.body)

    def instant(self, header: str) -> datetime | None:
        """An instant out of the headers; None where it is absent or can't be read."""
        return _instant(self.headers.get(header))

    async def ack(self) -> bool:
        """It is done with: delete it. False: it took too long, and the message may come again."""
        return await self._reception.ack(self)

    async def nack(self, delay: timedelta = timedelta(0)) -> bool:
        """Make it visible again after a delay. False: it is visible already.

        One that would expire meanwhile is put back as a copy that does not, under the same message id.
        """
        return await self._reception.nack(self, delay)


class Reception:
    """Takes messages out of queues."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        *,
        error_queue: str,
        visibility: timedelta,
        batch: int,
        payload_retention: timedelta,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._events = events
        self._error_queue = error_queue
        self._visibility_s = max(1, round(visibility.total_seconds()))
        self._batch = batch
        fitting = Fitting(backend.payloads, clock, payload_retention)
        self._outliving = Outliving(backend, clock, self._visibility_s, fitting)

    async def receive(
        self, queue: str, *, idle: timedelta | None = None, batch: int | None = None
    ) -> AsyncIterator[Delivery]:
        """Deliveries as they come; ends when the queue was empty for `idle` (None: never).

        Raises:
            DestinationNotFound: the queue is not there.
        """
        check_queue(queue.partition("@")[0])
        first, longest = IDLE_SECONDS
        pause = first
        empty_since = self._clock.monotonic()
        while True:
            page = await self._backend.receiver.receive(
                queue, count=batch or self._batch, visibility_s=self._visibility_s
            )
            for received in page:
                try:
                    delivery = await self.open(received)
                except PoisonMessage as error:
                    await self._move_raw(received, error)
                    continue
                if delivery is not None:
                    yield delivery
            now = self._clock.monotonic()
            if page:
                pause, empty_since = first, self._clock.monotonic()
                continue
            if idle is not None and now - empty_since >= idle.total_seconds():
                return
            await self._clock.sleep(pause)
            pause = min(longest, pause * 1.5)

    async def ack(self, delivery: Delivery) -> bool:
        """Delete the message, then its large body."""
        done = await self._backend.receiver.ack(delivery.received)
        payload = delivery.headers.get(h.PAYLOAD)
        if done and payload is not None:
            await self._backend.payloads.delete(payload)
        return done

    async def nack(self, delivery: Delivery, delay: timedelta) -> bool:
        """Make it visible again."""
        seconds = round(delay.total_seconds())
        if seconds < 0:
            raise UsageError(f"nack delay {delay} is negative")
        received, text = delivery.received, None
        if received.hidden_until <= self._clock.latest():  # it may be somebody else's
            return await self._backend.receiver.nack(received, seconds)
        if self._outliving.is_needed(received, seconds):
            text = await self._outliving.counted_on(received, received.text)
        return await self._outliving.nack(received, seconds, text=text)

    async def leave(self, delivery: Delivery) -> None:
        """Give back what was only looked at: visible at once, and as it was, with its expiry."""
        await self._backend.receiver.nack(delivery.received)

    async def open(self, received: Received) -> Delivery | None:
        """A message out of what the service handed out; None: a duplicate, which is acknowledged.

        Raises:
            PoisonMessage: it can't be read.
        """
        opened = unwrap(received.text, received.native_id)
        body: bytes | None = opened.message.body
        payload = opened.message.headers.get(h.PAYLOAD)
        if payload is not None:
            body = await self._backend.payloads.get(payload)
        if body is None:
            # Its body was dropped when the first copy was acknowledged: this is a duplicate.
            await self._backend.receiver.ack(received)
            self._events.emit(DuplicateDropped(opened.message.message_id, received.queue))
            return None
        return self._delivery(received, opened, body)

    def _delivery(self, received: Received, opened: Opened, body: bytes) -> Delivery:
        headers = opened.message.headers
        term = headers.get(h.TERM)
        return Delivery(
            message_id=opened.message.message_id,
            headers=headers,
            body=body,
            due_at=_instant(headers.get(h.DELIVER_AT)),
            received_at=self._clock.now(),
            dequeue_count=received.dequeue_count,
            term=int(term) if term is not None and term.isdecimal() else None,
            form=opened.form,
            received=received,
            message=opened.message,
            _reception=self,
        )

    async def _move_raw(self, received: Received, error: PoisonMessage) -> None:
        """The text unchanged to the error queue, which never expires; then the original goes."""
        await self._backend.sender.send(self._error_queue, received.text)
        await self._backend.receiver.ack(received)
        self._events.emit(PoisonMoved(received.native_id, received.queue, self._error_queue, line_of(error)))


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return h.parse_instant(text)
    except PostdateError:
        return None
