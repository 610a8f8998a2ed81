"""Making a message fit a queue: its body goes to a blob where it has to."""

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from postdate.clock import Clock
from postdate.model import headers as h
from postdate.model.envelope import EnvelopeForm, fits
from postdate.model.keys import identity
from postdate.model.message import Message
from postdate.ports import PayloadStore


@dataclass(frozen=True, slots=True)
class Fitting:
    """Parks bodies that grew too large: a .NET endpoint can store 64 KiB that no queue takes once wrapped."""

    payloads: PayloadStore
    clock: Clock
    retention: timedelta

    async def __call__(self, message: Message, destination: str) -> Message:
        """The message as it fits.

        Raises:
            StorageError: its body could not be stored.
        """
        keep_until = self.clock.now() + self.retention
        name = message.headers.get(h.PAYLOAD)
        if name is not None:  # it lies there already, and has to last longer now
            await self.payloads.keep(name, keep_until=keep_until)
            return message
        if fits(message, EnvelopeForm.NSERVICEBUS):
            return message
        digest = hashlib.sha256(message.body).hexdigest()
        name = f"{digest}-{identity(message.message_id, destination)}"
        await self.payloads.put(name, message.body, keep_until=keep_until)
        return Message(message.message_id, {**message.headers, h.PAYLOAD: name})
