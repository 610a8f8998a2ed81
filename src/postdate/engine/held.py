"""A message in hand: taken from the queue, hidden from others for a while, its fate open."""

import asyncio
import math
from dataclasses import dataclass

from postdate.clock import Clock
from postdate.engine.fitting import Fitting
from postdate.engine.outliving import Outliving
from postdate.errors import PostdateError
from postdate.events import Events, VisibilityLost
from postdate.ports import Backend, Received

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

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was deleted before it was handled."""
        return self.hidden_until == math.inf


class Hold:
    """Keeps messages hidden while they are worked on."""

    def __init__(
        self, backend: Backend, clock: Clock, events: Events, visibility_s: int, fitting: Fitting
    ) -> None:
        self._receiver = backend.receiver
        self._outliving = Outliving(backend, clock, visibility_s, fitting)
        self._clock = clock
        self._events = events
        self._visibility_s = visibility_s

    def take(self, received: Received, asked_at: float) -> Held:
        """A message that a receive which began at `asked_at` (monotonic) has brought."""
        return Held(received, asked_at + self._visibility_s)

    def acknowledged(self, held: Held) -> None:
        """It is deleted before it is handled: nobody else can see it any more."""
        held.hidden_until = math.inf

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
        if held.lost or held.is_acknowledged:
            return
        held.prolonging = asyncio.create_task(self._prolong(held), name="postdate-prolong")
        await asyncio.shield(held.prolonging)

    async def settle(self, held: Held) -> None:
        """Wait for a prolongation under way: aborted, it might have changed the pop receipt unseen."""
        if held.prolonging is not None:
            await asyncio.wait({held.prolonging})
            held.prolonging = None

    async def put_back(self, held: Held, hidden_s: int = 0, *, text: str | None = None) -> bool:
        """Give it back, hidden for whole seconds, with another text if one is given.

        False: somebody else may have it, or it is acknowledged, and nothing was done.

        Raises:
            PostdateError: it could not be done; the message comes back when its visibility timeout is over.
        """
        received = held.received
        if self._would_expire(held, hidden_s):
            text = await self._outliving.counted_on(received, received.text if text is None else text)
            return await self._outliving.nack(received, hidden_s, text=text)
        return await self._receiver.nack(received, hidden_s, text=text)

    def _would_expire(self, held: Held, hidden_s: int) -> bool:
        """Whether a copy has to take its place; never of what may be somebody else's, or is acknowledged."""
        ours = not held.is_acknowledged and not self.is_over(held)
        return ours and self._outliving.is_needed(held.received, hidden_s)

    async def _extended(self, held: Held) -> Received | None:
        received = held.received
        if self._would_expire(held, self._visibility_s):
            text = await self._outliving.counted_on(received, received.text)
            return await self._outliving.replace(received, self._visibility_s, text)
        return await self._receiver.extend(received, self._visibility_s)

    async def _prolong(self, held: Held) -> None:
        began = self._clock.monotonic()
        try:
            again = await self._extended(held)
        except PostdateError:
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
