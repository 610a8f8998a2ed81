"""Messages in hand that would expire: a copy that never does takes their place.

A queue message may have an expiry. The service refuses to hide one past it (Update Message), and deletes what
becomes visible so late that nobody takes it in time. The expiry says until when a message has to be received;
once it was, a retry must not lose it. So the copy is sent first, hidden, then the old one is deleted: a crash
in between doubles the message, and never loses it. That happens once, since the copy has no expiry.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from postdate.clock import Clock
from postdate.core import recoverability as r
from postdate.engine.fitting import Fitting
from postdate.errors import PoisonMessage, PostdateError
from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, fits, unwrap, wrap
from postdate.model.inbox import with_first_instant
from postdate.ports import Backend, Received


@dataclass(frozen=True, slots=True)
class Outliving:
    """Hides messages for as long as it takes, whatever their expiry."""

    backend: Backend
    clock: Clock
    #: Seconds that a message has to live when it becomes visible, so that somebody takes it.
    spare_s: int
    fitting: Fitting

    async def nack(self, received: Received, hidden_s: int = 0, *, text: str | None = None) -> bool:
        """As `QueueReceiver.nack`; of a message that would expire, a copy is put back.

        Asked only where nobody else can have the message.
        """
        if not self.is_needed(received, hidden_s):
            return await self.backend.receiver.nack(received, hidden_s, text=text)
        await self.replace(received, hidden_s, received.text if text is None else text)
        return True

    def is_needed(self, received: Received, hidden_s: int) -> bool:
        """Whether it would expire while it is hidden, or too soon after."""
        return received.seconds_left(self.clock.latest()) < hidden_s + self.spare_s

    async def replace(self, received: Received, hidden_s: int, text: str) -> Received:
        """The copy that has taken the message's place; it is in hand as the message was."""
        receipt = await self.backend.sender.send(received.queue, text, hidden_for=hidden_s)
        with suppress(PostdateError):  # then it is there twice until it expires
            await self.backend.receiver.ack(received)
        return replace(
            received,
            native_id=receipt.native_id,
            pop_receipt=receipt.pop_receipt,
            text=text,
            dequeue_count=0,
            hidden_until=self.clock.now() + timedelta(seconds=hidden_s),
            expires_on=None,
        )

    async def counted_on(self, received: Received, text: str) -> str:
        """The text for a copy: its failures are counted on, although a copy begins with 0 dequeues.

        Its id and its first instant go with it: a copy has another native id and is inserted later, and
        inboxes have to know it all the same. Where the queue has no room for that, the body goes to a blob.
        Unchanged is only what is no envelope of a message, or is full of headers.

        Raises:
            StorageError: the body could not be stored.
        """
        try:
            message = unwrap(text, received.native_id).message
        except PoisonMessage:
            return text
        failures_next = r.failures_now(received.dequeue_count + 1, message.headers)
        headers = with_first_instant(message.headers, received.inserted_at)
        changed = replace(message, headers={**headers, h.UNCOUNTED: str(1 - failures_next)})
        changed = await self.fitting(changed, received.queue)
        return wrap(changed) if fits(changed, EnvelopeForm.NSERVICEBUS) else text
