"""What a handler gets beside the message: who sent it, and ways to answer.

What it sends is kept until the handler has succeeded, and goes out then, before the message is acknowledged:
a handler that fails has sent nothing. Ids of what goes out are made of the incoming message's id and the
order of sending, so that a message handled twice sends the same ids twice, and an inbox can drop them.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from postdate.clock import Clock
from postdate.engine.acceptance import Acceptance, Delay, Outgoing, due_time
from postdate.engine.reception import Delivery
from postdate.errors import UsageError
from postdate.model import headers as h
from postdate.model.headers import Headers
from postdate.model.inbox import next_turn, turn_of

#: Of ids that are made from ids.
_NAMESPACE = uuid.UUID("7c3f6d0e-5a52-4f0b-9d6e-3f2f6d1b8a10")
#: Headers that belong to one journey, and not to a message that is sent anew.
_OF_THE_JOURNEY = (*h.OF_ONE_JOURNEY, h.DELIVER_AT)


@dataclass(frozen=True, slots=True)
class ContextParts:
    """What contexts share."""

    clock: Clock
    acceptance: Acceptance
    endpoint: str
    queue: str
    #: Raises where the endpoint has no delayed delivery.
    need_delays: Callable[[], None]


class MessageContext:
    """One attempt to handle one message."""

    def __init__(self, delivery: Delivery, *, attempts: int, retries: int, parts: ContextParts) -> None:
        self._parts = parts
        # A copy: what a handler does to its headers must not come back with the message.
        message = replace(delivery.message, headers=dict(delivery.message.headers))
        self._delivery = replace(delivery, headers=dict(delivery.headers), message=message)
        self._sent = 0
        self.message_id = delivery.message_id
        #: As received; changing them is not possible.
        self.headers: Mapping[str, str | None] = MappingProxyType(dict(delivery.headers))
        #: Which attempt this is, from 1, over all retries.
        self.attempt = attempts
        #: How often the message was put off before.
        self.delayed_retries = retries
        #: What goes out when the handler has succeeded, in order.
        self.outgoing: list[Outgoing] = []

    @property
    def delivery(self) -> Delivery:
        """The message as it came, its body as bytes."""
        return self._delivery

    @property
    def endpoint_name(self) -> str:
        """The endpoint that handles it."""
        return self._parts.endpoint

    def send(
        self,
        destination: str,
        body: Any,
        *,
        headers: Mapping[str, str | None] | None = None,
        message_id: str | None = None,
        expires_after: Delay | None = None,
    ) -> str:
        """Send a message when the handler has succeeded; its id.

        Raises:
            UsageError: something about it is wrong, and the handler should fail.
        """
        return self._keep(Outgoing(destination, body, None, None, headers, message_id, expires_after))

    def schedule(
        self,
        destination: str,
        body: Any,
        *,
        delay: Delay | None = None,
        at: datetime | None = None,
        headers: Mapping[str, str | None] | None = None,
        message_id: str | None = None,
        expires_after: Delay | None = None,
    ) -> str:
        """Schedule a message when the handler has succeeded; its id. A delay counts from now.

        Raises:
            DelayedDeliveryDisabled: the toggle is off.
            UsageError: something about it is wrong.
        """
        self._parts.need_delays()
        due_at = due_time(self._parts.clock, at=at, delay=delay)
        return self._keep(Outgoing(destination, body, None, due_at, headers, message_id, expires_after))

    def defer(self, *, delay: Delay | None = None, at: datetime | None = None) -> None:
        """Let this very message come again later, when the handler has succeeded; it is done with for now.

        Raises:
            DelayedDeliveryDisabled: the toggle is off.
            UsageError: the time is wrong.
        """
        self._parts.need_delays()
        due_at = due_time(self._parts.clock, at=at, delay=delay)
        headers = {k: v for k, v in self.headers.items() if k not in _OF_THE_JOURNEY}
        headers[h.TURN] = next_turn(self.headers)
        outgoing = Outgoing(
            self._parts.queue, self._delivery.body, at=due_at, headers=headers, message_id=self.message_id
        )
        self._parts.acceptance.check(outgoing, self._parts.clock, delayed=True)
        self.outgoing.append(outgoing)

    def reply(self, body: Any, *, headers: Mapping[str, str | None] | None = None) -> str:
        """Answer the sender when the handler has succeeded; the reply's id.

        A saga that asked finds itself again: its id and type, which came with the message, go back.

        Raises:
            UsageError: the message names no address to reply to.
        """
        address = self.headers.get(h.REPLY_TO)
        if not address:
            raise UsageError(
                f"message {self.message_id!r} has no {h.REPLY_TO}: whoever sent it takes no replies; "
                "use send() with a destination"
            )
        answer: Headers = {h.MESSAGE_INTENT: "Reply"}
        for asked, back in ((h.ORIGINATING_SAGA_ID, h.SAGA_ID), (h.ORIGINATING_SAGA_TYPE, h.SAGA_TYPE)):
            if asked in self.headers:
                answer[back] = self.headers[asked]
        return self._keep(Outgoing(address, body, headers={**answer, **(headers or {})}))

    def request_timeout(
        self,
        after: Delay | None = None,
        state: Any = b"",
        *,
        at: datetime | None = None,
        saga_id: str | None = None,
        saga_type: str | None = None,
    ) -> str:
        """Ask for a timeout: `state` comes back to this endpoint's timeout handlers; its message id.

        It has the headers of a .NET saga's timeout (nservicebus-azure, 3.2).

        Args:
            after: from now.
            state: the timeout message; its type chooses the timeout handler.
            at: an aware instant, instead of `after`.
            saga_id: whose timeout it is; default: that of the message being handled, else one made of its
                conversation, so that all messages of a conversation are of one saga.
            saga_type: default: that of the message being handled, else the endpoint's name.

        Raises:
            DelayedDeliveryDisabled: the toggle is off.
            UsageError: the time or the state is wrong.
        """
        own_id = self.headers.get(h.SAGA_ID) or self._made_id(self.headers.get(h.CONVERSATION_ID))
        headers: Headers = {
            h.IS_SAGA_TIMEOUT: "True",
            h.SAGA_ID: saga_id or own_id,
            h.SAGA_TYPE: saga_type or self.headers.get(h.SAGA_TYPE) or self._parts.endpoint,
        }
        return self.schedule(self._parts.queue, state, delay=after, at=at, headers=headers)

    def _next_id(self) -> str:
        # Another endpoint that handles the same message sends other ones, and so does its next turn.
        turn = turn_of(self.message_id, self.headers)
        return str(uuid.uuid5(_NAMESPACE, f"{self._parts.queue} {turn}/{self._sent}"))

    def _made_id(self, text: str | None) -> str:
        return str(uuid.uuid5(_NAMESPACE, f"saga {text or self.message_id}"))

    def _keep(self, outgoing: Outgoing) -> str:
        self._sent += 1
        message_id = outgoing.message_id or self._next_id()
        given = outgoing.headers or {}
        kept = {name: text for name, text in given.items() if name not in h.OF_ONE_JOURNEY}
        headers = {**self._inherited(), **kept}
        outgoing = Outgoing(
            outgoing.destination,
            outgoing.body,
            None,
            outgoing.at,
            headers,
            message_id,
            outgoing.expires_after,
        )
        self._parts.acceptance.check(outgoing, self._parts.clock, delayed=outgoing.at is not None)
        self.outgoing.append(outgoing)
        return message_id

    def _inherited(self) -> Headers:
        """What ties a message to the one that caused it (nservicebus-azure, 3.4)."""
        inherited: Headers = {
            h.REPLY_TO: self._parts.queue,
            h.RELATED_TO: self.message_id,
            h.CORRELATION_ID: self.headers.get(h.CORRELATION_ID) or self.message_id,
        }
        if self.headers.get(h.CONVERSATION_ID):
            inherited[h.CONVERSATION_ID] = self.headers[h.CONVERSATION_ID]
        if self.headers.get(h.SAGA_ID):
            inherited[h.ORIGINATING_SAGA_ID] = self.headers[h.SAGA_ID]
            inherited[h.ORIGINATING_SAGA_TYPE] = self.headers.get(h.SAGA_TYPE)
        return inherited
