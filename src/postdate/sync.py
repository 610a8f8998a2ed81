"""The same endpoint for synchronous code: one engine, on an event loop in a background thread.

    from postdate.sync import Endpoint

    with Endpoint("Contoso.Orders") as endpoint:
        handle = endpoint.schedule("invoices", {"order": 7}, delay=60)

Every call hands its coroutine to that loop and waits; there is no logic here. An endpoint may be used by any
number of threads.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from postdate.endpoint import Endpoint as AsyncEndpoint
from postdate.engine.acceptance import Outgoing
from postdate.engine.bulk import OnProgress, ScheduledMany, ScheduleOutcome
from postdate.engine.changes import CancelOutcome, RescheduleResult
from postdate.engine.lookup import ScheduledMessage
from postdate.engine.passes import PassResult
from postdate.engine.reception import Delivery as AsyncDelivery
from postdate.settings import Settings

T = TypeVar("T")
_END = object()


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="postdate-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end; an interrupt (Ctrl-C) cancels it there too, and waits for its clean-up."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                self.start(_turn()).result()
            raise

    def close(self) -> None:
        # All on its own thread: the caller's may be running a loop (a notebook's does).
        self.call(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _turn() -> None:
    """Give the loop a turn."""


class Delivery:
    """A delivery whose `ack` and `nack` are plain calls; everything else as `postdate.Delivery`."""

    def __init__(self, delivery: AsyncDelivery, loop: _Loop) -> None:
        self._delivery = delivery
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)

    def __repr__(self) -> str:
        return repr(self._delivery)

    def ack(self) -> bool:
        """It is done with: delete it. False: it took too long, and the message may come again."""
        return self._loop.call(self._delivery.ack())

    def nack(self, delay: timedelta = timedelta(0)) -> bool:
        """Make it visible again after a delay. False: it is visible already."""
        return self._loop.call(self._delivery.nack(delay))


class Endpoint:
    """`postdate.Endpoint` without `await`. Arguments, answers and errors are the same."""

    def __init__(self, name_or_settings: str | Settings | None = None, **options: Any) -> None:
        """See `postdate.Endpoint`."""
        self._endpoint = AsyncEndpoint(name_or_settings, **options)
        self._stack = ExitStack()
        self._running: _Loop | None = None
        self._stop = asyncio.Event()

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self._endpoint.settings

    @property
    def _loop(self) -> _Loop:
        if self._running is None:
            _ = self._endpoint.parts  # raises: the endpoint is not open
            raise AssertionError("unreachable")
        return self._running

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            loop = _Loop()
            stack.callback(loop.close)
            loop.call(self._endpoint.__aenter__())
            stack.callback(lambda: loop.call(self._endpoint.__aexit__(None, None, None)))
            self._stack = stack.pop_all()
        self._running = loop
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running = None
        self._stack.close()

    def setup(self, *queues: str, timeout_manager: bool = False, inbox: bool = False) -> list[str]:
        """Create what is missing; what this call created."""
        return self._loop.call(self._endpoint.setup(*queues, timeout_manager=timeout_manager, inbox=inbox))

    def schedule(
        self,
        destination: str,
        body: Any,
        *,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        headers: Mapping[str, str | None] | None = None,
        message_id: str | None = None,
        expires_after: timedelta | float | str | None = None,
    ) -> str:
        """Deliver a message when it is due, at least once; its handle."""
        return self._loop.call(
            self._endpoint.schedule(
                destination,
                body,
                delay=delay,
                at=at,
                headers=headers,
                message_id=message_id,
                expires_after=expires_after,
            )
        )

    def schedule_many(
        self, messages: Iterable[Outgoing], *, progress: OnProgress | None = None
    ) -> ScheduledMany:
        """Schedule many; a refused one is reported by its index.

        `messages` is read, and `progress` called, on the engine's thread.
        """
        return self._loop.call(self._endpoint.schedule_many(messages, progress=progress))

    def schedule_each(self, messages: Iterable[Outgoing]) -> Iterator[ScheduleOutcome]:
        """Schedule any number of messages, which are read on the engine's thread; what becomes of each."""
        loop = self._loop
        return _iterate(loop, self._endpoint.schedule_each(messages))

    def send(
        self,
        destination: str,
        body: Any,
        *,
        headers: Mapping[str, str | None] | None = None,
        message_id: str | None = None,
        expires_after: timedelta | float | str | None = None,
    ) -> str:
        """Put a message on its destination now; its message id."""
        return self._loop.call(
            self._endpoint.send(
                destination,
                body,
                headers=headers,
                message_id=message_id,
                expires_after=expires_after,
            )
        )

    def cancel(self, handle: str) -> CancelOutcome:
        """Withdraw a message: `cancelled`, `too late` or `unknown`."""
        return self._loop.call(self._endpoint.cancel(handle))

    def reschedule(
        self,
        handle: str,
        *,
        at: datetime | None = None,
        delay: timedelta | float | str | None = None,
    ) -> RescheduleResult:
        """Give a message another due time; the result holds its new handle."""
        return self._loop.call(self._endpoint.reschedule(handle, at=at, delay=delay))

    def get(self, handle: str) -> ScheduledMessage | None:
        """A message as it waits, or None."""
        return self._loop.call(self._endpoint.get(handle))

    def upcoming(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        destination: str | None = None,
        limit: int | None = None,
    ) -> Iterator[ScheduledMessage]:
        """Waiting messages in due order, read page by page."""
        loop = self._loop
        return _iterate(
            loop,
            self._endpoint.upcoming(start=start, end=end, destination=destination, limit=limit),
        )

    def handler(self, wanted: Any = None, *, names: Iterable[str] = ()) -> Any:
        """Register a function for the messages of the endpoint's queue; a plain one runs in a thread."""
        return self._endpoint.handler(wanted, names=names)

    def timeout_handler(self, wanted: Any = None, *, names: Iterable[str] = ()) -> Any:
        """Register a function for the timeouts of sagas."""
        return self._endpoint.timeout_handler(wanted, names=names)

    def is_handler(self, function: Any) -> bool:
        """See `postdate.Endpoint.is_handler`."""
        return self._endpoint.is_handler(function)

    def run(self) -> None:
        """Serve until interrupted (Ctrl-C) or until another thread calls `stop`."""
        self._loop.call(self._serve())

    async def _serve(self) -> None:
        try:
            await self._endpoint.run(self._stop)
        finally:
            self._stop = asyncio.Event()

    def stop(self) -> None:
        """Make `run` in another thread return, its work finished; before `run`, it returns at once."""
        self._loop.call(self._set_stop())

    async def _set_stop(self) -> None:
        self._stop.set()

    def deliver_due(self) -> PassResult:
        """One pass: hand over what is due within the lookahead, if no other process leads."""
        return self._loop.call(self._endpoint.deliver_due())

    def receive(
        self, queue: str | None = None, *, idle: timedelta | None = None, batch: int | None = None
    ) -> Iterator[Delivery]:
        """Deliveries from a queue as they come; ends when it was empty for `idle`."""
        loop = self._loop
        deliveries = _iterate(loop, self._endpoint.receive(queue, idle=idle, batch=batch))
        return (Delivery(delivery, loop) for delivery in deliveries)


def _iterate(loop: _Loop, items: AsyncIterator[T]) -> Iterator[T]:
    async def advance() -> Any:
        return await anext(items, _END)

    try:
        while (item := loop.call(advance())) is not _END:
            yield item
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            loop.call(close())
