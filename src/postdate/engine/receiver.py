"""Receives from the endpoint's queue and handles what comes: the loop, and one message from end to end.

    take  ->  open  ->  handle (hidden from others meanwhile)  ->  send what it sends  ->  acknowledge
                |          | fails                                    | fails
                poison     recovery: again, later, or the error queue

As many messages are taken as there are free places, so that each is begun at once: none waits in hand while
its visibility timeout runs out, and every time that the service hands one out is an attempt. Nothing in here
decides what becomes of a failed message (`core.recoverability`), and nothing else deletes one.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from postdate.clock import Clock
from postdate.core import recoverability as r
from postdate.core.slowdown import Slowdown
from postdate.engine.acceptance import Outgoing
from postdate.engine.attempt import Attempts, Ended
from postdate.engine.breakers import Breaker
from postdate.engine.context import ContextParts, MessageContext
from postdate.engine.expected import Expected
from postdate.engine.finished import Finished
from postdate.engine.handlers import Handlers
from postdate.engine.held import Held, Hold
from postdate.engine.intake import Intake
from postdate.engine.reception import Delivery, Reception
from postdate.engine.recovery import Recovery
from postdate.engine.tasks import to_the_end
from postdate.engine.verdicts import line_of
from postdate.engine.watchdog import Watchdog
from postdate.errors import (
    HandlerNeverEnded,
    NoHandler,
    PoisonMessage,
    PostdateError,
    StorageError,
    TryLater,
)
from postdate.events import (
    AlreadyHandled,
    BackToSpeed,
    DelayedRetryAsked,
    Event,
    Events,
    HandedOver,
    Handled,
    ReceiveFailed,
    Scheduled,
    SlowedDown,
)
from postdate.model import headers as h
from postdate.ports import QueueReceiver, Received

#: Seconds between two looks at an empty queue: they grow from the first to the setting.
_FIRST_IDLE_SECONDS = 0.05
#: Longest wait in seconds after the queue could not be read.
_FAILED_SECONDS = 10.0

_log = logging.getLogger("postdate.receiver")


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """What the receiver needs to know of the endpoint's settings."""

    queue: str
    batch: int
    concurrency: int
    visibility_s: int
    idle_s: float
    grace_s: float
    slow_after: int
    slow_pause_s: float
    immediate_retries: int
    #: Acknowledge first, then handle: no message is handled twice, and a failed one is not retried.
    ack_first: bool


@dataclass(frozen=True, slots=True)
class ReceiverParts:
    """What the receiver works with."""

    clock: Clock
    events: Events
    breaker: Breaker
    queues: QueueReceiver
    reception: Reception
    intake: Intake
    handlers: Handlers
    attempts: Attempts
    hold: Hold
    recovery: Recovery
    finished: Finished
    context: ContextParts


