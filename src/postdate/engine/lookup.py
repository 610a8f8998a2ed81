"""Looking at what waits: one message by its handle, or all of them in due order."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from postdate.model import headers as h
from postdate.model.delayed import DelayedRow, Row
from postdate.model.handles import QueueHandle, RowHandle, format_handle, parse_handle
from postdate.model.headers import Headers
from postdate.ports import Backend


class State(StrEnum):
    """Where a scheduled message is."""

    WAITING = "waiting"
    FAILING = "failing"
    IN_QUEUE = "in queue"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A scheduled message as it can be seen now.

    A message in its queue is hidden there: only what its handle tells is known, and it may be delivered
    by now.
    """

    handle: str
    state: State
    destination: str
    due_at: datetime | None
    message_id: str | None = None
    scheduled_at: datetime | None = None
    headers: Headers | None = None
    body: bytes | None = None
    failure_count: int = 0
    next_attempt_at: datetime | None = None
    #: Why an unreadable row can't be read.
    reason: str | None = None


class Lookup:
    """Reads, and changes nothing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def get(self, handle: str) -> ScheduledMessage | None:
        """The message as it waits, or None: handed over, cancelled, moved or never there.

        Raises:
            InvalidHandle: the text is not a handle.
        """
        parsed = parse_handle(handle)
        if isinstance(parsed, QueueHandle):
            return ScheduledMessage(handle, State.IN_QUEUE, parsed.destination, parsed.due_at)
        row = await self._backend.store.get(parsed.key)
        return None if row is None else await self._with_body(view(row))

    async def _with_body(self, message: ScheduledMessage) -> ScheduledMessage:
        payload = (message.headers or {}).get(h.PAYLOAD)
        if payload is None:
            return message
        return replace(message, body=await self._backend.payloads.get(payload))

    async def upcoming(
        self,
        *,
        start: datetime | None,
        end: datetime | None,
        destination: str | None,
        limit: int | None,
    ) -> AsyncIterator[ScheduledMessage]:
        """Waiting rows in due order."""
        count = 0
        async for row in self._backend.store.upcoming(start=start, end=end):
            if limit is not None and count >= limit:
                return
            message = view(row)
            if destination is None or message.destination.lower() == destination.lower():
                count += 1
                yield message


def view(row: Row) -> ScheduledMessage:
    """A row as users see it."""
    handle = format_handle(RowHandle(row.key))
    if not isinstance(row, DelayedRow):
        destination = row.properties.get("Destination")
        return ScheduledMessage(
            handle,
            State.UNREADABLE,
            destination if isinstance(destination, str) else "",
            row.due_at,
            reason=row.reason,
        )
    delayed = row.delayed
    return ScheduledMessage(
        handle=handle,
        state=State.FAILING if delayed.failure_count else State.WAITING,
        destination=delayed.destination,
        due_at=delayed.due_at,
        message_id=delayed.message.message_id,
        scheduled_at=delayed.scheduled_at,
        headers=delayed.message.headers,
        body=delayed.message.body,
        failure_count=delayed.failure_count,
        next_attempt_at=delayed.next_attempt_at,
    )
