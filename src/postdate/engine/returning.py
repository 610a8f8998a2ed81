"""Giving a message in hand back to its queue, in one request each; and ending it there.

Who decides is `engine.recovery`. Here is what each of its decisions, and a stop, comes down to: the text of
the message and the time for which it is hidden change together, under its pop receipt.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random

from postdate.clock import Clock
from postdate.core import recoverability as r
from postdate.core.backoff import retry_wait
from postdate.engine.breakers import Breaker
from postdate.engine.finished import Finished
from postdate.engine.fitting import Fitting
from postdate.engine.held import Held, Hold
from postdate.errors import PostdateError
from postdate.events import Events, MessageLost, MessageReturned, RecoveryFailed
from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, fits, unwrap, wrap
from postdate.model.error_text import line_of
from postdate.model.headers import Headers
from postdate.model.limits import MAX_HIDDEN_SECONDS
from postdate.model.message import Message
from postdate.ports import Backend

#: First and longest wait in seconds after recovery itself failed.
_AGAIN_SECONDS = (1.0, 60.0)


class Returning:
    """Puts messages back, or deletes them."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        fitting: Fitting,
        hold: Hold,
        breaker: Breaker,
        *,
        random: Random | None = None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._events = events
        self._fitting = fitting
        self._hold = hold
        self._breaker = breaker
        self._random = random or Random()
        self._failures = 0
        #: Messages that are done with, and come again.
        self.finished = Finished()

    async def give_back(self, held: Held, reason: str, delay_s: float = 0.0) -> None:
        """Return a message that nobody failed on, hidden for a while; this appearance does not count."""
        with suppress(PostdateError):  # it comes back by itself when its visibility timeout is over
            message = as_it_lies(held)
            if await self.put_back(held, message, math.ceil(delay_s), _uncounted(held, message)):
                self._events.emit(MessageReturned(message.message_id, held.received.queue, delay_s, reason))

    async def send_again(self, held: Held, reason: str) -> None:
        """Return a message that was acknowledged before its handler was asked, and then was not asked."""
        received = held.received
        message_id = as_it_lies(held).message_id
        try:
            await self._backend.sender.send(received.queue, received.text)
        except PostdateError as error:
            self._events.emit(MessageLost(message_id, received.queue, line_of(error)))
        else:
            self._events.emit(MessageReturned(message_id, received.queue, 0.0, reason))

    async def put_back(
        self, held: Held, message: Message, hidden_s: int, headers: Mapping[str, str | None]
    ) -> bool:
        """Hide it in its queue for so many seconds, with further headers. False: it is not ours any more.

        Raises:
            MessageTooLarge: it has no room for them.
            StorageError: it could not be done, and nothing was.
        """
        kept = {name: value for name, value in message.headers.items() if name != h.NOT_BEFORE}
        changed = {**kept, **headers}
        if hidden_s > MAX_HIDDEN_SECONDS:  # it will come up in between, and is hidden again
            changed[h.NOT_BEFORE] = h.format_instant(self._clock.latest() + timedelta(seconds=hidden_s))
        message = replace(message, headers=changed)
        if hidden_s > 0 or not fits(message, EnvelopeForm.NSERVICEBUS):
            message = await self._fitting(message, held.received.queue)
        hidden_s = min(max(hidden_s, 0), MAX_HIDDEN_SECONDS)
        return await self._hold.put_back(held, hidden_s, text=wrap(message))

    async def unopened(self, held: Held, error: PostdateError) -> None:
        """Leave a message for later that could not even be begun with: this appearance does not count."""
        message = as_it_lies(held)
        changed = replace(message, headers={**message.headers, **_uncounted(held, message)})
        await self.try_later(held, message.message_id, error, changed)

    async def try_later(
        self, held: Held, message_id: str, refusal: PostdateError, message: Message | None = None
    ) -> None:
        """Leave it in its queue, in its new form if it has one, hidden for a while that grows."""
        hidden_s = await self.hide(held, refusal, message)
        if hidden_s is not None:
            reason = line_of(refusal)
            self._events.emit(RecoveryFailed(message_id, held.received.queue, reason, float(hidden_s)))

    async def hide(self, held: Held, refusal: PostdateError, message: Message | None) -> int | None:
        """Leave it in its queue for a while; for how many seconds. None: it is lost, which was told.

        Only a message that was acknowledged first (at most once) can be lost.
        """
        self._failures += 1
        self._breaker.failed(refusal)
        first, longest = _AGAIN_SECONDS
        wait = retry_wait(self._failures, base_s=2 * first, maximum_s=longest, random=self._random)
        hidden_s = math.ceil(wait)
        try:
            text = None if message is None else await self._text_of(message, held.received.queue)
            if held.is_acknowledged:
                await self._bring_back(held, hidden_s, text)
            else:
                await self._hold.put_back(held, hidden_s, text=text)
        except PostdateError as error:
            if held.is_acknowledged:
                self._events.emit(
                    MessageLost(as_it_lies(held).message_id, held.received.queue, line_of(error))
                )
                return None
            # It comes back by itself when its visibility timeout is over.
        return hidden_s

    async def _text_of(self, message: Message, queue: str) -> str | None:
        """As it is put back; None: it has no room, not even with its body in a blob."""
        if not fits(message, EnvelopeForm.NSERVICEBUS):
            with suppress(PostdateError):
                message = await self._fitting(message, queue)
        return wrap(message) if fits(message, EnvelopeForm.NSERVICEBUS) else None

    async def _bring_back(self, held: Held, hidden_s: int, text: str | None) -> None:
        """It was acknowledged before its handler began: what is left to do with it goes in again."""
        if text is None:  # as it came its handler would be asked again
            raise PostdateError("it has no room for a note that its handler was asked")
        await self._backend.sender.send(held.received.queue, text, hidden_for=hidden_s)

    def well(self) -> None:
        """What was decided could be done."""
        self._failures = 0
        self._breaker.succeeded()

    async def finish(self, held: Held) -> bool:
        """Delete a message that is done with; where that fails, its next appearance goes unseen."""
        self.finished.add(held.received.native_id)
        with suppress(PostdateError):
            if await self._backend.receiver.ack(held.received):
                self.finished.discard(held.received.native_id)
                return True
        return False

    async def drop_payload(self, name: str) -> None:
        """Delete the large body of a message that is done with; age does it where this fails."""
        with suppress(PostdateError):
            await self._backend.payloads.delete(name)


def as_it_lies(held: Held) -> Message:
    """The message in its queue: by now it may be a copy, with headers of its own."""
    return unwrap(held.received.text, held.received.native_id).message


def _uncounted(held: Held, message: Message) -> Headers:
    """What makes the failures as they were before this appearance."""
    dequeues = held.received.dequeue_count
    return {h.UNCOUNTED: str(dequeues - r.failures_now(dequeues, message.headers) + 1)}
