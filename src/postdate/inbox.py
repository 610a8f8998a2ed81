"""Exactly-once effects for consumers: an inbox remembers which messages a consumer is done with.

    inbox = Inbox(endpoint, consumer="billing")

    async for delivery in endpoint.receive():
        async with inbox.once_for(delivery) as once:
            if once.fresh:
                once.send("invoices", {"order": delivery.json()["order"]})
        await delivery.ack()

What a block sends and records happens once, however often the message comes, whoever else has it at the
same time, and wherever a process dies. Anything else that it does happens at least once.
docs/explain/inbox.md tells why, and what is not promised.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from postdate.compose import Parts
from postdate.endpoint import Endpoint
from postdate.engine.acceptance import Delay, Outgoing
from postdate.engine.once import Once, OnceSettings
from postdate.engine.receiving import need_delays
from postdate.engine.reception import Delivery
from postdate.errors import ConfigurationError, PostdateError, UsageError, shown
from postdate.events import InboxCallFailed, InboxForgot
from postdate.model.durations import format_duration, parse_duration
from postdate.model.inbox import InboxKey, check_consumer, first_instant, turn_of
from postdate.model.jsontext import read
from postdate.model.typed_body import type_name

#: How long a claim lasts; it is prolonged while the handler works, so this is what a dead process costs.
CLAIM_FOR = timedelta(seconds=30)
_SHORTEST_CLAIM = timedelta(seconds=1)
_LONGEST_CLAIM = timedelta(days=1)


class HandlerContext(Protocol):
    """What `once_per_message` needs of the context that a handler is called with."""

    @property
    def message_id(self) -> str:
        """The message's id."""
        ...

    @property
    def headers(self) -> Mapping[str, str | None]:
        """The message's headers."""
        ...

    @property
    def delivery(self) -> Delivery:
        """The delivery that is being handled."""
        ...

    @property
    def outgoing(self) -> list[Outgoing]:
        """What handlers have sent so far; it leaves when they have returned."""
        ...


Result = TypeVar("Result")

_current: ContextVar[Once] = ContextVar("postdate_inbox_once")


