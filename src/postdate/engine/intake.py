"""Accepting a message: everything that could fail later is checked now, then it is made durable.

A message with a short delay (`direct_within`) goes straight to its queue, hidden until its due time; any
other becomes a row. Either way it is durable when `schedule` returns.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from postdate.clock import Clock
from postdate.concurrency import for_each
from postdate.engine.acceptance import Acceptance, Accepted, Outgoing, Parsed
from postdate.engine.breakers import Breaker
from postdate.engine.destinations import Destinations
from postdate.engine.handover import HandOverTo, know_the_time
from postdate.errors import PostdateError, StorageError
from postdate.events import Events, Scheduled
from postdate.model.added import AddOutcome
from postdate.model.delayed import DelayedMessage
from postdate.model.handles import QueueHandle, RowHandle, format_handle
from postdate.model.keys import identity
from postdate.ports import AddResult, Backend, added_before

#: Short-delay messages whose (id, destination, due time) is remembered, so that a repeat is one message.
_REMEMBERED = 10_000
#: Large bodies stored at once.
_PARKED_AT_ONCE = 8
#: Message id and destination, and the due time.
Place = tuple[str, datetime]


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """What intake needs to know of the endpoint's settings."""

    #: The longest delay that needs no row.
    direct_within: timedelta
    payload_retention: timedelta
    check_destinations: bool


class DirectHandles:
    """Short-delay messages that this process put into queues, until they are cancelled or moved."""

    def __init__(self) -> None:
        self._handles: OrderedDict[Place, QueueHandle] = OrderedDict()
        self._places: dict[str, Place] = {}

    def of(self, place: Place) -> QueueHandle | None:
        """The handle of a message, if it is remembered."""
        return self._handles.get(place)

    def remember(self, place: Place, handle: QueueHandle) -> None:
        """Keep it in mind; the oldest is forgotten."""
        self._handles[place] = handle
        self._places[handle.native_id] = place
        if len(self._handles) > _REMEMBERED:
            _, oldest = self._handles.popitem(last=False)
            self._places.pop(oldest.native_id, None)

    def forget(self, handle: QueueHandle) -> None:
        """It lies there no more: the same message scheduled again is a new one."""
        place = self._places.pop(handle.native_id, None)
        if place is not None:
            self._handles.pop(place, None)


