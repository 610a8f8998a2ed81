"""What was promised and what arrived, message by message: the demo's book-keeping."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto

from postdate import CancelOutcome, Delivery
from postdate.events import Event, Scheduled
from postdate.model import headers as h


class Fate(Enum):
    """What has to become of a message."""

    #: It has to arrive.
    ARRIVE = auto()
    #: Its sender was told "cancelled": it must not arrive.
    STAY_AWAY = auto()
    #: Its queue is gone: it has to turn up in the error queue.
    FAIL = auto()


@dataclass(slots=True)
class Promise:
    """One scheduled message."""

    due_at: datetime
    path: str
    fate: Fate = Fate.ARRIVE
    moved: bool = False
    #: Native ids of its copies, in the order of their arrival.
    copies: list[str] = field(default_factory=list)
    #: The latest that the service's clock can have shown at the first arrival.
    arrived_at: datetime | None = None
    failed: bool = False

    @property
    def settled(self) -> bool:
        """Whether it is where it belongs."""
        if self.fate is Fate.FAIL:
            return self.failed
        return self.fate is Fate.STAY_AWAY or bool(self.copies)

    @property
    def lateness(self) -> float | None:
        """Seconds from its due time to its arrival, at most; None: it did not arrive."""
        return None if self.arrived_at is None else (self.arrived_at - self.due_at).total_seconds()


class Ledger:
    """All messages by message id. The sender, the consumer and the endpoint's events write it."""

    def __init__(self) -> None:
        self.promises: dict[str, Promise] = {}
        #: Changes that came too late.
        self.too_late = 0
        #: Same copy handed out again: its consumer took too long.
        self.redelivered = 0
        self.problems: list[str] = []

    def observe(self, event: Event) -> None:
        """Hear the endpoint's events: a message is promised when it is durable."""
        if isinstance(event, Scheduled):
            self.promises[event.message_id] = Promise(event.due_at, event.path)

    def doomed(self, message_id: str) -> None:
        """Its queue was deleted."""
        self.promises[message_id].fate = Fate.FAIL

    def cancelled(self, message_id: str, outcome: CancelOutcome) -> None:
        """What its sender heard."""
        if outcome is CancelOutcome.CANCELLED:
            self.promises[message_id].fate = Fate.STAY_AWAY
        else:
            self._refused(message_id, str(outcome))

    def moved(self, message_id: str, outcome: str, due_at: datetime | None) -> None:
        """What its sender heard, and the new due time where it was moved."""
        if due_at is None:
            self._refused(message_id, outcome)
            return
        promise = self.promises[message_id]
        promise.due_at, promise.moved = due_at, True

    def _refused(self, message_id: str, outcome: str) -> None:
        self.too_late += 1
        if outcome != CancelOutcome.TOO_LATE:
            self.problems.append(f"a change of {message_id} was answered with {outcome!r}")

    def arrived(self, delivery: Delivery, latest: datetime) -> None:
        """A copy arrived; `latest` is the latest that the service's clock can show."""
        promise = self.promises.get(delivery.message_id)
        if promise is None:
            self.problems.append(f"message {delivery.message_id!r} arrived, and nobody scheduled it")
            return
        native_id = delivery.received.native_id
        if native_id in promise.copies:
            self.redelivered += 1
            return
        promise.copies.append(native_id)
        if promise.arrived_at is None:
            promise.arrived_at = latest

    def failed(self, delivery: Delivery) -> None:
        """A message turned up in the error queue."""
        promise = self.promises.get(delivery.message_id)
        if promise is None:
            self.problems.append(f"message {delivery.message_id!r} failed, and nobody scheduled it")
            return
        promise.failed = True
        if promise.fate is not Fate.FAIL:
            reason = delivery.headers.get(h.EXCEPTION_MESSAGE)
            self.problems.append(f"message {delivery.message_id!r} went to the error queue: {reason}")
        missing = [
            name
            for name in (h.FAILED_QUEUE, h.EXCEPTION_TYPE, h.EXCEPTION_MESSAGE, h.TIME_OF_FAILURE, h.ATTEMPTS)
            if not delivery.headers.get(name)
        ]
        if missing:
            self.problems.append(f"message {delivery.message_id!r} failed without {', '.join(missing)}")

    @property
    def settled(self) -> bool:
        """Whether every message is where it belongs."""
        return all(promise.settled for promise in self.promises.values())

    @property
    def delivered(self) -> int:
        """Messages that arrived."""
        return sum(bool(promise.copies) for promise in self.promises.values())

    def lateness(self) -> list[float]:
        """Seconds from due time to first arrival, sorted."""
        return sorted(late for one in self.promises.values() if (late := one.lateness) is not None)


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that is not below `share` of them; None: there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
