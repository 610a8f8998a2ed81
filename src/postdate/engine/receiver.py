"""Receives from the endpoint's queue: the loop that takes messages and lets each be handled.

As many messages are taken as there are free places, so that each is begun at once: none waits in hand while
its visibility timeout runs out, and every time that the service hands one out is an attempt.
"""

import asyncio
import logging
import math
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from postdate.clock import Clock, wait_for
from postdate.core.slowdown import Slowdown
from postdate.engine.breakers import Breaker
from postdate.engine.expected import Expected
from postdate.engine.handling import Handling
from postdate.engine.handover import WAKE_SECONDS
from postdate.engine.held import Hold
from postdate.engine.stuck import Stuck
from postdate.engine.tasks import to_the_end
from postdate.engine.watchdog import Watchdog
from postdate.errors import PostdateError
from postdate.events import (
    DelayedRetryAsked,
    Event,
    Events,
    HandedOver,
    ImmediateRetryAsked,
    MessageReturned,
    ReceiveFailed,
    Scheduled,
)
from postdate.model.error_text import line_of
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
    slow_pause_s: float


@dataclass(frozen=True, slots=True)
class ReceiverParts:
    """What the receiver works with."""

    clock: Clock
    events: Events
    breaker: Breaker
    queues: QueueReceiver
    hold: Hold
    handling: Handling
    slowdown: Slowdown
    stuck: Stuck


class Receiver:
    """Handles messages until it is stopped."""

    def __init__(self, parts: ReceiverParts, settings: ReceiverSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._slowdown = parts.slowdown
        #: Messages whose handlers hold a place.
        self._working: set[asyncio.Task[None]] = set()
        #: Messages that only wait for something small: their place is free.
        self._finishing: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        parts.stuck.on_change = self._freed.set
        self._expected = Expected()
        #: The next look of one who rests, and that something is to be seen before.
        self._looks_at = 0.0
        self._sooner = asyncio.Event()

    def _hear(self, event: Event) -> None:
        """Remember when messages become visible: an idle receiver looks in that moment."""
        clock = self._parts.clock
        match event:
            case HandedOver(destination=queue, hidden_for=hidden_s):
                pass
            case Scheduled(destination=queue, path="queue", hidden_for=hidden_s):
                pass
            case MessageReturned(queue=queue, delay_s=hidden_s):
                pass
            case DelayedRetryAsked(queue=queue, due_at=due_at):
                hidden_s = (due_at - clock.now()).total_seconds()
            case ImmediateRetryAsked(queue=queue):
                hidden_s = 0.0
            case _:
                return
        if queue == self._settings.queue:
            # A queue hides for whole seconds, from a request on that has just been answered: not from when it
            # was asked for, or a slow one would let it be looked for too early, and then long after.
            at = clock.monotonic() + max(0, math.ceil(hidden_s - WAKE_SECONDS))
            self._expected.add(at)
            if at < self._looks_at:
                self._sooner.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Receive until `stop` is set; then let handlers end, for as long as the grace allows.

        Handlers that are cut off then give their messages back; nothing counts as failed.
        """
        stopping = asyncio.create_task(stop.wait(), name="postdate-receive-stop")
        loop = asyncio.create_task(self._loop(stopping), name="postdate-receive")
        try:
            with Watchdog(self._parts.events), self._parts.events.told_to(self._hear):
                await asyncio.wait({loop, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()  # which ends the loop too
            await to_the_end(asyncio.create_task(self._wind_up(loop)))
        if not loop.cancelled():
            loop.result()

    async def _wind_up(self, loop: "asyncio.Task[None]") -> None:
        grace = asyncio.create_task(self._parts.clock.sleep(self._settings.grace_s))
        # A receive under way may have hidden messages by now: aborted, each would be an attempt that nobody
        # made. An empty queue answers at once, so only a service that hangs is waited for in vain.
        await asyncio.wait({loop, grace}, return_when=asyncio.FIRST_COMPLETED)
        loop.cancel()
        await asyncio.wait({loop})
        # Messages of handlers that go on past their time are seen to.
        tasks = {*self._working, *self._finishing}
        going = (task for task in tasks if task not in self._parts.stuck)
        ending = asyncio.gather(*going, return_exceptions=True)
        either: set[asyncio.Future[Any]] = {ending, grace}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        grace.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(ending, *tasks, return_exceptions=True)

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
                # Just now it was empty: one request tells whether it still is, however many places are free.
                quiet = idle > _FIRST_IDLE_SECONDS
                taken = await self._take(min(free, self._settings.batch) if quiet else free)
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
                await self._rest(stopping, idle)
                idle = min(self._settings.idle_s, idle * 1.5)

    async def _rest(self, stopping: "asyncio.Task[bool]", idle: float) -> None:
        """Wait for so many seconds, or until a message becomes visible."""
        ends, expected = self._parts.clock.monotonic() + idle, True
        while expected and not stopping.done():
            self._sooner.clear()
            now = self._parts.clock.monotonic()
            wait = self._expected.wait(now, at_most=ends - now)
            self._looks_at = now + wait
            await _first(stopping, wait_for(self._sooner, wait, self._parts.clock))
            expected = self._sooner.is_set()

    async def _pause(self, stopping: "asyncio.Task[bool]", seconds: float) -> None:
        await _first(stopping, self._parts.clock.sleep(seconds))

    def _free_places(self) -> int:
        """How many messages may be taken now."""
        if len(self._finishing) > 4 * self._settings.concurrency:
            return 0
        working = len(self._working)
        free = self._settings.concurrency - working
        if self._slowdown.active:  # one at a time, beside what goes on for ever
            free = min(free, 1 - (working - len(self._parts.stuck)))
        return max(0, free)

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
            answers = await asyncio.gather(*receives, return_exceptions=True)
        except asyncio.CancelledError:
            for receive in receives:
                receive.cancel()
            raise
        messages = [received for page in answers if not isinstance(page, BaseException) for received in page]
        for received in messages:  # what came is begun, although another receive failed
            self._begin(received, began)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return len(messages)

    def _begin(self, received: Received, asked_at: float) -> None:
        held = self._parts.hold.take(received, asked_at)
        task = asyncio.create_task(
            self._parts.handling.handle(held, self._give_place_free),
            name=f"postdate-message {received.native_id}",
        )
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


async def _first(stopping: "asyncio.Task[bool]", waiting: Coroutine[Any, Any, Any]) -> None:
    """Wait for the one or the other."""
    other = asyncio.create_task(waiting)
    try:
        await asyncio.wait({stopping, other}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        other.cancel()
