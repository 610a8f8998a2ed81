"""Queues of our own account and of the aliases: to send to, and to receive from.

No encoding or decoding by the SDK: one message that it can't decode would fail a whole page that the
service has already hidden. What is given is sent, what is there is returned.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import MAXYEAR, datetime
from typing import Any

from azure.core.exceptions import AzureError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from postdate.backends.azure_storage.clients import AccountClients
from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
    Refusal,
    may_be_applied,
    outcome_unknown,
    refusal,
    translate,
    translating,
)
from postdate.backends.azure_storage.hot_calls import HotQueues
from postdate.backends.azure_storage.transport import calling
from postdate.errors import InvalidDestination, OutcomeUnknown
from postdate.model.names import Address, destination
from postdate.ports import Guard, Receipt, Received

#: The SDK's own repeats off, where a pop receipt is needed: the first try changes it.
_ONCE: dict[str, Any] = {"retry_total": 0}
_NEVER = -1


@dataclass(frozen=True, slots=True)
class _Queue:
    address: Address
    client: QueueClient
    hot: HotQueues
    place: Place


class _Accounts:
    """Finds the queue that a destination names."""

    def __init__(self, accounts: Mapping[str, AccountClients]) -> None:
        self._accounts = accounts

    def queue(self, text: str) -> _Queue:
        """The queue of an address.

        Raises:
            InvalidDestination: not a queue's name, or an alias that nobody registered.
        """
        address = destination(text)
        account = self.account(address.alias, text)
        return _Queue(address, account.queue(address.queue), account.hot_queues, account.endpoints.queue)

    def account(self, alias: str, text: str) -> AccountClients:
        """The account of an alias, in any case; "" is our own."""
        account = self._accounts.get(alias.lower())
        if account is None:
            known = ", ".join(repr(name) for name in sorted(self._accounts) if name) or "none"
            raise InvalidDestination(
                f"destination {text!r} names account alias {alias!r}, which is not registered "
                f"(registered: {known}); add it to POSTDATE_ALIASES"
            )
        return account


class AzureQueueSender(_Accounts):
    """`ports.QueueSender`."""

    async def send(
        self,
        destination: str,
        text: str,
        *,
        hidden_for: int = 0,
        time_to_live: int | None = None,
        guard: Guard | None = None,
    ) -> Receipt:
        """Append one message; see `ports.QueueSender.send`. One request, never a second one (fact 4)."""
        queue = self.queue(destination)
        try:
            with calling(guard=guard, once=True):
                return await queue.hot.put(
                    queue.address.queue,
                    text,
                    hidden_for=hidden_for,
                    # Always given: the service's default of 7 days is the longest hiding (fact 7).
                    time_to_live=_NEVER if time_to_live is None else time_to_live,
                )
        except CALL_ERRORS as error:
            told = translate(error, f"sending to queue {destination}", queue.place, queue=destination)
            if may_be_applied(error) and not isinstance(told, OutcomeUnknown):
                # A service that timed out inside may have sent it all the same.
                told = OutcomeUnknown(str(told))
            raise told from error

    async def withdraw(self, destination: str, receipt: Receipt) -> bool | None:
        """Delete a hidden message (fact 6); see `ports.QueueSender.withdraw`."""
        queue = self.queue(destination)
        try:
            with calling(once=True):
                await queue.client.delete_message(receipt.native_id, receipt.pop_receipt, **_ONCE)
        except CALL_ERRORS as error:
            return _too_late(error, f"withdrawing from queue {destination}", queue)
        return True

    async def hide_again(self, destination: str, receipt: Receipt, hidden_for: int) -> Receipt | bool | None:
        """Change when a hidden message appears; see `ports.QueueSender.hide_again`."""
        queue = self.queue(destination)
        try:
            updated = await _hide(queue, receipt.native_id, receipt.pop_receipt, hidden_for)
        except CALL_ERRORS as error:
            return _too_late(error, f"hiding again in queue {destination}", queue)
        return Receipt(receipt.native_id, str(updated.pop_receipt))

    async def exists(self, destination: str) -> bool:
        """Whether the queue is there, asked of the service each time."""
        queue = self.queue(destination)
        try:
            await queue.client.get_queue_properties()
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.NO_QUEUE:
                return False
            raise translate(error, f"looking for queue {destination}", queue.place, changes=False) from error
        return True

    async def create(self, destination: str) -> bool:
        """Create the queue where it is missing; True if this call did.

        Raises:
            ServiceBusy: a queue of this name is being deleted, which the SDK calls "exists".
        """
        queue = self.queue(destination)
        try:
            await queue.client.create_queue()
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.EXISTS:
                return False
            raise translate(error, f"creating queue {destination}", queue.place) from error
        return True

    async def delete(self, destination: str) -> bool:
        """Delete the queue with all it holds; False: it was not there."""
        queue = self.queue(destination)
        try:
            await queue.client.delete_queue()
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.NO_QUEUE:
                return False
            raise translate(error, f"deleting queue {destination}", queue.place) from error
        return True

    async def names(self, alias: str = "") -> list[str]:
        """The names of all queues in an account."""
        account = self.account(alias, f"@{alias}")
        found: list[str] = []
        with translating("listing queues", account.endpoints.queue, changes=False):
            pages: AsyncIterator[Any] = account.queues.list_queues().by_page()
            async for page in pages:
                found += [str(queue.name) async for queue in page]
        return found

    async def approximate_count(self, destination: str) -> int:
        """Messages in the queue, hidden ones included."""
        queue = self.queue(destination)
        with translating(f"counting queue {destination}", queue.place, queue=destination, changes=False):
            properties = await queue.client.get_queue_properties()
        return int(properties.approximate_message_count or 0)


class AzureQueueReceiver(_Accounts):
    """`ports.QueueReceiver`."""

    async def receive(self, queue: str, *, count: int, visibility_s: int) -> list[Received]:
        """At most `count` visible messages, hidden for `visibility_s` seconds; one request."""
        source = self.queue(queue)
        # Both: without messages_per_page it would be a request for each message (fact 9).
        pages = source.client.receive_messages(
            messages_per_page=count, max_messages=count, visibility_timeout=visibility_s
        ).by_page()
        with translating(f"receiving from queue {queue}", source.place, queue=queue, changes=False):
            try:
                page = [message async for message in await anext(pages)]
            except StopAsyncIteration:
                return []
        return [_received(queue, message) for message in page]

    async def ack(self, received: Received) -> bool:
        """Delete a message; False: it became visible again meanwhile.

        A lost answer is followed by one repeat. If that finds the message gone, then it is: by this
        call, or by somebody who got it after it became visible and was done with it. Either way: True.
        """
        queue = self.queue(received.queue)
        for repeat in (False, True):
            try:
                with calling(once=True):
                    await queue.client.delete_message(received.native_id, received.pop_receipt, **_ONCE)
            except CALL_ERRORS as error:
                kind = refusal(error)
                if kind in (Refusal.GONE, Refusal.RECEIVED):
                    return repeat and kind is Refusal.GONE
                if repeat or not outcome_unknown(error):
                    raise translate(
                        error, f"acknowledging in queue {received.queue}", queue.place, queue=received.queue
                    ) from error
            else:
                return True
        raise AssertionError("unreachable")

    async def nack(self, received: Received, delay_s: int = 0, *, text: str | None = None) -> bool:
        """Make a message visible again after whole seconds, with another text if given; False as `ack`."""
        return await self._update(received, delay_s, text) is not None

    async def extend(self, received: Received, visibility_s: int) -> Received | None:
        """Hide a message for `visibility_s` seconds from now; the new appearance, or None: too late."""
        return await self._update(received, visibility_s)

    async def _update(
        self, received: Received, visibility_s: int, text: str | None = None
    ) -> Received | None:
        queue = self.queue(received.queue)
        try:
            updated = await _hide(queue, received.native_id, received.pop_receipt, visibility_s, text)
        except CALL_ERRORS as error:
            if refusal(error) in (Refusal.GONE, Refusal.RECEIVED):
                return None
            raise translate(
                error, f"extending in queue {received.queue}", queue.place, queue=received.queue
            ) from error
        hidden_until = updated.next_visible_on
        return replace(
            received,
            pop_receipt=str(updated.pop_receipt),
            hidden_until=hidden_until if isinstance(hidden_until, datetime) else received.hidden_until,
        )


async def _hide(
    queue: _Queue, native_id: str, pop_receipt: str, seconds: int, text: str | None = None
) -> QueueMessage:
    with calling(once=True):
        # Without visibility_timeout it would become visible at once (fact 8). Without content it is kept.
        return await queue.client.update_message(
            native_id, pop_receipt, visibility_timeout=seconds, content=text, **_ONCE
        )


def _too_late(error: BaseException, what: str, queue: _Queue) -> bool | None:
    """None: gone; False: somebody received it. Raises for all else."""
    kind = refusal(error)
    if kind is Refusal.GONE:
        return None
    if kind is Refusal.RECEIVED:
        return False
    raise translate(error, what, queue.place, queue=str(queue.address)) from error


def _received(queue: str, message: QueueMessage) -> Received:
    inserted, hidden_until, expires_on = message.inserted_on, message.next_visible_on, message.expires_on
    if not isinstance(inserted, datetime) or not isinstance(hidden_until, datetime):
        raise AzureError("a received message without times")
    return Received(
        queue=queue,
        native_id=str(message.id),
        pop_receipt=str(message.pop_receipt),
        text=message.content or "",
        dequeue_count=int(message.dequeue_count or 1),
        inserted_at=inserted,
        hidden_until=hidden_until,
        # The last second of year 9999 stands for "never".
        expires_on=expires_on if isinstance(expires_on, datetime) and expires_on.year < MAXYEAR else None,
    )