class Receiver:
    """Handles messages until it is stopped."""

    def __init__(self, parts: ReceiverParts, settings: ReceiverSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._slowdown = Slowdown(settings.slow_after)
        #: Messages whose handlers hold a place.
        self._working: set[asyncio.Task[None]] = set()
        #: Messages that only wait for something small: their place is free.
        self._finishing: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._expected = Expected()

    def _hear(self, event: Event) -> None:
        """Remember when messages become visible: an idle receiver looks in that moment."""
        match event:
            case HandedOver(destination=queue, due_at=due_at) | DelayedRetryAsked(queue=queue, due_at=due_at):
                pass
            case Scheduled(destination=queue, due_at=due_at, path="queue"):
                pass
            case _:
                return
        if queue == self._settings.queue:
            clock = self._parts.clock
            self._expected.add(clock.monotonic() + (due_at - clock.now()).total_seconds())

    async def run(self, stop: asyncio.Event) -> None:
        """Receive until `stop` is set; then let handlers end, for as long as the grace allows.

        Handlers that are cut off then give their messages back; nothing counts as failed.
        """
        stopping = asyncio.create_task(stop.wait(), name="postdate-receive-stop")
        loop = asyncio.create_task(self._loop(stopping), name="postdate-receive")
        try:
            with Watchdog(self._parts.events), self._parts.events.told_to(self._hear):
                await asyncio.wait({loop})
        finally:
            stopping.cancel()  # which ends the loop too
            await to_the_end(asyncio.create_task(self._wind_up(loop)))
        loop.result()

    async def _wind_up(self, loop: "asyncio.Task[None]") -> None:
        await asyncio.wait({loop})
        grace = asyncio.create_task(self._parts.clock.sleep(self._settings.grace_s))
        ending = asyncio.gather(*self._working, *self._finishing, return_exceptions=True)
        either: set[asyncio.Future[Any]] = {ending, grace}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        grace.cancel()
        for task in (*self._working, *self._finishing):
            task.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        self._parts.attempts.close()

    # --- the loop ---------------------------------------------------------------------------------

    async def _loop(self, stopping: "asyncio.Task[bool]") -> None:
        """Take messages until `stopping` is done. A receive under way is awaited: it may bring messages."""
        idle, failures = _FIRST_IDLE_SECONDS, 0
        while not stopping.done():
            free = self._free_places()
            if not free:
                self._freed.clear()
                await _first(stopping, self._freed.wait())
                continue
            if self._slowdown.active:  # before a message is taken, not with it in hand
                await self._pause(stopping, self._settings.slow_pause_s)
                if stopping.done():
                    return
            try:
                taken = await self._take(free)
            except PostdateError as error:
                failures += 1
                wait = min(_FAILED_SECONDS, 0.5 * 2.0 ** min(failures, 10))
                self._parts.events.emit(ReceiveFailed(self._settings.queue, line_of(error), wait))
                await self._pause(stopping, wait)
                continue
            failures = 0
            if taken:
                idle = _FIRST_IDLE_SECONDS
            else:
                now = self._parts.clock.monotonic()
                await self._pause(stopping, self._expected.wait(now, at_most=idle))
                idle = min(self._settings.idle_s, idle * 1.5)

    async def _pause(self, stopping: "asyncio.Task[bool]", seconds: float) -> None:
        await _first(stopping, self._parts.clock.sleep(seconds))

    def _free_places(self) -> int:
        """How many messages may be taken now."""
        if len(self._finishing) > 4 * self._settings.concurrency:
            return 0
        places = 1 if self._slowdown.active else self._settings.concurrency
        return max(0, places - len(self._working))

    async def _take(self, free: int) -> int:
        """Begin with as many messages as there are places; how many came."""
        batch = self._settings.batch
        counts = [min(batch, free - taken) for taken in range(0, free, batch)]
        began = self._parts.clock.monotonic()
        queue, visibility_s = self._settings.queue, self._settings.visibility_s
        take = partial(self._parts.queues.receive, queue, visibility_s=visibility_s)
        watched = self._parts.breaker.around
        receives = [asyncio.create_task(watched(take(count=count))) for count in counts]
        try:
            pages = await asyncio.gather(*receives)
        except BaseException:
            # What the others brought is hidden from everybody for a while, and comes back by itself.
            for receive in receives:
                receive.cancel()
            raise
        messages = [received for page in pages for received in page]
        for received in messages:
            self._begin(received, began)
        return len(messages)

    def _begin(self, received: Received, asked_at: float) -> None:
        held = self._parts.hold.take(received, asked_at)
        task = asyncio.create_task(self._handle(held), name=f"postdate-message {received.native_id}")
        self._working.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._working.discard(task)
        self._finishing.discard(task)
        self._freed.set()
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a mistake of ours; the message comes back when its visibility timeout is over
            _log.error("handling a message failed", exc_info=error)

    def _give_place_free(self) -> None:
        task = asyncio.current_task()
        if task is not None and task in self._working:
            self._working.discard(task)
            self._finishing.add(task)
            self._freed.set()

    # --- one message ------------------------------------------------------------------------------

    async def _handle(self, held: Held) -> None:
        parts = self._parts
        if held.received.native_id in parts.finished:
            if await parts.recovery.finish(held):
                parts.events.emit(AlreadyHandled(held.received.native_id, self._settings.queue))
            return
        if parts.hold.is_over(held):
            return  # the process slept with it in hand: others may have it
        try:
            delivery = await parts.reception.open(held.received)
        except PoisonMessage as error:
            await parts.recovery.unreadable(held, error)
            return
        except StorageError as error:  # its large body can't be had
            await parts.recovery.try_later(held, held.received.native_id, error)
            return
        if delivery is None:
            return
        if await parts.recovery.too_early(held, delivery) or await parts.recovery.condemned(held, delivery):
            return
        await self._attempt(held, delivery)

    async def _attempt(self, held: Held, delivery: Delivery) -> None:
        parts, recovery = self._parts, self._parts.recovery
        failures = r.failures_now(delivery.dequeue_count, delivery.headers)
        if failures > self._settings.immediate_retries + 1:
            # As often as it was handed out it should have been put off, and nobody lived to do it.
            await recovery.failed(held, delivery, _never_ended(delivery, failures))
            return
        context = MessageContext(
            delivery,
            attempts=r.attempts_before(delivery.headers) + failures,
            retries=r.retries_done(delivery.headers),
            parts=parts.context,
        )
        if self._settings.ack_first and not await parts.queues.ack(held.received):
            return
        began = parts.clock.monotonic()
        label = ""
        try:
            handler = parts.handlers.find(delivery.headers)
            label = handler.label
            ended = await parts.attempts.run(held, handler, context)
            if ended.error is None:
                ended = await self._send_out(context.outgoing)
        except NoHandler as error:
            ended = Ended(error)
        except asyncio.CancelledError:
            await recovery.give_back(held, delivery, "the process stops")
            raise
        if ended.error is None:
            await self._succeeded(held, delivery, context, label, parts.clock.monotonic() - began)
            return
        if ended.unfinished is None:
            self._give_place_free()
        await self._failed(held, delivery, ended.error)
        if ended.unfinished is not None:
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

    async def _succeeded(
        self, held: Held, delivery: Delivery, context: MessageContext, label: str, seconds: float
    ) -> None:
        queue = self._settings.queue
        if not self._settings.ack_first:
            await self._parts.recovery.finish(held)
        payload = delivery.headers.get(h.PAYLOAD)
        if payload is not None:
            await self._parts.recovery.drop_payload(payload)
        if self._slowdown.succeeded():
            self._parts.events.emit(BackToSpeed(queue))
        self._parts.events.emit(Handled(context.message_id, queue, label, context.attempt, seconds))

    async def _failed(self, held: Held, delivery: Delivery, error: BaseException) -> None:
        if isinstance(error, TryLater) and not self._settings.ack_first:
            await self._parts.recovery.give_back(held, delivery, error.reason, error.delay)
            return
        if self._slowdown.failed():
            settings = self._settings
            self._parts.events.emit(SlowedDown(settings.queue, settings.slow_after, settings.slow_pause_s))
        await self._parts.recovery.failed(held, delivery, error)


def _never_ended(delivery: Delivery, failures: int) -> HandlerNeverEnded:
    return HandlerNeverEnded(
        f"message {delivery.message_id!r} was taken {failures} times, and each time the process ended, or "
        "lost it, before its handler did; look at what it does to the process (memory, signals, exit)"
    )


async def _first(stopping: "asyncio.Task[bool]", waiting: Coroutine[Any, Any, Any]) -> None:
    """Wait for the one or the other."""
    other = asyncio.create_task(waiting)
    try:
        await asyncio.wait({stopping, other}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        other.cancel()
