"""One message, from being taken to being done with.

    take  ->  open  ->  handle (hidden from others meanwhile)  ->  send what it sends  ->  acknowledge
                |          | fails                                    | fails
                poison     recovery: again, later, or the error queue

Nothing in here decides what becomes of a failed message (`core.recoverability`), and nothing else
deletes one.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from postdate.clock import Clock
from postdate.core import recoverability as r
from postdate.core.slowdown import Slowdown
from postdate.engine.acceptance import Outgoing
from postdate.engine.attempt import Attempts, Ended
from postdate.engine.context import ContextParts, MessageContext
from postdate.engine.handlers import Handlers
from postdate.engine.held import Held, Hold
from postdate.engine.intake import Intake
from postdate.engine.reception import Delivery, Reception
from postdate.engine.recovery import Recovery
from postdate.engine.returning import Returning
from postdate.engine.stuck import Stuck
from postdate.engine.tasks import to_the_end
from postdate.errors import (
    HandlerNeverEnded,
    NoHandler,
    PoisonMessage,
    PostdateError,
    StorageError,
    TryLater,
    UsageError,
)
from postdate.events import AlreadyHandled, BackToSpeed, Events, Handled, SlowedDown
from postdate.model import headers as h
from postdate.model.durations import due_after
from postdate.ports import QueueReceiver

_STOPPED = "the process stops"


@dataclass(frozen=True, slots=True)
class HandlingParts:
    """What handling works with."""

    clock: Clock
    events: Events
    queues: QueueReceiver
    reception: Reception
    intake: Intake
    handlers: Handlers
    attempts: Attempts
    hold: Hold
    recovery: Recovery
    returning: Returning
    context: ContextParts
    slowdown: Slowdown
    stuck: Stuck


@dataclass(frozen=True, slots=True)
class HandlingSettings:
    """What handling needs to know of the endpoint's settings."""

    queue: str
    immediate_retries: int
    slow_after: int
    slow_pause_s: float
    #: Acknowledge first, then handle: no message is handled twice, and a failed one is not retried.
    ack_first: bool


