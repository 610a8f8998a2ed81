"""Queues in memory: hidden messages, receipts that die, dequeue counts, expiry."""

import itertools
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from postdate.clock import Clock
from postdate.errors import (
    DestinationNotFound,
    InvalidDestination,
    MessageTooLarge,
    StorageError,
    UsageError,
)
from postdate.model.limits import MAX_HIDDEN_SECONDS, QUEUE_TEXT_BYTES
from postdate.model.names import destination as parse
from postdate.ports import Guard, LeaseLost, Receipt, Received


@dataclass
class _Stored:
    native_id: str
    text: str
    inserted_at: datetime
    visible_at: datetime
    expires_at: datetime | None
    order: int
    pop_receipt: str = field(default_factory=lambda: uuid.uuid4().hex)
    dequeue_count: int = 0


@dataclass
class QueueSlot:
    """One queue's messages by native id."""

    messages: dict[str, _Stored] = field(default_factory=dict)
    orders: "itertools.count[int]" = field(default_factory=itertools.count)


class MemoryQueues:
    """QueueSender and QueueReceiver in memory."""

    def __init__(self, queues: dict[str, QueueSlot], clock: Clock, aliases: frozenset[str]) -> None:
        self._queues = queues
        self._clock = clock
        self._aliases = aliases

    def _name(self, destination: str) -> str:
        address = parse(destination)
        alias = address.alias.lower()
        if alias and alias not in self._aliases:
            known = ", ".join(sorted(self._aliases)) or "none"
            raise InvalidDestination(
                f"destination {destination!r}: unknown account alias {address.alias!r}; known: {known} "
                "(POSTDATE_ALIASES)"
            )
        return f"{address.queue}@{alias}" if alias else address.queue

    def _slot(self, destination: str) -> QueueSlot:
        slot = self._queues.get(self._name(destination))
        if slot is None:
            raise DestinationNotFound(destination)
        return slot

    async def send(
        self,
        destination: str,
        text: str,
        *,
        hidden_for: int = 0,
        time_to_live: int | None = None,
        guard: Guard | None = None,
    ) -> Receipt:
        """Append one message."""
        slot = self._slot(destination)
        _check_text(text, destination)
        _check_hidden(hidden_for)
        if guard is not None and not guard():
            raise LeaseLost
        now = self._clock.now()
        stored = _Stored(
            native_id=str(uuid.uuid4()),
            text=text,
            inserted_at=now,
            visible_at=now + timedelta(seconds=hidden_for),
            expires_at=None if time_to_live is None else now + timedelta(seconds=time_to_live),
            order=next(slot.orders),
        )
        slot.messages[stored.native_id] = stored
        return Receipt(stored.native_id, stored.pop_receipt)

    async def withdraw(self, destination: str, receipt: Receipt) -> bool | None:
        """Delete a message that nobody received."""
        return self._delete(destination, receipt.native_id, receipt.pop_receipt)

    def _delete(self, queue: str, native_id: str, pop_receipt: str) -> bool | None:
        slot = self._slot(queue)
        stored = slot.messages.get(native_id)
        if stored is None or self._expired(stored):
            return None
        if stored.pop_receipt != pop_receipt:
            return False
        del slot.messages[native_id]
        return True

    async def hide_again(self, destination: str, receipt: Receipt, hidden_for: int) -> Receipt | bool | None:
        """Change when a message appears."""
        _check_hidden(hidden_for)
        stored = self._slot(destination).messages.get(receipt.native_id)
        if stored is None or self._expired(stored):
            return None
        if stored.pop_receipt != receipt.pop_receipt:
            return False
        visible_at = self._clock.now() + timedelta(seconds=hidden_for)
        if stored.expires_at is not None and visible_at > stored.expires_at:
            raise StorageError(
                f"a message in queue {destination!r} can't be hidden until {visible_at}: "
                f"it expires at {stored.expires_at}"
            )
        stored.pop_receipt = uuid.uuid4().hex
        stored.visible_at = visible_at
        return Receipt(stored.native_id, stored.pop_receipt)

    async def exists(self, destination: str) -> bool:
        """Whether the queue is there."""
        return self._name(destination) in self._queues

    async def create(self, destination: str) -> bool:
        """Create the queue where it is missing."""
        name = self._name(destination)
        created = name not in self._queues
        self._queues.setdefault(name, QueueSlot())
        return created

    async def delete(self, destination: str) -> bool:
        """Delete the queue with all it holds."""
        return self._queues.pop(self._name(destination), None) is not None

    async def names(self, alias: str = "") -> list[str]:
        """The queues of an account."""
        parts = [name.partition("@") for name in self._queues]
        return sorted(queue for queue, _, where in parts if where == alias.lower())

    async def approximate_count(self, destination: str) -> int:
        """Messages, hidden ones included."""
        return sum(not self._expired(m) for m in self._slot(destination).messages.values())

    async def receive(self, queue: str, *, count: int, visibility_s: int) -> list[Received]:
        """Visible messages, oldest visibility first."""
        now = self._clock.now()
        slot = self._slot(queue)
        for expired in [m for m in slot.messages.values() if self._expired(m)]:
            del slot.messages[expired.native_id]
        visible = [m for m in slot.messages.values() if m.visible_at <= now]
        taken = []
        for stored in sorted(visible, key=lambda m: (m.visible_at, m.order))[:count]:
            stored.visible_at = now + timedelta(seconds=visibility_s)
            stored.pop_receipt = uuid.uuid4().hex
            stored.dequeue_count += 1
            taken.append(_received(queue, stored))
        return taken

    async def ack(self, received: Received) -> bool:
        """Delete it, unless it was received again."""
        return bool(self._delete(received.queue, received.native_id, received.pop_receipt))

    async def nack(self, received: Received, delay_s: int = 0, *, text: str | None = None) -> bool:
        """Make it visible again, with another text if one is given."""
        receipt = Receipt(received.native_id, received.pop_receipt)
        if text is not None:
            _check_text(text, received.queue)
        if not isinstance(await self.hide_again(received.queue, receipt, delay_s), Receipt):
            return False
        if text is not None:
            self._slot(received.queue).messages[received.native_id].text = text
        return True

    async def extend(self, received: Received, visibility_s: int) -> Received | None:
        """Keep it hidden."""
        receipt = Receipt(received.native_id, received.pop_receipt)
        again = await self.hide_again(received.queue, receipt, visibility_s)
        if not isinstance(again, Receipt):
            return None
        return _received(received.queue, self._slot(received.queue).messages[received.native_id])

    def _expired(self, stored: _Stored) -> bool:
        return stored.expires_at is not None and stored.expires_at <= self._clock.now()


def _received(queue: str, stored: _Stored) -> Received:
    return Received(
        queue=queue,
        native_id=stored.native_id,
        pop_receipt=stored.pop_receipt,
        text=stored.text,
        dequeue_count=stored.dequeue_count,
        inserted_at=stored.inserted_at,
        hidden_until=stored.visible_at,
        expires_on=stored.expires_at,
    )


def _check_hidden(seconds: int) -> None:
    if not 0 <= seconds <= MAX_HIDDEN_SECONDS:
        raise UsageError(f"a message can be hidden for 0 to {MAX_HIDDEN_SECONDS} seconds, not {seconds}")


def _check_text(text: str, queue: str) -> None:
    size = len(text.encode())
    if size > QUEUE_TEXT_BYTES:
        raise MessageTooLarge(
            f"a message of {size:,} bytes does not fit queue {queue!r} ({QUEUE_TEXT_BYTES:,})"
        )
