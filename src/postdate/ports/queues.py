"""Queues, to send to and to receive from."""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from postdate.ports.guard import Guard


@dataclass(frozen=True, slots=True)
class Receipt:
    """What can withdraw a message while it is hidden."""

    native_id: str
    pop_receipt: str


class QueueSender(Protocol):
    """Puts messages into queues. Destinations are addresses: `queue` or `queue@alias`."""

    async def send(
        self,
        destination: str,
        text: str,
        *,
        hidden_for: int = 0,
        time_to_live: int | None = None,
        guard: Guard | None = None,
    ) -> Receipt:
        """Append one message, hidden for whole seconds (0 to 604,800).

        Args:
            text: at most 65,536 bytes of UTF-8.
            hidden_for: seconds until consumers can see it.
            time_to_live: seconds from now until it vanishes; None: never.
            guard: asked right before the request leaves.

        Raises:
            DestinationNotFound: the queue is missing. Not retried, not cached.
            OutcomeUnknown: it may have been sent. Never retried in here: a retry can double it.
            LeaseLost: the guard said no.
        """
        ...

    async def withdraw(self, destination: str, receipt: Receipt) -> bool | None:
        """Delete a hidden message; True: done. False: too late (somebody received it). None: not there."""
        ...

    async def hide_again(self, destination: str, receipt: Receipt, hidden_for: int) -> Receipt | bool | None:
        """Change when a hidden message appears; the new receipt, or False / None as `withdraw`."""
        ...

    async def exists(self, destination: str) -> bool:
        """Whether the queue is there, asked of the service each time."""
        ...

    async def create(self, destination: str) -> bool:
        """Create the queue where it is missing; True if this call did."""
        ...

    async def delete(self, destination: str) -> bool:
        """Delete the queue with all it holds; False: it was not there."""
        ...

    async def names(self, alias: str = "") -> list[str]:
        """The names of all queues in an account."""
        ...

    async def approximate_count(self, destination: str) -> int:
        """Messages in the queue, hidden ones included."""
        ...


@dataclass(frozen=True, slots=True)
class Received:
    """One appearance of a message, as the service handed it out."""

    queue: str
    native_id: str
    pop_receipt: str
    text: str
    dequeue_count: int
    inserted_at: datetime
    #: Until when nobody else sees it, by the service's clock.
    hidden_until: datetime
    #: When the service deletes it, whoever has it; None: never.
    expires_on: datetime | None = None

    def seconds_left(self, now: datetime) -> float:
        """How long the message lives from an instant on; without end where it never expires."""
        return math.inf if self.expires_on is None else (self.expires_on - now).total_seconds()


class QueueReceiver(Protocol):
    """Takes messages out of queues."""

    async def receive(self, queue: str, *, count: int, visibility_s: int) -> list[Received]:
        """At most `count` (1 to 32) visible messages, hidden for `visibility_s` seconds."""
        ...

    async def ack(self, received: Received) -> bool:
        """Delete it; False: it became visible again meanwhile, and somebody else may have it."""
        ...

    async def nack(self, received: Received, delay_s: int = 0, *, text: str | None = None) -> bool:
        """Make it visible again after whole seconds, with another text if one is given; False as `ack`.

        Text and visibility change together or not at all.

        Raises:
            StorageError: it would be hidden past its expiry; nothing was changed.
        """
        ...

    async def extend(self, received: Received, visibility_s: int) -> Received | None:
        """Keep it hidden for longer; the new appearance, or None as False of `ack`.

        Raises:
            StorageError: as `nack`.
        """
        ...
