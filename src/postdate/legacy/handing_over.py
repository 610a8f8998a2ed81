"""Putting timeouts of the store on their destinations.

Whoever removes the main row has the timeout: of our processes and of older endpoints', one. A message that
was sent can't be called back, unless it is hidden. So ours goes out hidden, for as long as it takes to remove
the row at least; where the removal finds nothing, somebody else was faster, and ours is withdrawn.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from postdate.clock import Clock
from postdate.core.timeout_rounds import retry_after
from postdate.engine.dispatcher import SERVICE_ERRORS
from postdate.engine.fitting import Fitting
from postdate.engine.handover import HandOverTo
from postdate.errors import OutcomeUnknown, PoisonMessage, PostdateError, UsageError
from postdate.events import (
    ErrorQueueRefused,
    Events,
    HandedOver,
    MovedToErrorQueue,
    TimeoutFailed,
    TimeoutLeftoversRemoved,
    TimeoutTakenElsewhere,
    TimeoutUnreadable,
)
from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage
from postdate.model.envelope import EnvelopeForm, fits, wrap
from postdate.model.faults import Fault, with_fault
from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout
from postdate.model.message import Message
from postdate.model.names import dispatch_address
from postdate.ports import Backend, Guard, Receipt

#: Tries to send a message, before the error queue: as many as older endpoints make.
ATTEMPTS = 5
#: A message is hidden at least so long, so that it can be withdrawn.
PROVISIONAL = timedelta(seconds=2)
#: Seconds for which what has no main row is left alone: it may be one that is just being written.
LEFT_ALONE_SECONDS = 600.0
#: Seconds until a timeout that can't be read is looked at again.
_UNREADABLE_SECONDS = 3600.0
#: Seconds for which a failure is remembered when its timeout does not turn up again.
_REMEMBERED_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class Acting:
    """The term that somebody acts in."""

    term: int
    #: Whether the term surely lasts.
    guard: Guard


class NotSent(Exception):
    """A timeout could not be put on its destination; `error` is why."""

    def __init__(self, delayed: DelayedMessage, error: PostdateError) -> None:
        super().__init__(str(error))
        self.delayed = delayed
        self.error = error


@dataclass(slots=True)
class _Sent:
    """A copy that is out while its timeout is still in the store."""

    address: str
    receipt: Receipt
    #: A removal may have worked although it failed: who finds nothing now can't tell whose it was.
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class _Later:
    """A timeout that is left alone for now. Instants are monotonic seconds."""

    until: float
    attempts: int = 0
    failures: int = 0
    gone_since: float | None = None


_FRESH = _Later(0.0)


class HandingOver:
    """Hands timeouts over; knows what to do when that fails."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        hand_over: HandOverTo,
        fitting: Fitting,
        error_queue: str,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._events = events
        self._hand_over = hand_over
        self._fitting = fitting
        self._error_queue = error_queue
        self._sent: dict[str, _Sent] = {}
        self._later: dict[str, _Later] = {}

    async def attempt(self, due: DueTimeout, acting: Acting) -> float | None:
        """Hand over a timeout that a look found; when to try again (monotonic), None: it is done with.

        Raises:
            StorageError: the store can't be read or written; nothing is lost.
            LeaseLost: the term is over.
        """
        later = self._later.get(due.id)
        if later is not None and self._clock.monotonic() < later.until:
            return later.until
        try:
            there = await self.hand_over(due.id, acting)
        except NotSent as failure:
            return await self._failed(due.id, failure, acting)
        except PoisonMessage as error:
            self._events.emit(TimeoutUnreadable(due.id, str(error)))
            return self._wait(due.id, _UNREADABLE_SECONDS, _FRESH)
        if not there:
            return await self._without_main_row(due)
        self._later.pop(due.id, None)
        return None

    async def hand_over(self, timeout_id: str, acting: Acting) -> bool:
        """Send a timeout, hidden until it is due, and remove it; False: there is none of this id.

        Raises:
            NotSent: the destination did not take it.
            PoisonMessage: it can't be read.
            StorageError: the store can't be read or written. What was sent is not sent again by this process.
            LeaseLost: the term is over; nothing was sent.
        """
        sent = self._sent.get(timeout_id)
        if sent is None:
            timeout = await self._backend.timeouts.get(timeout_id)
            if timeout is None:
                return False
            sent = await self._send(timeout, acting)
        await self._remove(timeout_id, sent)
        return True

    async def _send(self, found: LegacyTimeout, acting: Acting) -> _Sent:
        now = self._clock.now()
        message = released(found, now)
        due_at = max(found.due_at, now + PROVISIONAL)
        delayed = DelayedMessage(message, found.destination, due_at)
        try:
            receipt, hidden_for = await self._hand_over.send(delayed, guard=acting.guard)
        except PostdateError as error:
            raise NotSent(replace(delayed, due_at=found.due_at), error) from error
        self._events.emit(
            HandedOver(message.message_id, found.destination, found.due_at, now, hidden_for, acting.term)
        )
        return self._note_sent(found.id, dispatch_address(found.destination), receipt)

    def _note_sent(self, timeout_id: str, address: str, receipt: Receipt) -> _Sent:
        sent = self._sent[timeout_id] = _Sent(address, receipt)
        return sent

    async def _remove(self, timeout_id: str, sent: _Sent) -> None:
        """Remove a timeout whose message is out; withdraw that where somebody else removed it first."""
        try:
            removed = await self._backend.timeouts.remove(timeout_id)
        except OutcomeUnknown:
            # It is gone, and maybe by us: then this copy is the only one.
            removed = True
        except PostdateError:
            sent.unsure = True
            raise
        del self._sent[timeout_id]
        if removed or sent.unsure:
            return
        try:
            withdrawn = await self._backend.sender.withdraw(sent.address, sent.receipt) is True
        except PostdateError:
            withdrawn = False
        self._events.emit(TimeoutTakenElsewhere(timeout_id, sent.address, withdrawn))

    async def _failed(self, timeout_id: str, failure: NotSent, acting: Acting) -> float | None:
        error, delayed = failure.error, failure.delayed
        before = self._later.get(timeout_id, _FRESH)
        counted = not isinstance(error, SERVICE_ERRORS)
        attempts, failures = before.attempts + counted, before.failures + 1
        pause = retry_after(failures)
        known = replace(before, attempts=attempts, failures=failures)
        if counted and (attempts >= ATTEMPTS or isinstance(error, UsageError)):
            if await self._move(timeout_id, failure, attempts, acting):
                self._later.pop(timeout_id, None)
                return None
            return self._wait(timeout_id, pause, known)
        self._events.emit(
            TimeoutFailed(timeout_id, delayed.destination, attempts, counted, str(error), pause)
        )
        return self._wait(timeout_id, pause, known)

    async def _move(self, timeout_id: str, failure: NotSent, attempts: int, acting: Acting) -> bool:
        """To the error queue, with the reason; False: that did not take it either."""
        message, destination = failure.delayed.message, failure.delayed.destination
        fault = Fault(failure.error, destination, self._clock.now(), attempts)
        try:
            copy = await self._fitting(with_fault(message, fault), self._error_queue)
            text = wrap(copy, EnvelopeForm.NSERVICEBUS)
            receipt = await self._backend.sender.send(self._error_queue, text, guard=acting.guard)
        except PostdateError as refusal:
            self._events.emit(ErrorQueueRefused(message.message_id, self._error_queue, str(refusal), None))
            return False
        self._events.emit(
            MovedToErrorQueue(
                message.message_id, destination, self._error_queue, attempts, str(failure.error)
            )
        )
        await self._remove(timeout_id, self._note_sent(timeout_id, self._error_queue, receipt))
        return True

    async def _without_main_row(self, due: DueTimeout) -> float | None:
        """What is left of an interrupted removal goes, but not what may just be being written."""
        now = self._clock.monotonic()
        since = self._later.get(due.id, _FRESH).gone_since
        if since is None or now - since < LEFT_ALONE_SECONDS:
            since = now if since is None else since
            return self._wait(due.id, since + LEFT_ALONE_SECONDS - now, _Later(0.0, gone_since=since))
        self._later.pop(due.id, None)
        if await self._backend.timeouts.clean_up(due):
            self._events.emit(TimeoutLeftoversRemoved(due.id))
        return None

    def _wait(self, timeout_id: str, seconds: float, known: _Later) -> float:
        until = self._clock.monotonic() + seconds
        self._later[timeout_id] = replace(known, until=until)
        return until

    def forget_old(self) -> None:
        """Drop what is known of timeouts that have not turned up for long."""
        limit = self._clock.monotonic() - _REMEMBERED_SECONDS
        self._later = {one: later for one, later in self._later.items() if later.until > limit}


def released(timeout: LegacyTimeout, now: datetime) -> Message:
    """The message of a timeout as its consumer gets it.

    Its id is that of the message which was put off, so that consumers can tell a second copy.
    """
    headers = {**timeout.headers, h.TIME_SENT: h.format_instant(now)}
    message = Message(timeout.headers.get(h.MESSAGE_ID) or timeout.id, headers, timeout.body)
    related = replace(message, headers={**headers, h.RELATED_TO_TIMEOUT: timeout.id})
    # It fitted a queue when it came, if only just: better without this header than not at all.
    return related if fits(related, EnvelopeForm.NSERVICEBUS) else message
