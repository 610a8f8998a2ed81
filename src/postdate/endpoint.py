"""The endpoint: what users hold. Send, schedule, cancel, look up, serve, receive."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from postdate.clock import Clock
from postdate.compose import Parts, open_parts
from postdate.engine.acceptance import Outgoing
from postdate.engine.breakers import OnCriticalError
from postdate.engine.bulk import OnProgress, ScheduledMany, ScheduleOutcome
from postdate.engine.changes import CancelOutcome, RescheduleResult
from postdate.engine.lookup import ScheduledMessage
from postdate.engine.passes import PassResult
from postdate.engine.provisioning import create_missing
from postdate.engine.receiving import make_receiver, need_delays
from postdate.engine.reception import Delivery
from postdate.engine.registration import Registration
from postdate.engine.together import Run, run_together
from postdate.engine.verdicts import Recoverability
from postdate.errors import ConfigurationError, DestinationNotFound
from postdate.events import Observer
from postdate.ports import DelayedStore
from postdate.settings import Settings, load_settings

if TYPE_CHECKING:
    from postdate.backends.azure_storage.clients import WrapTransport
    from postdate.backends.memory import MemoryAccount


class Endpoint(Registration):
    """An endpoint on a storage account. Use it as an async context manager.

        async with Endpoint("Contoso.Orders") as endpoint:
            handle = await endpoint.schedule("invoices", {"order": 7}, delay=timedelta(days=14))

    Any number of processes may open the same endpoint; those that `run()` elect one leader.
    """

    def __init__(
        self,
        name_or_settings: str | Settings | None = None,
        *,
        clock: Clock | None = None,
        observers: Iterable[Observer] = (),
        memory: "MemoryAccount | None" = None,
        wrap_transport: "WrapTransport | None" = None,
        recoverability: Recoverability | None = None,
        store: DelayedStore | str | None = None,
        on_critical_error: OnCriticalError | None = None,
        **settings: Any,
    ) -> None:
        """Nothing is opened yet.

        Args:
            name_or_settings: the endpoint's name (POSTDATE_ENDPOINT otherwise), or complete settings.
            clock: the local clock, for tests.
            observers: callables that are told every event (`postdate.events`).
            memory: with `backend="memory"`, the account to share with other endpoints.
            wrap_transport: with a storage account, what to put around the transport of each of its services
                (azure-core's `AsyncHttpTransport`), to watch requests.
            recoverability: what to do when a handler fails, beside the numbers in the settings.
            store: a delayed store of your own (`postdate.ports.DelayedStore`) in place of the table, opened
                and closed by you; or the setting of that name, `module:factory`.
            on_critical_error: plain or async; told with a `CriticalError` (`postdate.engine.breakers`) when a
                part has failed for too long. If it returns, all goes on; if it raises, `run` ends.
            settings: single settings by name, which win over environment and file.

        Raises:
            ConfigurationError: a setting is missing or wrong.
        """
        if isinstance(store, str):
            settings["store"], store = store, None
        if isinstance(name_or_settings, Settings):
            if settings:
                raise ConfigurationError("pass either a Settings object or single settings, not both")
            self._settings = name_or_settings
        else:
            if name_or_settings is not None:
                settings["endpoint"] = name_or_settings
            self._settings = load_settings(**settings)
        self._store: DelayedStore | None = store
        self._clock = clock
        self._observers = tuple(observers)
        self._memory = memory
        self._wrap_transport = wrap_transport
        super().__init__()
        self._recoverability = recoverability or Recoverability()
        self._on_critical_error = on_critical_error
        self._stack: AsyncExitStack | None = None
        self._parts: Parts | None = None

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self._settings

    @property
    def parts(self) -> Parts:
        """The running parts, for tools that look inside.

        Raises:
            ConfigurationError: the endpoint is not open.
        """
        if self._parts is None:
            raise ConfigurationError("the endpoint is not open; use `async with Endpoint(...) as endpoint:`")
        return self._parts

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise ConfigurationError("this endpoint is open already; make a second one")
        stack = AsyncExitStack()
        self._parts = await stack.enter_async_context(
            open_parts(
                self._settings,
                clock=self._clock,
                observers=self._observers,
                memory=self._memory,
                wrap_transport=self._wrap_transport,
                store=self._store,
                on_critical_error=self._on_critical_error,
            )
        )
        self._stack = stack
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack, self._stack, self._parts = self._stack, None, None
        if stack is not None:
            await stack.__aexit__(kind, error, trace)

    async def setup(self, *queues: str, timeout_manager: bool = False, inbox: bool = False) -> list[str]:
        """Create what is missing: delays table, lease container, error queue, own queue and `queues`.

        With a store of your own, what that needs instead of the table.

        The own queue only where the endpoint's name gives one, or POSTDATE_QUEUE does.

        Args:
            queues: further queues to create.
            timeout_manager: create the store and the queues of the legacy timeout manager too; only needed
                where instances of the endpoint run that are older than native delayed delivery.
            inbox: create the table of its inboxes too; their first use does it otherwise, if it may.

        Returns the names of what this call created. Needs rights that a running endpoint does not.

        Raises:
            ConfigurationError: the timeout manager is asked for, and switched off.
        """
        return await create_missing(
            self._settings, self.parts.backend, queues, timeout_manager=timeout_manager, inbox=inbox
        )

    async def schedule(
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
        """Deliver a message when it is due, at least once; its handle.

        It is durable when this returns. The same `message_id`, `destination` and `at` twice is one message.

        Args:
            destination: `queue`, or `queue@alias` for a further account.
            body: bytes, str, a JSON-able value, a dataclass or a pydantic model.
            delay: from now, by the storage service's clock; zero or less delivers at once.
            at: aware; an instant past delivers at once.
            headers: text or None by name; they win over the ones that we set.
            message_id: stable across deliveries; default: a new UUID.
            expires_after: the message vanishes so long after its due time; default: never.

        Raises:
            DelayedDeliveryDisabled: the toggle is off.
            UsageError: something about the message is wrong; nothing was changed.
            DestinationNotFound: its queue does not exist.
            StorageError: it may not be durable; try again.
        """
        need_delays(self._settings)
        outgoing = Outgoing(destination, body, delay, at, headers, message_id, expires_after)
        return await self.parts.intake.schedule(outgoing)

    async def schedule_many(
        self, messages: Iterable[Outgoing] | AsyncIterable[Outgoing], *, progress: OnProgress | None = None
    ) -> ScheduledMany:
        """Schedule many; a refused one is reported by its index and keeps none of the others out.

        All handles are kept in memory, the messages are not: see `schedule_each`.

        Args:
            messages: read as they are needed; a plain iterable is read on the event loop.
            progress: told after each chunk of some thousand messages how many are `accepted` and `refused`,
                and after how many `seconds`; what it raises is logged and ignored.

        Raises:
            DelayedDeliveryDisabled: the toggle is off.
            SchedulingInterrupted: the service failed; it tells which messages are durable.
            Exception: what the iterable raised; the messages before are scheduled.
        """
        need_delays(self._settings)
        return await self.parts.bulk.schedule_many(messages, progress)

    def schedule_each(
        self, messages: Iterable[Outgoing] | AsyncIterable[Outgoing]
    ) -> AsyncIterator[ScheduleOutcome]:
        """Schedule any number of messages; what becomes of each: its `index`, and its `handle` or `error`.

        Outcomes come in the order given; one with a handle is durable. Memory holds two chunks, each of at
        most 5,000 messages or about 8 MiB: one is read while the other is stored. A chunk that doesn't fill
        within a second is stored as it is. Whoever stops asking for outcomes stops the scheduling: what was
        read, and not told of, may or may not be scheduled.

        Raises:
            DelayedDeliveryDisabled: the toggle is off.
            SchedulingInterrupted: the service failed, and each outcome up to there was told; go on at its
                `index`, with the same `message_id` and `at` where a message must not be doubled.
            Exception: what the iterable raised; the messages before are scheduled and were told.
        """
        need_delays(self._settings)
        return self.parts.bulk.schedule_each(messages)

    async def send(
        self,
        destination: str,
        body: Any,
        *,
        headers: Mapping[str, str | None] | None = None,
        message_id: str | None = None,
        expires_after: timedelta | float | str | None = None,
    ) -> str:
        """Put a message on its destination now; its message id. Arguments and errors as `schedule`."""
        return await self.parts.intake.send_now(
            Outgoing(
                destination,
                body,
                headers=headers,
                message_id=message_id,
                expires_after=expires_after,
            )
        )

    async def cancel(self, handle: str) -> CancelOutcome:
        """Withdraw a message: `cancelled`, `too late` or `unknown`.

        `cancelled` is certain: it will not be delivered, and no other caller hears it. `too late`: it is in
        the hands of the leader, or delivered. `unknown`: no such message waits (any more).

        Raises:
            InvalidHandle: the text is not a handle.
            StorageError: ask again.
        """
        need_delays(self._settings)
        return await self.parts.changes.cancel(handle)

    async def reschedule(
        self,
        handle: str,
        *,
        at: datetime | None = None,
        delay: timedelta | float | str | None = None,
    ) -> RescheduleResult:
        """Give a message another due time; the result holds its new handle.

        Raises:
            UsageError: the handle, or the time, is wrong; nothing was changed.
            StorageError: the message is not lost; ask again.
        """
        need_delays(self._settings)
        return await self.parts.changes.reschedule(handle, at=at, delay=delay)

    async def get(self, handle: str) -> ScheduledMessage | None:
        """A message as it waits, or None: handed over, cancelled, moved, or never there.

        Raises:
            InvalidHandle: the text is not a handle.
        """
        need_delays(self._settings)
        return await self.parts.lookup.get(handle)

    def upcoming(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        destination: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[ScheduledMessage]:
        """Waiting messages with `start <= due < end`, in due order, read page by page.

        Messages that lie in their queue already are not among them.
        """
        need_delays(self._settings)
        return self.parts.lookup.upcoming(start=start, end=end, destination=destination, limit=limit)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Serve until `stop` is set or the task is cancelled.

        Takes part in the election, and while it leads hands over what is due. Where handlers are registered,
        receives from the endpoint's queue and handles what comes. Stopping finishes what is under way,
        removes the rows of what was sent and gives the lease back; handlers have POSTDATE_STOP_GRACE to end.

        Raises:
            ConfigurationError: retries are asked for that the other settings rule out.
            DestinationNotFound: there are handlers, and the endpoint's queue does not exist.
            DelayedDeliveryDisabled: the toggle is off, and there are no handlers.
            CriticalFailure: a part failed for too long, and no `on_critical_error` took care of it; all was
                stopped cleanly. Let the process end, to be started anew.
        """
        runs: list[Run] = []
        if self._handlers:
            receiver = make_receiver(self.parts, self._handlers, self._recoverability)
            if not await self.parts.backend.sender.exists(self._settings.own_queue):
                raise DestinationNotFound(self._settings.own_queue)
            runs.append(receiver.run)
        if not (self._handlers and self._settings.disable_delayed_delivery):
            need_delays(self._settings)
            runs.append(self.parts.service.serve)
        await self.parts.breakers.watch(partial(run_together, runs), stop)

    async def deliver_due(self) -> PassResult:
        """One pass: hand over what is due within the lookahead, if no other process leads."""
        need_delays(self._settings)
        return await self.parts.service.deliver_due()

    def receive(
        self, queue: str | None = None, *, idle: timedelta | None = None, batch: int | None = None
    ) -> AsyncIterator[Delivery]:
        """Deliveries from a queue (default: the endpoint's own) as they come.

        Args:
            queue: `queue` or `queue@alias`.
            idle: end when the queue was empty for so long; None: never.
            batch: messages taken at once, 1 to 32; those not yet yielded are hidden from others meanwhile.
        """
        return self.parts.reception.receive(queue or self._settings.own_queue, idle=idle, batch=batch)
