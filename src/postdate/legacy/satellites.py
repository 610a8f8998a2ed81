"""The two queues of the timeout manager: each message is handled, tried again, or put into the error queue.

The service's dequeue count is the number of the attempt, as with older endpoints, which take from the same
queues. What no repeat can help goes to the error queue at once; what says nothing about the message (the
service is busy, the store is gone) leaves it where it is.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from postdate.clock import Clock
from postdate.concurrency import for_each
from postdate.core.timeout_rounds import retry_after
from postdate.engine.dispatcher import SERVICE_ERRORS
from postdate.engine.fitting import Fitting
from postdate.engine.outliving import Outliving
from postdate.errors import (
    DestinationNotFound,
    NotProvisioned,
    PoisonMessage,
    PostdateError,
    UsageError,
)
from postdate.events import (
    ErrorQueueRefused,
    Events,
    MovedToErrorQueue,
    PoisonMoved,
    TimeoutMessageFailed,
)
from postdate.legacy.handing_over import ATTEMPTS, Acting
from postdate.model.envelope import EnvelopeForm, ReadForm, unwrap, wrap
from postdate.model.error_text import line_of
from postdate.model.faults import Fault, with_fault
from postdate.model.limits import RECEIVE_MESSAGES
from postdate.model.message import Message
from postdate.ports import Backend, Received

#: Messages of one queue that are worked on at once.
_AT_ONCE = 8
#: Seconds for which a message is hidden while it is worked on, at least.
_VISIBILITY_SECONDS = 60
#: Seconds after which a message comes again that the error queue did not take.
_REFUSED_SECONDS = 60

Handle = Callable[[Message, Received, Acting], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SatelliteSettings:
    """What both satellites need to know."""

    error_queue: str
    visibility: timedelta
    fitting: Fitting


class Satellite:
    """Takes messages from one queue, and has each handled."""

    def __init__(
        self,
        queue: str,
        handle: Handle,
        backend: Backend,
        clock: Clock,
        events: Events,
        settings: SatelliteSettings,
    ) -> None:
        self.queue = queue
        self._handle = handle
        self._backend = backend
        self._clock = clock
        self._events = events
        self._error_queue = settings.error_queue
        self._fitting = settings.fitting
        #: By native id, how often the service was what failed. Kept here and not in the message: an older
        #: instance, which may take it too, has to find its own envelope.
        self._uncounted: Counter[str] = Counter()
        self._visibility_s = max(_VISIBILITY_SECONDS, round(settings.visibility.total_seconds()))
        self._outliving = Outliving(backend, clock, self._visibility_s, settings.fitting)

    async def look(self, acting: Acting) -> int | None:
        """Handle the messages of one receive; how many there were. None: there is no such queue.

        Raises:
            StorageError: the service failed; messages come again.
            LeaseLost: the term is over; messages come again.
        """
        try:
            page = await self._backend.receiver.receive(
                self.queue, count=RECEIVE_MESSAGES, visibility_s=self._visibility_s
            )
        except DestinationNotFound:
            return None
        await for_each(page, _AT_ONCE, lambda received: self._one(received, acting))
        return len(page)

    async def _one(self, received: Received, acting: Acting) -> None:
        try:
            opened = unwrap(received.text, received.native_id)
            if opened.form is ReadForm.PLAIN:
                raise PoisonMessage("it is no envelope")
        except PoisonMessage as error:
            await self._move_raw(received, error)
            return
        try:
            await self._handle(opened.message, received, acting)
        except PostdateError as error:
            await self._failed(received, opened.message, error)
        else:
            await self._backend.receiver.ack(received)
            self._uncounted.pop(received.native_id, None)

    async def _failed(self, received: Received, message: Message, error: PostdateError) -> None:
        lasting = isinstance(error, PoisonMessage | UsageError)
        service = isinstance(error, (*SERVICE_ERRORS, NotProvisioned))
        if service:
            self._uncounted[received.native_id] += 1
        attempts = received.dequeue_count - self._uncounted[received.native_id]
        if service or (attempts < ATTEMPTS and not lasting):
            await self._outliving.nack(received, round(retry_after(received.dequeue_count)))
            self._events.emit(TimeoutMessageFailed(message.message_id, self.queue, attempts, str(error)))
            return
        copy = with_fault(message, Fault(error, self.queue, self._clock.now(), attempts))
        if await self._send_to_error_queue(received, message.message_id, copy):
            self._events.emit(
                MovedToErrorQueue(message.message_id, self.queue, self._error_queue, attempts, str(error))
            )

    async def _move_raw(self, received: Received, error: PoisonMessage) -> None:
        """The text as it is."""
        if await self._send_to_error_queue(received, received.native_id, received.text):
            self._events.emit(PoisonMoved(received.native_id, self.queue, self._error_queue, line_of(error)))

    async def _send_to_error_queue(self, received: Received, message_id: str, copy: Message | str) -> bool:
        """False: it did not take the message, which stays in its own queue."""
        try:
            if isinstance(copy, Message):
                copy = wrap(await self._fitting(copy, self._error_queue), EnvelopeForm.NSERVICEBUS)
            await self._backend.sender.send(self._error_queue, copy)
        except PostdateError as refusal:
            again_at = self._clock.now() + timedelta(seconds=_REFUSED_SECONDS)
            await self._outliving.nack(received, _REFUSED_SECONDS)
            self._events.emit(ErrorQueueRefused(message_id, self._error_queue, str(refusal), again_at))
            return False
        await self._backend.receiver.ack(received)
        self._uncounted.pop(received.native_id, None)
        return True
