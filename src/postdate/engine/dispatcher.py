"""One due message to its destination, or to the error queue with the reason.

Two kinds of failure are kept apart. A failure of the *message* (its queue is missing, it is too large, the
identity may not send there) counts as an attempt; after `number_of_retries` repeats, backed off in the row,
the message goes to the error queue. A failure of the *service* (busy, unreachable, no answer) says nothing
about the message: it is tried again, backed off in the row, and never ends in the error queue.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from random import Random

from postdate.clock import Clock
from postdate.core.backoff import retry_wait
from postdate.core.plan import BURST_PATIENCE
from postdate.engine.breakers import Breakers
from postdate.engine.fitting import Fitting
from postdate.engine.handover import HandOverTo, time_to_live
from postdate.errors import (
    MessageTooLarge,
    OutcomeUnknown,
    PoisonMessage,
    PostdateError,
    ServiceBusy,
    StorageError,
    StorageUnreachable,
)
from postdate.events import (
    DispatchFailed,
    ErrorQueueRefused,
    Events,
    Expired,
    HandedOver,
    MovedToErrorQueue,
)
from postdate.model.delayed import DelayedMessage, DelayedRow, Row, UnreadableRow
from postdate.model.envelope import EnvelopeForm, wrap
from postdate.model.faults import Fault, with_fault
from postdate.model.message import Message
from postdate.ports import Backend, Guard

#: Errors that say nothing about the message.
SERVICE_ERRORS = (ServiceBusy, StorageUnreachable, OutcomeUnknown)
#: Attempts never help against these.
_HOPELESS = (MessageTooLarge, PoisonMessage)
#: Service failures in a row after which a queue, or an account that gives no answer, is left alone.
_PLACE_FAILURES = 8
#: Longest time that it is left alone.
_PLACE_PAUSE_SECONDS = 10.0
_REMEMBERED = 10_000


class Outcome(Enum):
    """What became of a row."""

    #: Sent (or expired): the row may go.
    DONE = auto()
    #: In the error queue: the row may go.
    MOVED = auto()
    #: Left in the table, backed off.
    FAILED = auto()
    #: Left in the table because its account does not answer.
    SKIPPED = auto()


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What became of a row and, where it stayed, when to look at it again."""

    outcome: Outcome
    again_at: datetime | None = None
    #: Whether it went to its destination.
    sent: bool = False


_SENT = Dispatched(Outcome.DONE, sent=True)
_DROPPED = Dispatched(Outcome.DONE)
_MOVED = Dispatched(Outcome.MOVED)


@dataclass(slots=True)
class _Health:
    failures: int = 0
    retry_at: datetime | None = None


_WELL = _Health()


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """What dispatch needs to know of the endpoint's settings."""

    error_queue: str
    number_of_retries: int
    retry_base: timedelta
    retry_maximum: timedelta
    payload_retention: timedelta
    #: Remove first, then dispatch: a failure has to put the row back.
    removed_first: bool


