"""What the messages in the timeout manager's queues ask for (nservicebus-azure, section 4)."""

from collections.abc import Callable
from datetime import datetime, timedelta

from postdate.clock import Clock
from postdate.engine.handover import HandOverTo
from postdate.errors import PoisonMessage
from postdate.events import Events, HandedOver, TimeoutsCleared, TimeoutStored
from postdate.legacy.handing_over import Acting, HandingOver, NotSent
from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage
from postdate.model.legacy_rows import saga_key
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.model.message import Message
from postdate.model.names import dispatch_address
from postdate.ports import Backend, Received

#: What is due so soon is sent at once, hidden if it must be, and never stored.
AT_ONCE = timedelta(seconds=1)


class Requests:
    """Handles one message of either queue; how that can fail is told by the errors that it raises."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        hand_over: HandOverTo,
        handing_over: HandingOver,
        *,
        owner: str,
        lookahead: timedelta,
        stored: Callable[[datetime], None],
    ) -> None:
        """`stored` is told the due time of what was put into the store."""
        self._backend = backend
        self._clock = clock
        self._events = events
        self._hand_over = hand_over
        self._handing_over = handing_over
        self._owner = owner
        self._at_once = max(AT_ONCE, lookahead)
        self._stored = stored

    async def keep(self, message: Message, received: Received, acting: Acting) -> None:
        """Keep a message until it is due; or take back what a saga has no use for any more.

        Raises:
            PoisonMessage, UsageError: a header that is needed is missing, or can't be read.
            PostdateError: the store, or where it goes at once the destination, did not take it.
        """
        if h.CLEAR_TIMEOUTS in message.headers:
            saga_id = saga_key(message.headers.get(h.SAGA_ID))
            count = await self._backend.timeouts.remove_of_saga(saga_id)
            self._events.emit(TimeoutsCleared(saga_id, count))
            return
        due_at, destination = _due_at(message), _destination(message)
        now = self._clock.now()
        if due_at <= now + self._at_once:
            _, hidden_for = await self._hand_over.send(DelayedMessage(message, destination, due_at))
            self._events.emit(
                HandedOver(message.message_id, destination, due_at, now, hidden_for, acting.term)
            )
            return
        # Its id in the queue: where an acknowledgement fails and it comes again, it is the same timeout.
        timeout_id = received.native_id
        await self._backend.timeouts.add(
            LegacyTimeout(
                id=timeout_id,
                destination=destination,
                due_at=due_at,
                headers=message.headers,
                body=message.body,
                owner=self._owner,
                saga_id=_saga_id(message),
            )
        )
        self._stored(due_at)
        self._events.emit(TimeoutStored(timeout_id, destination, due_at))

    async def hand_over(self, message: Message, received: Received, acting: Acting) -> None:
        """Hand over a timeout that somebody found to be due; one that is gone was handed over by then.

        Raises:
            PoisonMessage: the header with the timeout's id is missing, or the timeout can't be read.
            PostdateError: the store can't be read, or the destination did not take it.
        """
        del received
        timeout_id = message.headers.get(h.TIMEOUT_ID)
        if not timeout_id:
            raise PoisonMessage(f"header {h.TIMEOUT_ID} is missing")
        try:
            await self._handing_over.hand_over(timeout_id, acting)
        except NotSent as failure:
            raise failure.error from None


def _due_at(message: Message) -> datetime:
    text = message.headers.get(h.TIMEOUT_EXPIRE)
    if text is None:
        raise PoisonMessage(f"header {h.TIMEOUT_EXPIRE} is missing")
    return h.parse_instant(text)


def _destination(message: Message) -> str:
    destination = message.headers.get(h.TIMEOUT_DESTINATION) or message.headers.get(h.REPLY_TO)
    if not destination:
        raise PoisonMessage(f"headers {h.TIMEOUT_DESTINATION} and {h.REPLY_TO} are missing")
    dispatch_address(destination)  # better refused now than when it is due
    return destination


def _saga_id(message: Message) -> str | None:
    """The saga that asked; what is no GUID can't be taken back by a saga, but is a timeout all the same."""
    try:
        return saga_key(message.headers.get(h.SAGA_ID))
    except PoisonMessage:
        return None