class Inbox:
    """The messages that one consumer is done with, in a table beside the endpoint's own.

    Processes that share a consumer's name share its memory. Two handlers of the same message need two names.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        consumer: str,
        retention: Delay | None = None,
        claim_for: Delay = CLAIM_FOR,
    ) -> None:
        """Nothing is asked of the service yet; the endpoint need not be open.

        Args:
            endpoint: in whose account the memory is, and which dispatches what handlers send.
            consumer: letters, digits, dashes and dots.
            retention: how long a message is remembered; default: POSTDATE_INBOX_RETENTION.
            claim_for: how long a claim lasts, 1 s to 1 day. It is prolonged while the handler works, so this
                is how long a message waits whose consumer died.

        Raises:
            ConfigurationError: one of these is wrong.
        """
        if not isinstance(endpoint, Endpoint):
            raise ConfigurationError(f"an inbox takes a postdate.Endpoint, not {type_name(type(endpoint))}")
        self._endpoint = endpoint
        self._consumer = check_consumer(consumer)
        self._retention = None if retention is None else _span("retention", retention)
        self._claim_for = _span("claim_for", claim_for)
        if not _SHORTEST_CLAIM <= self._claim_for <= _LONGEST_CLAIM:
            raise ConfigurationError(
                f"claim_for must be from 1s to 1d; it is {format_duration(self._claim_for)}"
            )
        self._swept_by: Parts | None = None

    @property
    def consumer(self) -> str:
        """Whose messages it remembers."""
        return self._consumer

    @property
    def retention(self) -> timedelta:
        """How long a message is remembered after it was handled, and after its own first instant."""
        return self._endpoint.settings.inbox_retention if self._retention is None else self._retention

    def once(self, message_id: str, *, at: datetime) -> Once:
        """Handle a message once: an async context manager, whose `fresh` tells whether there is work.

        Entering raises:
            TryLater: another one has the message right now; ask again after its `delay`.
            StorageError: ask again.
        Leaving raises, with nothing kept:
            ClaimLost: another one took the message over, since this process stood still for too long.
            UsageError, DestinationNotFound: a message that was sent is wrong.
        or, with everything kept or nothing:
            StorageError: take the message again; if it was kept, that dispatches what was sent.

        Args:
            message_id: what makes two deliveries the same message.
            at: aware, and the same for every delivery of the message; by it the memory is cleaned up.
        """
        return Once(self._settings(), self._key(message_id, at), message_id)

    def _once_for(self, message_id: str, headers: Mapping[str, str | None], came_at: datetime) -> Once:
        key = InboxKey(self._consumer, turn_of(message_id, headers), first_instant(headers, came_at))
        return Once(self._settings(), key, message_id)

    def once_for(self, delivery: Delivery) -> Once:
        """The same for a delivery of `Endpoint.receive`, by its id and first instant."""
        return self._once_for(delivery.message_id, delivery.headers, delivery.received.inserted_at)

    def once_per_message(
        self, handler: Callable[..., Awaitable[Result]]
    ) -> Callable[[Any, HandlerContext], Awaitable[Result | None]]:
        """Make the effects of an `async def handler(message, context)` happen once per message; a decorator.

            @endpoint.handler
            @inbox.once_per_message
            async def place(order: PlaceOrder, context: MessageContext) -> None: ...

        What it sends through its context is committed with the message, then dispatched. Inside, `current()`
        is the `Once` of the message. A message that is done with is not handed to the handler.

        Raises:
            ConfigurationError: the handler is not a coroutine function, or is registered already, so that the
                endpoint would call it and not what this returns.
        """
        if self._endpoint.is_handler(handler):
            raise ConfigurationError(
                f"handler {type_name(handler)} is registered without its inbox; write @endpoint.handler "
                "above @inbox.once_per_message"
            )
        if not inspect.iscoroutinefunction(handler):
            raise ConfigurationError(f"handler {type_name(handler)} of an inbox must be an async def")
        parameters = list(inspect.signature(handler).parameters.values())
        takes_context = len(parameters) > 1

        @functools.wraps(handler)
        async def handle(message: Any, context: HandlerContext) -> Result | None:
            came_at = context.delivery.received.inserted_at
            async with self._once_for(context.message_id, context.headers, came_at) as once:
                if not once.fresh:
                    return None
                before = len(context.outgoing)
                token = _current.set(once)
                try:
                    result = await (handler(message, context) if takes_context else handler(message))
                finally:
                    _current.reset(token)
                for outgoing in context.outgoing[before:]:
                    once.take(outgoing)
                # They are ours to dispatch now, not the receiver's.
                del context.outgoing[before:]
            return result

        if not takes_context:
            # Whoever registers it asks how to call it; the annotation of the message is still the handler's.
            context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
            handle.__signature__ = inspect.Signature([*parameters, context])  # type: ignore[attr-defined] # as inspect says
        return handle

    async def recorded(self, message_id: str, *, at: datetime) -> dict[str, Any]:
        """The records of a message that is done with, by name; `at` as in `once`."""
        key = self._key(message_id, at)
        records = await self._endpoint.parts.backend.inbox.records(key)
        return {name: read(content) for name, content in records.items()}

    async def forget(self) -> int:
        """Drop what is past the retention; how many messages.

        A leader whose process has used this inbox does so once an hour; `postdate forget` is for all others.
        """
        parts = self._endpoint.parts
        before = parts.clock.now() - self.retention
        messages = await parts.backend.inbox.forget(self._consumer, before)
        if messages:
            parts.events.emit(InboxForgot(self._consumer, messages))
        return messages

    async def _forget_quietly(self) -> None:
        try:
            await self.forget()
        except PostdateError as error:
            parts = self._endpoint.parts
            parts.events.emit(InboxCallFailed(self._consumer, "forgetting old messages", str(error)))

    def _key(self, message_id: object, at: object) -> InboxKey:
        if not isinstance(message_id, str) or not message_id:
            raise UsageError(f"message_id {shown(message_id)} is not text; use a non-empty str")
        try:
            message_id.encode()
        except UnicodeEncodeError:
            raise UsageError("message_id holds half of a surrogate pair; it must be valid Unicode") from None
        if not isinstance(at, datetime) or at.utcoffset() is None:
            raise UsageError(
                f"at {shown(at)} is not an aware datetime; pass an instant that all deliveries of the "
                "message have in common, like its due time"
            )
        return InboxKey(self._consumer, message_id, at)

    def _settings(self) -> OnceSettings:
        parts = self._endpoint.parts
        if self._swept_by is not parts:
            self._swept_by = parts
            parts.sweeper.also(f"inbox of {self._consumer}", self._forget_quietly)
        return OnceSettings(
            backend=parts.backend,
            intake=parts.intake,
            clock=parts.clock,
            events=parts.events,
            claim_for=self._claim_for,
            retention=self.retention,
            need_delays=lambda: need_delays(parts.settings),
        )


def current() -> Once:
    """The message that is being handled, inside a handler that `Inbox.once_per_message` has made.

    Raises:
        UsageError: this is not inside such a handler.
    """
    try:
        return _current.get()
    except LookupError:
        raise UsageError("no message is being handled here; call it inside a handler of an inbox") from None


def _span(name: str, value: Delay) -> timedelta:
    try:
        span = parse_duration(value)
    except UsageError as error:
        raise ConfigurationError(f"{name} {error}") from None
    if span <= timedelta(0):
        raise ConfigurationError(f"{name} must be more than zero; it is {format_duration(span)}")
    return span


__all__ = ["Inbox", "Once", "current"]
