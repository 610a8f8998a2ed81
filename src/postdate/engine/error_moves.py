"""Retry and discard: messages leave the error queue, and none is lost on the way.

The order is the argument. A retry writes the message into the undo file, sends the copy, writes the copy's
receipt, and deletes the original: a crash in between leaves the original in the error queue, where it shows
up again, and at worst a copy of the same message id in its queue as well. A discard writes the message, its
large body too, and deletes both. Where somebody else received the original meanwhile, the copy is taken back
if nobody has received it yet, and the message is theirs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from postdate.clock import Clock, wait_for
from postdate.engine.destinations import Destinations
from postdate.engine.error_queue import ErrorQueue, Held, Hold
from postdate.engine.handover import EnvelopeFormOf
from postdate.engine.tasks import to_the_end
from postdate.engine.undo_file import UndoWriter
from postdate.errors import (
    MessageTooLarge,
    NotProvisioned,
    OutcomeUnknown,
    PoisonMessage,
    PostdateError,
    StorageError,
)
from postdate.model.envelope import EnvelopeForm, ReadForm, fits, unwrap, wrap
from postdate.model.failed import FailedMessage, FailedState
from postdate.model.message import Message
from postdate.model.names import dispatch_address
from postdate.model.returning import without_fault
from postdate.ports import Backend, Receipt

#: Messages that are moved at once: the most that a crash can double.
AT_ONCE = 8


class Outcome(StrEnum):
    """What became of a message of the error queue."""

    RETRIED = "retried"
    DISCARDED = "discarded"
    #: Somebody else received it meanwhile; nothing was done.
    TAKEN = "taken by somebody else"
    #: Its copy is in its queue, and somebody else received the original: it may be handled twice.
    DOUBLED = "doubled"
    #: The service did not tell; it may be in its queue and in the error queue.
    UNKNOWN = "unknown"
    #: It stays in the error queue.
    FAILED = "failed"
    #: It names no queue to go back to; it stays in the error queue.
    NO_QUEUE = "no queue"


#: Those after which nothing is left to do.
SETTLED = frozenset({Outcome.RETRIED, Outcome.DISCARDED, Outcome.TAKEN})


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of one message."""

    message: FailedMessage
    outcome: Outcome
    destination: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """What moving needs to know of the endpoint's settings."""

    payload_retention: timedelta
    envelope_form: EnvelopeFormOf
    #: Send everything here, instead of back to where it failed.
    to: str | None = None
    #: Messages a second; None: as fast as it goes.
    rate: float | None = None


