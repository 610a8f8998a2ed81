"""One attempt to handle a message: its handler runs, and meanwhile the message is kept hidden."""

import asyncio
import contextvars
import inspect
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from postdate.clock import Clock
from postdate.engine.context import MessageContext
from postdate.engine.handlers import Handler
from postdate.engine.held import Held, Hold
from postdate.engine.watchdog import where_is, where_waits
from postdate.errors import HandlerTimeout, PostdateError
from postdate.events import Events, HandlerAbandoned, HandlerSlow
from postdate.model.typed_body import decode_body

#: Seconds until the first word about a slow handler; then twice as many each time.
_SLOW_SECONDS = 60.0
#: Seconds that a cancelled handler has to end.
_GRACE_SECONDS = 5.0
#: Seconds that are none: the rounding of sums of them.
_INSTANT = 1e-6


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended."""

    #: What the handler raised; None: it succeeded.
    error: BaseException | None = None
    #: It goes on although its time is over; whoever counts places counts its place until it is done.
    unfinished: "asyncio.Task[Any] | None" = None


@dataclass(frozen=True, slots=True)
class _Returned:
    """What a function in a thread came to."""

    value: Any
    error: BaseException | None = None


class _Work:
    """A handler at work: an async one on the loop, a plain one in a thread of its own."""

    def __init__(self, handler: Handler, body: Any, context: MessageContext) -> None:
        self.handler = handler
        self.message_id = context.message_id
        self._arguments = (body, context) if handler.takes_context else (body,)
        self._thread: threading.Thread | None = None
        self.task: asyncio.Task[Any] = asyncio.create_task(self._run(), name=f"handler {handler.label}")

    @property
    def in_thread(self) -> bool:
        """Whether a thread works, which can't be cancelled."""
        return self._thread is not None

    async def _run(self) -> Any:
        if self.handler.is_async:
            return await self.handler.function(*self._arguments)
        result = await self._threaded()
        # A plain function that was put around an async one returns what is still to be done.
        return await result if inspect.isawaitable(result) else result

    async def _threaded(self) -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Returned] = loop.create_future()

        def tell(returned: _Returned) -> None:
            if not done.done():
                done.set_result(returned)

        def work() -> None:
            returned = self._called()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, returned)

        # A daemon, so that a handler that hangs doesn't keep the process from ending.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(work,), name="postdate-handler", daemon=True
        )
        self._thread.start()
        # Shielded: cancelled or not, this task tells whether the thread still works.
        returned = await asyncio.shield(done)
        self._thread = None
        if returned.error is None:
            return returned.value
        if isinstance(returned.error, Exception) and not isinstance(returned.error, StopIteration):
            raise returned.error
        # These would end the loop, or can't be raised through it (StopIteration).
        raise PostdateError(f"handler {self.handler.label} raised {returned.error!r}") from returned.error

    def _called(self) -> _Returned:
        try:
            return _Returned(self.handler.function(*self._arguments))
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit must not go unheard
            return _Returned(None, error)

    def where(self) -> str:
        """The lines that it is at, innermost first."""
        if self._thread is not None and self._thread.ident is not None:
            return where_is(self._thread.ident)
        return where_waits(self.task.get_coro())

    def error(self) -> BaseException | None:
        """What it raised. A handler that cancels itself has failed: nobody asked it to stop."""
        if self.task.cancelled():
            return PostdateError(f"handler {self.handler.label} cancelled itself")
        return self.task.exception()


class Attempts:
    """Runs handlers: async ones on the loop, plain ones in threads."""

    def __init__(self, clock: Clock, events: Events, hold: Hold, *, timeout_s: float) -> None:
        self._clock = clock
        self._events = events
        self._hold = hold
        self._timeout_s = timeout_s or math.inf

    @asynccontextmanager
    async def keeping(self, held: Held) -> AsyncIterator[None]:
        """Keep a message hidden for the length of a block."""
        keeper = asyncio.create_task(self._keep(held), name="postdate-keeper")
        try:
            yield
        finally:
            keeper.cancel()
            await self._hold.settle(held)

    async def _keep(self, held: Held) -> None:
        while True:
            looks = self._hold.next_look(held)
            await self._clock.sleep(looks - self._clock.monotonic())
            await self._hold.prolong(held)

    async def run(self, held: Held, handler: Handler, context: MessageContext) -> Ended:
        """Run the handler to its end, or to the end of its time. Nothing is raised but a cancellation."""
        try:
            body = decode_body(context.delivery.body, handler.wanted)
        except PostdateError as error:
            return Ended(error)
        work = _Work(handler, body, context)
        minder = asyncio.create_task(self._mind(held, work), name="postdate-minder")
        try:
            await asyncio.wait({work.task, minder}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cut(work)
            raise
        finally:
            minder.cancel()
            await self._hold.settle(held)
        if work.task.done():
            return Ended(work.error())
        await self._cut(work)
        taken = f"handler {handler.label} took longer than {self._timeout_s:g} s (POSTDATE_HANDLER_TIMEOUT)"
        return Ended(HandlerTimeout(taken), None if work.task.done() else work.task)

    async def _mind(self, held: Held, work: _Work) -> None:
        """Prolong, warn, and end at the deadline."""
        began = self._clock.monotonic()
        deadline, warn_after = began + self._timeout_s, _SLOW_SECONDS
        while True:
            now = self._clock.monotonic()
            if deadline - now < _INSTANT:
                return
            looks = self._hold.next_look(held)
            await self._clock.sleep(min(looks, deadline, began + warn_after) - now)
            now = self._clock.monotonic() + _INSTANT
            if now >= looks:
                await self._hold.prolong(held)
            if now >= began + warn_after:
                worked_s = round(now - began, 3)
                self._events.emit(HandlerSlow(work.message_id, work.handler.label, worked_s, work.where()))
                warn_after *= 2

    async def _cut(self, work: _Work) -> None:
        """Cancel what can be cancelled, and give it some time to end."""
        if not work.in_thread:
            work.task.cancel()
            grace = asyncio.create_task(self._clock.sleep(_GRACE_SECONDS))
            try:
                await asyncio.wait({work.task, grace}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                grace.cancel()
        if not work.task.done():
            self._events.emit(HandlerAbandoned(work.message_id, work.handler.label, work.where()))
