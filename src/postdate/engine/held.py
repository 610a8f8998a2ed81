"""A message in hand: taken from the queue, hidden from others for a while, its fate open."""

import asyncio
from dataclasses import dataclass

from postdate.clock import Clock
from postdate.errors import StorageError
from postdate.events import Events, VisibilityLost
from postdate.ports import QueueReceiver, Received

#: Seconds between two tries to prolong while the service fails, at least.
_PROLONG_AGAIN = 0.25


@dataclass(slots=True)
class Held:
    """One message in hand. Its pop receipt changes with every prolongation, so whoever needs it asks here."""

    received: Received
    #: The monotonic instant until which nobody else sees it, for certain.
    hidden_until: float
    lost: bool = False
    #: A prolongation under way: what follows needs the pop receipt that it brings.
    prolonging: "asyncio.Task[None] | None" = None


class Hold:
    """Keeps messages hidden while they are worked on."""

    def __init__(self, receiver: QueueReceiver, clock: Clock, events: Events, visibility_s: int) -> None:
        self._receiver = receiver
        self._clock = clock
        self._events = events
        self._visibility_s = visibility_s

    def take(self, received: Received, asked_at: float) -> Held:
        """A message that a receive which began at `asked_at` (monotonic) has brought."""
        return Held(received, asked_at + self._visibility_s)

    def is_over(self, held: Held) -> bool:
        """Whether others may see it, so that nothing should be begun with it."""
        return held.lost or self._clock.monotonic() >= held.hidden_until

    def next_look(self, held: Held) -> float:
        """The monotonic instant of the next prolongation: with half of the time left, or of what is left."""
        now = self._clock.monotonic()
        due = held.hidden_until - self._visibility_s / 2
        return due if due > now else now + max(_PROLONG_AGAIN, (held.hidden_until - now) / 2)

    async def prolong(self, held: Held) -> None:
        """Keep it hidden for another visibility timeout from now. Cancelled, it goes on: see `settle`."""
        if held.lost:
            return
        held.prolonging = asyncio.create_task(self._prolong(held), name="postdate-prolong")
        await asyncio.shield(held.prolonging)

    async def settle(self, held: Held) -> None:
        """Wait for a prolongation under way: aborted, it might have changed the pop receipt unseen."""
        if held.prolonging is not None:
            await asyncio.wait({held.prolonging})
            held.prolonging = None

    async def _prolong(self, held: Held) -> None:
        began = self._clock.monotonic()
        try:
            again = await self._receiver.extend(held.received, self._visibility_s)
        except StorageError:
            if began >= held.hidden_until:
                self._lose(held)
            return
        if again is None:
            self._lose(held)
            return
        held.received = again
        held.hidden_until = began + self._visibility_s

    def _lose(self, held: Held) -> None:
        held.lost = True
        self._events.emit(VisibilityLost(held.received.native_id, held.received.queue))