class Dispatcher:
    """Dispatches rows; knows what to do when that fails."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        hand_over: HandOverTo,
        breakers: Breakers,
        settings: DispatchSettings,
        *,
        on_busy: Callable[[Exception], None],
        random: Random | None = None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._events = events
        self._hand_over = hand_over
        self._breakers = breakers
        self._settings = settings
        self._fitting = Fitting(backend.payloads, clock, settings.payload_retention)
        self._on_busy = on_busy
        self._random = random or Random()
        self._service_failures: OrderedDict[tuple[str, str], int] = OrderedDict()
        #: Of queues (queue@alias) and accounts (@alias) that failed last time.
        self._unwell: dict[str, _Health] = {}

    async def dispatch(self, row: DelayedRow, term: int, guard: Guard) -> Dispatched:
        """Hand a readable row over.

        Raises:
            LeaseLost: the term is over; nothing was sent.
        """
        delayed = row.delayed
        queue, _, alias = delayed.destination.lower().partition("@")
        places = queue, account = f"{queue}@{alias}", f"@{alias}"
        for place in places:
            retry_at = self._unwell.get(place, _WELL).retry_at
            if retry_at is not None and self._clock.now() < retry_at:
                return Dispatched(Outcome.SKIPPED, retry_at)
        if self._expired(delayed):
            return await self._drop(delayed)
        try:
            # With at most once, a pause between removal and send is one in which a crash loses the message.
            patience = 0.0 if self._settings.removed_first else BURST_PATIENCE
            _, hidden_for = await self._hand_over.send(delayed, term=term, guard=guard, patience=patience)
        except SERVICE_ERRORS as error:
            # An account that answers may be busy with this one queue: the others go on.
            self._place_failed(queue if isinstance(error, ServiceBusy) else account)
            return await self._service_failed(row, error)
        except PostdateError as error:
            self._unwell.pop(queue, None)
            return await self._message_failed(row, error, guard)
        for place in places:
            self._unwell.pop(place, None)
        self._service_failures.pop((row.key.partition, row.key.row), None)
        if self._settings.removed_first:  # else it is whole when the row is removed
            self._breakers.dispatch.succeeded()
        self._events.emit(
            HandedOver(
                delayed.message.message_id,
                delayed.destination,
                delayed.due_at,
                self._clock.now(),
                hidden_for,
                term,
                delayed.failure_count + 1,
            )
        )
        return _SENT

    async def refuse(self, row: UnreadableRow, guard: Guard) -> Dispatched:
        """Move a row that can't be read to the error queue, with what can be saved of it.

        Raises:
            LeaseLost: the term is over; nothing was sent.
        """
        error = PoisonMessage(f"row {row.key.row!r} can't be read: {row.reason}")
        body = row.properties.get("Body")
        message_id = row.properties.get("MessageId")
        destination = row.properties.get("Destination")
        raw_headers = row.properties.get("Headers")
        message = Message(
            message_id if isinstance(message_id, str) and message_id else row.key.row,
            {"Postdate.RowHeaders": raw_headers[:2000]} if isinstance(raw_headers, str) else {},
            body if isinstance(body, bytes) else b"",
        )
        shown = destination if isinstance(destination, str) else ""
        return await self._move_to_error_queue(row, message, shown, error, row.failure_count + 1, guard)

    def _expired(self, delayed: DelayedMessage) -> bool:
        lives = time_to_live(delayed)
        return lives is not None and self._clock.now() >= delayed.due_at + lives

    async def _drop(self, delayed: DelayedMessage) -> Dispatched:
        self._events.emit(Expired(delayed.message.message_id, delayed.destination, delayed.due_at))
        if delayed.payload_ref is not None:
            with suppress(StorageError):  # age cleans it up
                await self._backend.payloads.delete(delayed.payload_ref)
        return _DROPPED

    # --- failures ---------------------------------------------------------------------------------

    def _place_failed(self, place: str) -> None:
        health = self._unwell.setdefault(place, _Health())
        if health.retry_at is not None and self._clock.now() < health.retry_at:
            return  # begun before the pause, together with those that led to it
        health.failures += 1
        beyond = health.failures - _PLACE_FAILURES
        if beyond >= 0:
            pause = retry_wait(beyond + 1, base_s=1.0, maximum_s=_PLACE_PAUSE_SECONDS, random=self._random)
            health.retry_at = self._clock.now() + timedelta(seconds=pause)

    async def _service_failed(self, row: DelayedRow, error: StorageError) -> Dispatched:
        self._on_busy(error)
        if "@" not in row.delayed.destination:
            # Who needs another account is no reason to end what works for all others.
            self._breakers.dispatch.failed(error)
        if self._settings.removed_first and isinstance(error, OutcomeUnknown):
            # It may have been sent, and at most once means not again.
            attempts = row.delayed.failure_count
            self._tell_failed(row, error, attempts, counted=False, next_attempt_at=None)
            return Dispatched(Outcome.FAILED)
        place = (row.key.partition, row.key.row)
        failures = self._service_failures.pop(place, 0) + 1
        self._service_failures[place] = failures
        if len(self._service_failures) > _REMEMBERED:
            self._service_failures.popitem(last=False)
        attempts = row.delayed.failure_count
        next_attempt_at = await self._back_off(row, attempts, failures)
        self._tell_failed(row, error, attempts, counted=False, next_attempt_at=next_attempt_at)
        return self._failed(next_attempt_at)

    async def _message_failed(self, row: DelayedRow, error: PostdateError, guard: Guard) -> Dispatched:
        delayed = row.delayed
        attempts = delayed.failure_count + 1
        if attempts > self._settings.number_of_retries or isinstance(error, _HOPELESS):
            return await self._move_to_error_queue(
                row, delayed.message, delayed.destination, error, attempts, guard
            )
        next_attempt_at = await self._back_off(row, attempts, attempts)
        self._tell_failed(row, error, attempts, counted=True, next_attempt_at=next_attempt_at)
        return self._failed(next_attempt_at)

    def _failed(self, next_attempt_at: datetime | None) -> Dispatched:
        """Look again when the row's back-off is over, or soon where it could not be written."""
        return Dispatched(Outcome.FAILED, next_attempt_at or self._clock.now() + self._settings.retry_base)

    async def _back_off(self, row: Row, attempts: int, failures: int) -> datetime | None:
        """Write attempts and the next try into the row; the instant, or None where that failed too."""
        wait = retry_wait(
            failures,
            base_s=self._settings.retry_base.total_seconds(),
            maximum_s=self._settings.retry_maximum.total_seconds(),
            random=self._random,
        )
        next_attempt_at = self._clock.now() + timedelta(seconds=wait)
        store = self._backend.store
        try:
            if self._settings.removed_first and isinstance(row, DelayedRow):
                delayed = replace(row.delayed, failure_count=attempts, next_attempt_at=next_attempt_at)
                await store.add([delayed])
            else:
                await store.update(row, failure_count=attempts, next_attempt_at=next_attempt_at)
        except PostdateError as error:
            # The row is as it was, and the next pass tries it again: nothing is lost.
            self._breakers.recovery.failed(error)
            return None
        self._breakers.recovery.succeeded()
        return next_attempt_at

    async def _move_to_error_queue(
        self,
        row: Row,
        message: Message,
        destination: str,
        error: PostdateError,
        attempts: int,
        guard: Guard,
    ) -> Dispatched:
        error_queue = self._settings.error_queue
        fault = Fault(error, destination, self._clock.now(), attempts)
        try:
            copy = await self._fitting(with_fault(message, fault), destination)
            await self._backend.sender.send(error_queue, wrap(copy, EnvelopeForm.NSERVICEBUS), guard=guard)
        except PostdateError as refusal:
            self._breakers.recovery.failed(refusal)
            next_attempt_at = await self._back_off(row, attempts, attempts)
            self._events.emit(
                ErrorQueueRefused(message.message_id, error_queue, str(refusal), next_attempt_at)
            )
            return self._failed(next_attempt_at)
        self._breakers.recovery.succeeded()
        self._events.emit(
            MovedToErrorQueue(message.message_id, destination, error_queue, attempts, str(error))
        )
        return _MOVED

    def _tell_failed(
        self,
        row: DelayedRow,
        error: PostdateError,
        attempts: int,
        *,
        counted: bool,
        next_attempt_at: datetime | None,
    ) -> None:
        self._events.emit(
            DispatchFailed(
                row.delayed.message.message_id,
                row.delayed.destination,
                attempts,
                counted,
                str(error),
                next_attempt_at,
            )
        )