class Intake:
    """Validates and stores."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        hand_over: HandOverTo,
        acceptance: Acceptance,
        destinations: Destinations,
        settings: IntakeSettings,
        direct: "DirectHandles",
        wake: Callable[[datetime], None],
        breaker: Breaker,
    ) -> None:
        self._backend = backend
        self._hand_over = hand_over
        self._acceptance = acceptance
        self._destinations = destinations
        self._clock = clock
        self._events = events
        self._settings = settings
        self._wake = wake
        self._breaker = breaker
        self._direct = direct

    async def schedule(self, outgoing: Outgoing) -> str:
        """Accept one message; its handle.

        Raises:
            UsageError: something about it is wrong; nothing was changed.
            DestinationNotFound: its queue is not there.
            StorageError: it may not be durable; the same call again, with the same `message_id` and `at`,
                is harmless.
        """
        accepted = await self._accept(outgoing)
        if self.is_short(accepted, self._clock.now()):
            return await self.send_short(accepted)
        (handle,) = await self.store([accepted])
        if isinstance(handle, PostdateError):
            raise handle
        return handle

    async def send_now(self, outgoing: Outgoing) -> str:
        """Put a message on its destination at once; its message id."""
        checked = await self._accept(outgoing, delayed=False)
        await self._hand_to_queue(checked)
        return checked.delayed.message.message_id

    async def _accept(self, outgoing: Outgoing, *, delayed: bool = True) -> Accepted:
        parsed = self._acceptance.check(outgoing, self._clock, delayed=delayed)
        if self._settings.check_destinations:
            await self._destinations.check(outgoing.destination)
        return await self._timed(parsed, delayed=delayed)

    async def accept_unasked(self, outgoing: Outgoing) -> Accepted:
        """Every check but that of the destination, for which `missing` can ask for many at once.

        Raises:
            UsageError: something about the message is wrong.
            StorageError: the service did not tell its time.
        """
        return await self._timed(self._acceptance.check(outgoing, self._clock, delayed=True), delayed=True)

    async def _timed(self, parsed: Parsed, *, delayed: bool) -> Accepted:
        if delayed:
            await know_the_time(self._clock, self._backend)
        # Only now: a delay counts by the service's clock, which the first answer tells.
        return self._acceptance.accept(parsed, self._clock, delayed=delayed)

    async def missing(self, messages: Iterable[Accepted]) -> dict[str, PostdateError]:
        """Destinations of the messages that can't be used, each with its reason."""
        if not self._settings.check_destinations:
            return {}
        return await self._destinations.refused({message.delayed.destination for message in messages})

    def is_short(self, accepted: Accepted, now: datetime) -> bool:
        """Whether it goes straight to its queue: the one place that decides it."""
        return accepted.delayed.due_at - now <= self._settings.direct_within

    # --- making it durable ------------------------------------------------------------------------

    async def send_short(self, accepted: Accepted, *, patience: float = 0.0) -> str:
        """Hand a short delay to its queue, unless the same message already waits or went; its handle.

        It may wait before for `patience` seconds, where that makes it punctual.
        """
        delayed = accepted.delayed
        place = place_of(delayed)
        if accepted.named:
            known = self._direct.of(place)
            if known is not None:
                return format_handle(known)
            if await self._backend.store.get(delayed.key) is not None:
                return format_handle(RowHandle(delayed.key))
        handle = await self._hand_to_queue(accepted, patience=patience)
        if accepted.named:
            self._direct.remember(place, handle)
        return format_handle(handle)

    async def _hand_to_queue(self, checked: Accepted, *, patience: float = 0.0) -> QueueHandle:
        delayed = checked.delayed
        await self._park(checked)
        receipt, hidden_for = await self._hand_over.send(delayed, patience=patience)
        self._tell(delayed, "queue" if hidden_for else "now", hidden_for)
        return QueueHandle(
            delayed.destination,
            receipt.native_id,
            receipt.pop_receipt,
            delayed.due_at,
            delayed.payload_ref,
        )

    async def store(self, batch: Sequence[Accepted]) -> list[str | PostdateError]:
        """Make rows of messages; for each its handle, or why it has none."""
        return [
            format_handle(RowHandle(outcome.key)) if isinstance(outcome, AddResult) else outcome
            for outcome in await self.store_rows(batch)
        ]

    async def store_rows(self, batch: Sequence[Accepted]) -> list[AddResult | PostdateError]:
        """As `store`; for each its row, and whether this call made it."""
        answers: dict[int, AddResult | PostdateError] = {}

        async def park(position: int) -> None:
            try:
                await self._park(batch[position])
            except PostdateError as error:
                answers[position] = error

        large = (n for n, accepted in enumerate(batch) if accepted.payload is not None)
        await for_each(large, _PARKED_AT_ONCE, park)
        rest = [n for n in range(len(batch)) if n not in answers]
        answers.update(zip(rest, await self._add([batch[n].delayed for n in rest]), strict=True))
        return [answers[n] for n in range(len(batch))]

    async def _add(self, messages: Sequence[DelayedMessage]) -> list[AddResult | PostdateError]:
        outcomes: Sequence[AddOutcome]
        failure: PostdateError | None = None
        try:
            outcomes = await self._backend.store.add(messages)
        except PostdateError as error:
            failure = error
            outcomes = added_before(error, len(messages))
        answers: list[AddResult | PostdateError] = []
        stored: list[datetime] = []
        for delayed, outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome, AddResult):
                self._tell(delayed, "row")
                stored.append(delayed.due_at)
            if outcome is not None:
                answers.append(outcome)
            elif failure is not None:
                answers.append(not_tried(failure))
        if stored:
            self._breaker.succeeded()
            self._wake(min(stored))
        if failure is not None:
            self._breaker.failed(failure)
        return answers

    async def _park(self, checked: Accepted) -> None:
        """Store the large body before anything refers to it."""
        delayed = checked.delayed
        if checked.payload is not None and delayed.payload_ref is not None:
            await self._backend.payloads.put(
                delayed.payload_ref,
                checked.payload,
                keep_until=delayed.due_at + self._settings.payload_retention,
            )

    def _tell(self, delayed: DelayedMessage, path: str, hidden_for: int = 0) -> None:
        message_id = delayed.message.message_id
        self._events.emit(Scheduled(message_id, delayed.destination, delayed.due_at, path, hidden_for))


def place_of(delayed: DelayedMessage) -> Place:
    """What makes two messages the same one."""
    return identity(delayed.message.message_id, delayed.destination), delayed.due_at


def not_tried(failure: PostdateError) -> StorageError:
    """What a message gets that was left alone after the service failed; the failure is its cause."""
    error = StorageError(f"not tried any more: {failure}")
    error.__cause__ = failure
    return error
