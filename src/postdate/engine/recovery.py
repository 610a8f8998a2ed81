"""Carrying out what was decided of a failed message: a crash at any point loses and doubles nothing.

A retry is one request: the message's text (with its counters in the headers) and its visibility change
together, under its pop receipt. There is no copy that could be there twice, and whoever lost the message
meanwhile changes nothing. Only a copy for the error queue is sent before its original is deleted.
"""

import math
from dataclasses import replace
from datetime import timedelta

from postdate.clock import Clock
from postdate.core import recoverability as r
from postdate.engine.fitting import Fitting
from postdate.engine.handover import WAKE_SECONDS
from postdate.engine.held import Held, Hold
from postdate.engine.reception import Delivery
from postdate.engine.returning import Returning
from postdate.engine.verdicts import Verdicts, with_verdict
from postdate.errors import DestinationNotFound, InvalidDestination, MessageTooLarge, PostdateError
from postdate.events import (
    DelayedRetryAsked,
    ErrorQueueRefused,
    Event,
    Events,
    ImmediateRetryAsked,
    MessageDiscarded,
    MessageFailed,
    PoisonMoved,
    PolicyFailed,
)
from postdate.model import headers as h
from postdate.model.envelope import wrap
from postdate.model.error_text import line_of
from postdate.model.inbox import first_instant
from postdate.model.message import Message
from postdate.ports import Backend