class Handling:
    """Handles messages, one call each."""

    def __init__(self, parts: HandlingParts, settings: HandlingSettings) -> None:
        self._parts = parts
        self._settings = settings

    async def handle(self, held: Held, give_place_free: Callable[[], None]) -> None:
        """See one message through.

        Args:
            held: the message in hand.
            give_place_free: called when its handler is done and only something small is left to wait for.
        """
        if held.received.native_id in self._parts.returning.finished:
            if await self._parts.returning.finish(held):
                self._parts.events.emit(AlreadyHandled(held.received.native_id, self._settings.queue))
            return
        try:
            delivery = await self._open(held)
        except asyncio.CancelledError:
            await self._parts.returning.give_back(held, _STOPPED)
            raise
        if delivery is not None and await self._begun(held, delivery):
            await self._attempt(held, delivery, give_place_free)

    async def _open(self, held: Held) -> Delivery | None:
        """The message, or None: it is none, a duplicate, or not to be had now, and that was seen to."""
        if self._parts.hold.is_over(held):
            return None  # the process slept with it in hand: others may have it
        try:
            async with self._parts.attempts.keeping(held):  # a large body may take its time
                delivery = await self._parts.reception.open(held.received)
        except PoisonMessage as error:
            await self._parts.recovery.unreadable(held, error)
        except StorageError as error:  # its large body can't be had
            await self._parts.returning.unopened(held, error)
        else:
            return None if self._parts.hold.is_over(held) else delivery
        return None

    async def _begun(self, held: Held, delivery: Delivery) -> bool:
        """Whether its handler is to be asked. A stop cuts off nothing here that would double or count."""
        to_be_tried = asyncio.create_task(self._is_to_be_tried(held, delivery))
        try:
            await to_the_end(to_be_tried)
        except asyncio.CancelledError:
            if to_be_tried.result():
                await self._cut_off(held)
            raise
        return to_be_tried.result()

    async def _cut_off(self, held: Held) -> None:
        if held.is_acknowledged:
            await self._parts.returning.send_again(held, _STOPPED)
        else:
            await self._parts.returning.give_back(held, _STOPPED)

    async def _is_to_be_tried(self, held: Held, delivery: Delivery) -> bool:
        recovery = self._parts.recovery
        if await recovery.too_early(held, delivery) or await recovery.condemned(held, delivery):
            return False
        return not await self._is_over_its_limit(held, delivery) and await self._acknowledged_first(held)

    async def _is_over_its_limit(self, held: Held, delivery: Delivery) -> bool:
        """Whether it was taken so often that it should have been put off, and nobody lived to do it.

        The policy decides then, and may want it tried all the same.
        """
        failures = r.failures_now(delivery.dequeue_count, delivery.headers)
        # With at most once, what is still in the queue was never tried.
        if self._settings.ack_first or failures <= self._settings.immediate_retries + 1:
            return False
        return await self._parts.recovery.judged(held, delivery, _never_ended(delivery, failures))

    async def _acknowledged_first(self, held: Held) -> bool:
        """With at most once: delete it. False: it is not ours, or nobody knows."""
        if not self._settings.ack_first:
            return True
        try:
            ours = await self._parts.queues.ack(held.received)
        except PostdateError as error:
            await self._parts.returning.unopened(held, error)
            return False
        if ours:
            self._parts.hold.acknowledged(held)
        return ours

    async def _attempt(self, held: Held, delivery: Delivery, give_place_free: Callable[[], None]) -> None:
        failures = r.failures_now(delivery.dequeue_count, delivery.headers)
        context = MessageContext(
            delivery,
            attempts=r.attempts_before(delivery.headers) + failures,
            retries=r.retries_done(delivery.headers),
            parts=self._parts.context,
        )
        began, label = self._parts.clock.monotonic(), ""
        try:
            handler = self._parts.handlers.find(delivery.headers)
            label = handler.label
            ended = await self._parts.attempts.run(held, handler, context)
            if ended.error is None and context.outgoing:
                async with self._parts.attempts.keeping(held):
                    ended = await self._send_out(context.outgoing)
        except NoHandler as error:
            ended = Ended(error)
        except asyncio.CancelledError:
            await self._parts.returning.give_back(held, _STOPPED)
            raise
        if ended.unfinished is None:
            give_place_free()
        # Begun, it ends: cut off between the copy in the error queue and the deletion, it would double.
        seconds = self._parts.clock.monotonic() - began
        ending = self._end(
            held,
            delivery,
            ended,
            Handled(context.message_id, self._settings.queue, label, context.attempt, seconds),
        )
        await to_the_end(asyncio.create_task(ending))
        if ended.unfinished is not None:
            with self._parts.stuck.holding(label):
                await asyncio.wait({ended.unfinished})

    async def _send_out(self, outgoing: Iterable[Outgoing]) -> Ended:
        for message in outgoing:
            try:
                if message.at is None:
                    await self._parts.intake.send_now(message)
                else:
                    await self._parts.intake.schedule(message)
            except PostdateError as error:
                return Ended(error)
        return Ended()

    async def _end(self, held: Held, delivery: Delivery, ended: Ended, handled: Handled) -> None:
        if ended.error is None:
            await self._succeeded(held, delivery, handled)
        elif isinstance(ended.error, TryLater) and not self._settings.ack_first:
            await self._put_off(held, delivery, ended, ended.error)
        else:
            await self._failed(held, delivery, ended)

    async def _put_off(self, held: Held, delivery: Delivery, ended: Ended, wish: TryLater) -> None:
        now = self._parts.clock.now()
        try:
            wait_s = (due_after(wish.delay, now) - now).total_seconds()
        except UsageError as error:
            refusal = UsageError(f"TryLater: {error}")
            refusal.__cause__ = wish
            await self._failed(held, delivery, replace(ended, error=refusal))
            return
        # Whoever asks for no wait would ask again and again, as fast as the queue answers.
        await self._parts.returning.give_back(held, wish.reason, max(wait_s, 1.0))

    async def _succeeded(self, held: Held, delivery: Delivery, handled: Handled) -> None:
        if not self._settings.ack_first:
            await self._parts.returning.finish(held)
        payload = delivery.headers.get(h.PAYLOAD)
        if payload is not None:
            await self._parts.returning.drop_payload(payload)
        if self._parts.slowdown.succeeded():
            self._parts.events.emit(BackToSpeed(self._settings.queue))
        self._parts.events.emit(handled)

    async def _failed(self, held: Held, delivery: Delivery, ended: Ended) -> None:
        if self._parts.slowdown.failed():
            settings = self._settings
            self._parts.events.emit(SlowedDown(settings.queue, settings.slow_after, settings.slow_pause_s))
        if ended.error is not None:
            # A handler that goes on would soon have company: each retry takes a further place.
            await self._parts.recovery.failed(held, delivery, ended.error, retry=ended.unfinished is None)


def _never_ended(delivery: Delivery, failures: int) -> HandlerNeverEnded:
    return HandlerNeverEnded(
        f"message {delivery.message_id!r} was taken {failures} times, and each time the process ended, or "
        "lost it, before its handler did; look at what it does to the process (memory, signals, exit)"
    )