class ErrorMoves:
    """Moves messages that are held."""

    def __init__(
        self, backend: Backend, clock: Clock, queue: ErrorQueue, undo: UndoWriter, settings: MoveSettings
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._queue = queue
        self._undo = undo
        self._settings = settings
        self._failure: Exception | None = None

    async def retry(self, hold: Hold, stop: asyncio.Event, tell: Callable[[Moved], object]) -> int:
        """Send back what is held, until `stop` is set; how many were tried.

        Raises:
            StorageError, OSError: the service or the disk failed; what was not told of is still there, or the
                undo file has an entry for it.
        """
        return await self._each(hold, stop, tell, self._retry)

    async def discard(self, hold: Hold, stop: asyncio.Event, tell: Callable[[Moved], object]) -> int:
        """Delete what is held, until `stop` is set; as `retry`."""
        return await self._each(hold, stop, tell, self._discard)

    # --- all of them ------------------------------------------------------------------------------

    async def _each(
        self,
        hold: Hold,
        stop: asyncio.Event,
        tell: Callable[[Moved], object],
        work: Callable[[Hold, Held], Awaitable[Moved]],
    ) -> int:
        """Some at once, each begun no sooner than the rate has it; none is cut in the middle."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def move(one: Held) -> None:
            try:
                tell(await work(hold, one))
            except (PostdateError, OSError) as error:
                self._failure = self._failure or error
            finally:
                turns.release()

        async def uncut(one: Held) -> None:
            await to_the_end(asyncio.ensure_future(move(one)))

        tried = 0
        rate = self._settings.rate
        began = self._clock.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for one in hold.held:
                await turns.acquire()
                if rate is not None:
                    await wait_for(stop, began + tried / rate - self._clock.monotonic(), self._clock)
                if stop.is_set() or self._failure is not None:
                    break
                tasks.create_task(uncut(one))
                tried += 1
        if self._failure is not None:
            raise self._failure
        return tried

    # --- one --------------------------------------------------------------------------------------

    async def _retry(self, hold: Hold, one: Held) -> Moved:
        message = one.message
        destination = destination_of(message, self._settings.to, self._queue.queue)
        if destination is None:
            reason = "it names no queue to go back to; give --to QUEUE"
            return Moved(message, Outcome.NO_QUEUE, reason=reason)
        original = hold.text_of(one)
        try:
            text = await self._text_for(destination, message, original)
            if message.payload is not None:
                with suppress(NotProvisioned):  # then it is not in our container
                    keep_until = self._clock.now() + self._settings.payload_retention
                    await self._backend.payloads.keep(message.payload, keep_until=keep_until)
        except StorageError:
            raise
        except PostdateError as error:
            return Moved(message, Outcome.FAILED, destination, str(error))
        if not await self._queue.keep(one):
            return Moved(message, Outcome.TAKEN, destination)
        number = await self._undo.entry(message, original, destination=destination)
        moved = await self._send(hold, one, number, text, destination)
        await self._note(number, moved.outcome)
        return moved

    async def _send(self, hold: Hold, one: Held, number: int, text: str, destination: str) -> Moved:
        """Send the copy, then delete the original."""
        message = one.message
        try:
            receipt = await self._backend.sender.send(dispatch_address(destination), text)
        except OutcomeUnknown as error:
            return Moved(message, Outcome.UNKNOWN, destination, str(error))
        except StorageError as error:
            self._failure = self._failure or error  # at once, so that no further one begins
            await self._note(number, Outcome.FAILED)
            raise
        except PostdateError as error:
            return Moved(message, Outcome.FAILED, destination, str(error))
        try:
            await self._undo.sent(number, receipt)
            if await self._backend.receiver.ack(one.received):
                hold.done.add(message.native_id)
                return Moved(message, Outcome.RETRIED, destination)
        except (PostdateError, OSError) as error:
            reason = f"its copy was sent, and then: {error}; it may come twice"
            return Moved(message, Outcome.UNKNOWN, destination, reason)
        if await self._taken_back(destination, receipt):
            return Moved(message, Outcome.TAKEN, destination)
        reason = "somebody else received it after its copy was sent"
        return Moved(message, Outcome.DOUBLED, destination, reason)

    async def _taken_back(self, destination: str, receipt: Receipt) -> bool:
        """Whether the copy is gone again: only if nobody ever received it."""
        with suppress(PostdateError):
            return await self._backend.sender.withdraw(dispatch_address(destination), receipt) is True
        return False

    async def _text_for(self, destination: str, message: FailedMessage, text: str) -> str:
        """What its queue gets: the same envelope without the failure, or the form that the settings tell."""
        if message.state is FailedState.UNREADABLE:
            return text
        form = self._settings.envelope_form(destination)
        opened = unwrap(text, message.native_id)
        if form is EnvelopeForm.NSERVICEBUS or opened.form is ReadForm.PLAIN:
            return without_fault(text)
        body: bytes | None = opened.message.body
        if message.payload is not None:
            body = await self._backend.payloads.get(message.payload)
        if body is None:
            raise PoisonMessage("its large body was dropped when another copy of it was done with")
        bare = Message(message.message_id, {}, body)
        if not fits(bare, form):
            raise MessageTooLarge(f"its body of {len(body):,} bytes does not fit a queue in form {form}")
        return wrap(bare, form)

    async def _discard(self, hold: Hold, one: Held) -> Moved:
        message = one.message
        body = await self._large_body(hold, message)
        if not await self._queue.keep(one):
            return Moved(message, Outcome.TAKEN)
        number = await self._undo.entry(message, hold.text_of(one), destination=None, payload_body=body)
        try:
            deleted = await self._backend.receiver.ack(one.received)
        except OutcomeUnknown as error:
            return Moved(message, Outcome.UNKNOWN, reason=str(error))
        if not deleted:
            await self._note(number, Outcome.TAKEN)
            return Moved(message, Outcome.TAKEN)
        hold.done.add(message.native_id)
        if message.payload is not None and body is not None:
            with suppress(StorageError):  # age cleans it up
                await self._backend.payloads.delete(message.payload)
        await self._note(number, Outcome.DISCARDED)
        return Moved(message, Outcome.DISCARDED)

    async def _note(self, number: int, outcome: Outcome) -> None:
        """Write down what became of a message; a disk that refuses stops the others, not this one."""
        try:
            await self._undo.outcome(number, outcome, self._clock.now())
        except OSError as error:
            self._failure = self._failure or error

    async def _large_body(self, hold: Hold, message: FailedMessage) -> bytes | None:
        """The large body, if it is to be dropped with the message: nobody else refers to it.

        None too where it is gone, or in the container of another endpoint.
        """
        if message.payload is None or hold.payloads_of_others[message.payload]:
            return None
        with suppress(PoisonMessage, NotProvisioned):
            return await self._backend.payloads.get(message.payload)
        return None


def destination_of(message: FailedMessage, to: str | None, error_queue: str) -> str | None:
    """Where a message goes back to; None: it names no queue, or the error queue itself."""
    destination = to or message.failed_queue
    if destination is None or destination.lower() == error_queue.lower():
        return None
    return destination


async def missing_destinations(
    backend: Backend, clock: Clock, destinations: Collection[str]
) -> dict[str, PostdateError]:
    """Those of the destinations that can't be used, each with its reason, near names among it."""
    refused: dict[str, PostdateError] = {}
    addresses: dict[str, str] = {}
    for destination in destinations:
        try:
            addresses[dispatch_address(destination)] = destination
        except PostdateError as error:
            refused[destination] = error
    found = await Destinations(backend.sender, clock).refused(addresses)
    return refused | {addresses[address]: error for address, error in found.items()}


def destinations_of(held: Sequence[Held], to: str | None, error_queue: str) -> dict[str, int]:
    """Where messages go back to, and how many to each."""
    counted: dict[str, int] = {}
    for one in held:
        destination = destination_of(one.message, to, error_queue)
        if destination is not None:
            counted[destination] = counted.get(destination, 0) + 1
    return counted