class Recovery:
    """Puts messages back, off, or away, as was decided."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        verdicts: Verdicts,
        fitting: Fitting,
        hold: Hold,
        returning: Returning,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._events = events
        self._verdicts = verdicts
        self._fitting = fitting
        self._hold = hold
        self._returning = returning

    # --- back into the queue ----------------------------------------------------------------------

    async def too_early(self, held: Held, delivery: Delivery) -> bool:
        """Hide a delayed retry again that is longer than a queue can hide. False: it is no such message."""
        not_before = delivery.instant(h.NOT_BEFORE)
        if not_before is None or self._clock.now() >= not_before:
            return False
        left = (not_before - self._clock.now()).total_seconds()
        await self._returning.give_back(held, "its delayed retry is not due yet", left)
        return True

    async def failed(
        self, held: Held, delivery: Delivery, error: BaseException, *, retry: bool = True
    ) -> None:
        """Decide what becomes of a message whose handler failed, and do it.

        What can't be done leaves the message in its queue, hidden for a while that grows.

        Args:
            held: the message in hand.
            delivery: the message.
            error: what its handler raised.
            retry: False: it must not be tried again, whatever the policy says.
        """
        context = self._verdicts.context(delivery, error)
        action = self._verdicts.decide(context)
        if not retry and isinstance(action, r.ImmediateRetry | r.DelayedRetry):
            action = r.MoveToError()
        await self._do(held, delivery, context, action)

    async def judged(self, held: Held, delivery: Delivery, error: BaseException) -> bool:
        """Decide on a message whose handler is not asked. False: it is to be tried at once, so do."""
        context = self._verdicts.context(delivery, error)
        # What counts are the attempts before: this one was not made.
        made, in_all = context.immediate_failures - 1, context.attempts - 1
        context = replace(context, immediate_failures=made, attempts=in_all)
        action = self._verdicts.decide(context)
        if isinstance(action, r.ImmediateRetry):
            return False
        await self._do(held, delivery, context, action)
        return True

    async def _do(self, held: Held, delivery: Delivery, context: r.ErrorContext, action: r.Action) -> None:
        if isinstance(action, r.MoveToError):
            await self._move(held, delivery, context, self._verdicts.error_queue(action))
            return
        try:
            done = await self._carry_out(held, delivery, context, action)
        except MessageTooLarge as refusal:  # it takes no counter more, and would come again for ever
            self._events.emit(PolicyFailed(context.message_id, f"{refusal}; it goes to the error queue"))
            await self._move(held, delivery, context, self._verdicts.own_error_queue)
            return
        except PostdateError as refusal:
            await self._returning.try_later(held, delivery.message_id, refusal)
            return
        self._returning.well()
        if done:  # else somebody else has the message, and decides
            self._events.emit(_told(context, held.received.queue, action))

    async def _carry_out(
        self,
        held: Held,
        delivery: Delivery,
        context: r.ErrorContext,
        action: r.ImmediateRetry | r.DelayedRetry | r.Discard,
    ) -> bool:
        if isinstance(action, r.ImmediateRetry):
            return await self._hold.put_back(held)
        if isinstance(action, r.DelayedRetry):
            return await self._put_off(held, delivery, context, action.delay)
        done = held.is_acknowledged or await self._backend.receiver.ack(held.received)
        payload = delivery.headers.get(h.PAYLOAD)
        if done and payload is not None:
            await self._returning.drop_payload(payload)
        return done

    async def _put_off(
        self, held: Held, delivery: Delivery, context: r.ErrorContext, delay: timedelta
    ) -> bool:
        began = self._clock.monotonic()
        # A queue hides for whole seconds: a fraction is waited for here, with the message in hand.
        fraction = delay.total_seconds() % 1.0
        if fraction and held.hidden_until - began > fraction + 1.0:
            await self._clock.pause(fraction + WAKE_SECONDS)
        due_at = context.now + delay
        hidden_s = math.ceil(delay.total_seconds() - (self._clock.monotonic() - began) - WAKE_SECONDS)
        headers = {
            h.RETRIES: str(context.delayed_retries + 1),
            h.RETRIES_TIMESTAMP: h.format_instant(context.now),
            h.DELIVER_AT: h.format_instant(due_at),
            h.FIRST_INSTANT: h.format_instant(first_instant(delivery.headers, held.received.inserted_at)),
            h.ATTEMPTS: str(context.attempts),
            h.UNCOUNTED: str(held.received.dequeue_count),
        }
        return await self._returning.put_back(held, delivery.message, hidden_s, headers)

    # --- to the error queue -----------------------------------------------------------------------

    async def condemned(self, held: Held, delivery: Delivery) -> bool:
        """Move a message of which that was decided before, and not done. False: it is no such message."""
        queue = delivery.headers.get(h.CONDEMNED)
        if queue is None:
            return False
        headers = {k: v for k, v in delivery.headers.items() if k not in h.RETRY_HEADERS}
        copy = replace(delivery.message, headers=headers)
        kind = (headers.get(h.EXCEPTION_TYPE) or "").rpartition(".")[2]
        told = [text for text in (kind, headers.get(h.EXCEPTION_MESSAGE)) if text]
        reason = ": ".join(told) or "decided before"
        await self._move_copy(held, delivery, copy, queue, r.attempts_before(headers), reason)
        return True

    async def _move(self, held: Held, delivery: Delivery, context: r.ErrorContext, queue: str) -> None:
        copy = self._verdicts.faulty(delivery, context)
        await self._move_copy(held, delivery, copy, queue, context.attempts, line_of(context.error))

    async def _move_copy(
        self, held: Held, delivery: Delivery, copy: Message, queue: str, attempts: int, reason: str
    ) -> None:
        try:
            copy = await self._fitting(copy, queue)
            queue = await self._send(delivery, copy, queue)
        except PostdateError as refusal:
            hidden_s = await self._returning.hide(held, refusal, with_verdict(delivery, copy, queue))
            self._refused(delivery.message_id, queue, refusal, hidden_s)
            return
        self._returning.well()
        await self._returning.finish(held)
        self._events.emit(MessageFailed(delivery.message_id, held.received.queue, queue, attempts, reason))

    async def _send(self, delivery: Delivery, copy: Message, queue: str) -> str:
        """Where it went: the endpoint's error queue, where the policy's own is not there."""
        try:
            await self._send_what_fits(delivery, copy, queue)
        except (DestinationNotFound, InvalidDestination) as error:
            own = self._verdicts.own_error_queue
            if queue == own:
                raise
            self._events.emit(PolicyFailed(copy.message_id, f"{error} Moved to {own!r} instead."))
            await self._send_what_fits(delivery, copy, own)
            return own
        return queue

    async def _send_what_fits(self, delivery: Delivery, copy: Message, queue: str) -> None:
        """With all fault headers; else with the two that matter; else as it came (nservicebus-azure, 2.4)."""
        whole = delivery.message
        kept = {name: value for name, value in whole.headers.items() if name not in h.RETRY_HEADERS}
        least = {name: copy.headers.get(name) for name in (h.FAILED_QUEUE, h.EXCEPTION_TYPE)}
        texts = wrap(copy), wrap(replace(whole, headers={**kept, **least})), delivery.received.text
        for text in texts[:-1]:
            try:
                await self._backend.sender.send(queue, text)
            except MessageTooLarge:
                continue
            return
        await self._backend.sender.send(queue, texts[-1])

    def _refused(
        self, message_id: str, error_queue: str, refusal: PostdateError, hidden_s: int | None
    ) -> None:
        again_at = None if hidden_s is None else self._clock.now() + timedelta(seconds=hidden_s)
        self._events.emit(ErrorQueueRefused(message_id, error_queue, line_of(refusal), again_at))

    async def unreadable(self, held: Held, error: PostdateError) -> None:
        """Move what is no message, as it is, to the error queue, where it never expires."""
        received, error_queue = held.received, self._verdicts.own_error_queue
        try:
            await self._backend.sender.send(error_queue, received.text)
        except PostdateError as refusal:
            hidden_s = await self._returning.hide(held, refusal, None)
            self._refused(received.native_id, error_queue, refusal, hidden_s)
            return
        self._returning.well()
        await self._returning.finish(held)
        self._events.emit(PoisonMoved(received.native_id, received.queue, error_queue, line_of(error)))


def _told(context: r.ErrorContext, queue: str, action: r.Action) -> Event:
    message_id, attempts, error = context.message_id, context.attempts, line_of(context.error)
    if isinstance(action, r.DelayedRetry):
        retry, due_at = context.delayed_retries + 1, context.now + action.delay
        return DelayedRetryAsked(
            message_id, queue, attempts, retry, action.delay.total_seconds(), due_at, error
        )
    if isinstance(action, r.Discard):
        return MessageDiscarded(message_id, queue, attempts, action.reason)
    return ImmediateRetryAsked(message_id, queue, attempts, error)
