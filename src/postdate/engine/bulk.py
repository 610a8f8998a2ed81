"""Many messages at once: chunk by chunk, so that any iterable fits into memory, even one without an end.

A chunk is checked while the one before is stored. Rows go in entity-group transactions by partition, several
at a time; short delays go to their queues beside them, soonest first. Each message has an outcome of its own,
and a refused one keeps none of the others out. A failure of the service ends it after the chunk in which it
came: of what was told by then, each message has its handle or its error.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random

from postdate.clock import Clock
from postdate.concurrency import for_each
from postdate.core.backoff import retry_wait
from postdate.core.plan import BURST_PATIENCE
from postdate.engine.acceptance import Accepted
from postdate.engine.gate import Gate
from postdate.engine.intake import Intake, Place, not_tried, place_of
from postdate.engine.read_ahead import Chunk, Messages, ReadAhead
from postdate.errors import PostdateError, SchedulingInterrupted, ServiceBusy, StorageError

_log = logging.getLogger("postdate")
#: Tries to put a short delay into a queue that is busy.
_TRIES = 5
_RETRY_BASE_SECONDS = 0.2
_RETRY_MAXIMUM_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """What became of one message of many: it has a handle and is durable, or an error and no handle."""

    #: Its place in what was given, from 0.
    index: int
    handle: str | None
    error: PostdateError | None


@dataclass(frozen=True, slots=True)
class ScheduledMany:
    """What became of many messages: a handle for each that was accepted, an error for each that was not."""

    #: In the order given; None where the message was refused.
    handles: list[str | None] = field(default_factory=list)
    #: By index: why a message was refused. The others are durable.
    failures: dict[int, PostdateError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScheduleProgress:
    """How far `schedule_many` has come."""

    #: Messages that are durable.
    accepted: int
    #: Messages that have an error.
    refused: int
    #: Since the first message was asked for.
    seconds: float


OnProgress = Callable[[ScheduleProgress], object]


class BulkIntake:
    """Schedules many."""

    def __init__(self, intake: Intake, clock: Clock, gate: Gate, *, sends_at_once: int) -> None:
        self._intake = intake
        self._clock = clock
        self._gate = gate
        self._sends_at_once = sends_at_once
        self._random = Random()

    async def schedule_each(self, messages: Messages) -> AsyncIterator[ScheduleOutcome]:
        """What becomes of each message, in the order given; see `Endpoint.schedule_each`."""
        async with aclosing(self._chunks(messages)) as chunks:
            async for outcomes in chunks:
                for outcome in outcomes:
                    yield outcome

    async def schedule_many(self, messages: Messages, progress: OnProgress | None = None) -> ScheduledMany:
        """What became of all messages; see `Endpoint.schedule_many`."""
        result = ScheduledMany()
        began = self._clock.monotonic()
        try:
            async with aclosing(self._chunks(messages)) as chunks:
                async for outcomes in chunks:
                    result.handles.extend(outcome.handle for outcome in outcomes)
                    result.failures.update((o.index, o.error) for o in outcomes if o.error is not None)
                    if progress is not None:
                        refused = len(result.failures)
                        accepted = len(result.handles) - refused
                        _tell(progress, ScheduleProgress(accepted, refused, self._clock.monotonic() - began))
        except SchedulingInterrupted as error:
            raise SchedulingInterrupted(
                error.reason, error.index, result.handles, result.failures
            ) from error.__cause__
        return result

    async def _chunks(self, messages: Messages) -> AsyncGenerator[list[ScheduleOutcome]]:
        """What becomes of each chunk; nothing more is stored while the caller looks at it."""
        reader = ReadAhead(messages, self._intake.accept_unasked, self._clock)
        reading = asyncio.create_task(reader.read(), name="postdate-read-messages")
        try:
            while (chunk := await reader.next()) is not None:
                outcomes = await self._stored(chunk)
                yield outcomes
                _check(outcomes)
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _stored(self, chunk: Chunk) -> list[ScheduleOutcome]:
        """Make a chunk durable; what became of each message."""
        ready = {n: item for n, item in enumerate(chunk.items) if not isinstance(item, PostdateError)}
        answers: dict[int, str | PostdateError] = {
            n: item for n, item in enumerate(chunk.items) if isinstance(item, PostdateError)
        }
        missing = await self._intake.missing(ready.values())
        now = self._clock.now()
        short: dict[int, Accepted] = {}
        long: dict[int, Accepted] = {}
        for n, accepted in ready.items():
            error = missing.get(accepted.delayed.destination)
            if error is not None:
                answers[n] = error
            elif self._intake.is_short(accepted, now):
                short[n] = accepted
            else:
                long[n] = accepted

        async def send() -> None:
            answers.update(await self._send(short))

        async def store() -> None:
            answers.update(zip(long, await self._intake.store(list(long.values())), strict=True))

        work = [do for do, some in ((send, short), (store, long)) if some]
        await for_each(work, len(work) or 1, lambda do: do())
        return [_outcome(chunk.first + n, answers[n]) for n in range(len(chunk.items))]

    async def _send(self, short: Mapping[int, Accepted]) -> dict[int, str | PostdateError]:
        """Hand short delays to their queues; for each its handle, or why it has none."""
        answers: dict[int, str | PostdateError] = {}
        failure: StorageError | None = None

        async def send(same: Sequence[int]) -> None:
            nonlocal failure
            answer: str | PostdateError
            if failure is not None:
                answer = not_tried(failure)
            else:
                try:
                    answer = await self._send_one(short[same[0]])
                except PostdateError as error:
                    answer = error
                    if isinstance(error, StorageError):
                        failure = error
            answers.update(dict.fromkeys(same, answer))

        # The same message twice must be one, so the second waits for what becomes of the first.
        places: dict[Place, list[int]] = {}
        for n, accepted in short.items():
            places.setdefault(place_of(accepted.delayed), []).append(n)
        soonest = sorted(places.values(), key=lambda same: short[same[0]].delayed.due_at)
        await for_each(soonest, self._sends_at_once, send)
        return answers

    async def _send_one(self, accepted: Accepted) -> str:
        for attempt in range(1, _TRIES + 1):
            began = await self._gate.enter()
            try:
                handle = await self._intake.send_short(accepted, patience=BURST_PATIENCE)
            except ServiceBusy as error:
                self._gate.throttled(error)
                if attempt == _TRIES:
                    raise
            else:
                self._gate.succeeded(began)
                return handle
            finally:
                self._gate.leave()
            await self._clock.sleep(
                retry_wait(
                    attempt,
                    base_s=_RETRY_BASE_SECONDS,
                    maximum_s=_RETRY_MAXIMUM_SECONDS,
                    random=self._random,
                )
            )
        raise AssertionError("unreachable")


def _check(outcomes: Sequence[ScheduleOutcome]) -> None:
    for outcome in outcomes:
        error = outcome.error
        if isinstance(error, StorageError):
            # A message that was not tried tells what kept it from being tried.
            reason = error.__cause__ if isinstance(error.__cause__, StorageError) else error
            raise SchedulingInterrupted(str(reason), outcome.index) from reason


def _tell(progress: OnProgress, now: ScheduleProgress) -> None:
    try:
        progress(now)
    except Exception:  # noqa: BLE001 - a broken display costs nobody a message or its handle
        _log.exception("progress callback %r failed", progress)


def _outcome(index: int, answer: str | PostdateError) -> ScheduleOutcome:
    if isinstance(answer, PostdateError):
        return ScheduleOutcome(index, None, answer)
    return ScheduleOutcome(index, answer, None)
