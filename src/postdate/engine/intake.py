"""Accepting a message: everything that could fail later is checked now, then it is made durable.

A message with a short delay (`direct_within`) goes straight to its queue, hidden until its due time; any
other becomes a row. Either way it is durable when `schedule` returns.
"""

from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches

from postdate.clock import Clock
from postdate.engine.acceptance import Acceptance, Accepted, Outgoing
from postdate.engine.handover import HandOverTo, know_the_time
from postdate.errors import DestinationNotFound, PostdateError, UsageError
from postdate.events import Events, Scheduled
from postdate.model.delayed import DelayedMessage
from postdate.model.handles import Handle, QueueHandle, RowHandle, format_handle
from postdate.model.keys import identity
from postdate.model.names import destination as parse_destination
from postdate.ports import Backend

#: A queue that was seen is not asked for again for so long. "Not there" is never remembered.
_SEEN_SECONDS = 60.0
#: Short-delay messages whose (id, destination, due time) is remembered, so that a repeat is one message.
_REMEMBERED = 10_000
#: Messages validated and stored together by `schedule_many`.
_CHUNK = 500
#: Message id and destination, and the due time.
_Place = tuple[str, datetime]


@dataclass(frozen=True, slots=True)
class ScheduledMany:
    """What became of many messages: a handle for each that was accepted, an error for each that was not."""

    #: In the order given; None where the message was refused.
    handles: list[str | None] = field(default_factory=list)
    #: By index: why a message was refused. The others are durable.
    failures: dict[int, PostdateError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """What intake needs to know of the endpoint's settings."""

    #: The longest delay that needs no row.
    direct_within: timedelta
    payload_retention: timedelta
    check_destinations: bool


class DirectHandles:
    """Short-delay messages that this process put into queues, until they are cancelled or moved."""

    def __init__(self) -> None:
        self._handles: OrderedDict[_Place, QueueHandle] = OrderedDict()
        self._places: dict[str, _Place] = {}

    def of(self, place: _Place) -> QueueHandle | None:
        """The handle of a message, if it is remembered."""
        return self._handles.get(place)

    def remember(self, place: _Place, handle: QueueHandle) -> None:
        """Keep it in mind; the oldest is forgotten."""
        self._handles[place] = handle
        self._places[handle.native_id] = place
        if len(self._handles) > _REMEMBERED:
            _, oldest = self._handles.popitem(last=False)
            self._places.pop(oldest.native_id, None)

    def forget(self, handle: QueueHandle) -> None:
        """It lies there no more: the same message scheduled again is a new one."""
        place = self._places.pop(handle.native_id, None)
        if place is not None:
            self._handles.pop(place, None)


class Intake:
    """Validates and stores."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        events: Events,
        hand_over: HandOverTo,
        acceptance: Acceptance,
        settings: IntakeSettings,
        direct: "DirectHandles",
        wake: Callable[[datetime], None],
    ) -> None:
        self._backend = backend
        self._hand_over = hand_over
        self._acceptance = acceptance
        self._clock = clock
        self._events = events
        self._settings = settings
        self._wake = wake
        self._seen: dict[str, float] = {}
        self._direct = direct

    async def schedule(self, outgoing: Outgoing) -> str:
        """Accept one message; its handle.

        Raises:
            UsageError: something about it is wrong; nothing was changed.
            DestinationNotFound: its queue is not there.
            StorageError: it may not be durable; the same call again, with the same `message_id` and `at`,
                is harmless.
        """
        checked = await self._accept(outgoing)
        remaining = checked.delayed.due_at - self._clock.now()
        if remaining <= self._settings.direct_within:
            return format_handle(await self._direct_or_row(checked))
        return (await self._store([checked]))[0]

    async def schedule_many(self, messages: Iterable[Outgoing] | AsyncIterable[Outgoing]) -> ScheduledMany:
        """Accept many; a refused one is reported by its index, and keeps none of the others out.

        Raises:
            StorageError: the service failed; what was stored before stays.
        """
        result = ScheduledMany()
        chunk: list[tuple[int, Accepted]] = []
        index = -1
        async for outgoing in _iterate(messages):
            index += 1
            result.handles.append(None)
            try:
                checked = await self._accept(outgoing)
                if checked.delayed.due_at - self._clock.now() <= self._settings.direct_within:
                    result.handles[index] = format_handle(await self._direct_or_row(checked))
                    continue
            except (UsageError, DestinationNotFound) as error:
                result.failures[index] = error
                continue
            chunk.append((index, checked))
            if len(chunk) >= _CHUNK:
                await self._store_chunk(chunk, result)
                chunk = []
        await self._store_chunk(chunk, result)
        return result

    async def send_now(self, outgoing: Outgoing) -> str:
        """Put a message on its destination at once; its message id."""
        checked = await self._accept(outgoing, delayed=False)
        await self._hand_to_queue(checked)
        return checked.delayed.message.message_id

    async def check_destination(self, destination: str) -> None:
        """Refuse a destination whose queue is not there, with near names that are.

        Raises:
            DestinationNotFound: it is not there now.
        """
        now = self._clock.monotonic()
        if now < self._seen.get(destination, 0.0):
            return
        if await self._backend.sender.exists(destination):
            self._seen[destination] = now + _SEEN_SECONDS
            return
        address = parse_destination(destination)
        names = await self._backend.sender.names(address.alias)
        near = get_close_matches(address.queue, names, n=3, cutoff=0.5)
        raise DestinationNotFound(destination, [f"{n}@{address.alias}" if address.alias else n for n in near])

    async def _accept(self, outgoing: Outgoing, *, delayed: bool = True) -> Accepted:
        parsed = self._acceptance.check(outgoing, self._clock, delayed=delayed)
        if self._settings.check_destinations:
            await self.check_destination(outgoing.destination)
        if delayed:
            await know_the_time(self._clock, self._backend)
        # Only now: a delay counts by the service's clock, which the first answer tells.
        return self._acceptance.accept(parsed, self._clock, delayed=delayed)

    # --- making it durable ------------------------------------------------------------------------

    async def _direct_or_row(self, checked: Accepted) -> Handle:
        """Hand a short delay to its queue, unless the same message already waits or went."""
        delayed = checked.delayed
        place = (identity(delayed.message.message_id, delayed.destination), delayed.due_at)
        if checked.named:
            known = self._direct.of(place)
            if known is not None:
                return known
            if await self._backend.store.get(delayed.key) is not None:
                return RowHandle(delayed.key)
        handle = await self._hand_to_queue(checked)
        if checked.named:
            self._direct.remember(place, handle)
        return handle

    async def _hand_to_queue(self, checked: Accepted) -> QueueHandle:
        delayed = checked.delayed
        await self._park(checked)
        receipt, hidden_for = await self._hand_over.send(delayed)
        self._tell(delayed, "queue" if hidden_for else "now")
        return QueueHandle(
            delayed.destination,
            receipt.native_id,
            receipt.pop_receipt,
            delayed.due_at,
            delayed.payload_ref,
        )

    async def _store(self, batch: Sequence[Accepted]) -> list[str]:
        for checked in batch:
            await self._park(checked)
        results = await self._backend.store.add([checked.delayed for checked in batch])
        for checked in batch:
            self._tell(checked.delayed, "row")
        self._wake(min(checked.delayed.due_at for checked in batch))
        return [format_handle(RowHandle(result.key)) for result in results]

    async def _store_chunk(self, chunk: list[tuple[int, Accepted]], result: ScheduledMany) -> None:
        if not chunk:
            return
        handles = await self._store([checked for _, checked in chunk])
        for (index, _), handle in zip(chunk, handles, strict=True):
            result.handles[index] = handle

    async def _park(self, checked: Accepted) -> None:
        """Store the large body before anything refers to it."""
        delayed = checked.delayed
        if checked.payload is not None and delayed.payload_ref is not None:
            await self._backend.payloads.put(
                delayed.payload_ref,
                checked.payload,
                keep_until=delayed.due_at + self._settings.payload_retention,
            )

    def _tell(self, delayed: DelayedMessage, path: str) -> None:
        self._events.emit(Scheduled(delayed.message.message_id, delayed.destination, delayed.due_at, path))


async def _iterate(messages: Iterable[Outgoing] | AsyncIterable[Outgoing]) -> AsyncIterator[Outgoing]:
    if isinstance(messages, AsyncIterable):
        async for outgoing in messages:
            yield outgoing
    else:
        for outgoing in messages:
            yield outgoing
