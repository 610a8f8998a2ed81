"""How late messages are: one after the other, many at one instant, and seen by a real consumer."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from postdate import Endpoint, Outgoing
from postdate.bench.account import Account, interval_of
from postdate.bench.bounds import Observed, Punctuality, appearances, judge, learned
from postdate.bench.classic import Classic
from postdate.bench.classic_storage import LeanStorage, SdkStorage
from postdate.bench.consumer import Consumer
from postdate.bench.drain import QUIET_SECONDS, finished, running
from postdate.bench.ground import CONSUMER, Ground
from postdate.bench.observe import Recorder
from postdate.bench.scale import Scale
from postdate.bench.workload import (
    Messages,
    body_of,
    burst,
    classic_entity,
    instant_of,
    one_by_one,
    seconds_of,
)
from postdate.clock import StorageClock, SystemClock
from postdate.core.clock_offset import OffsetInterval
from postdate.errors import StorageError
from postdate.events import Event, TermBegan
from postdate.settings import Settings

#: Due times, by number, from the present instant of the service (seconds since the epoch).
Plan = Callable[[float], Sequence[float]]

#: One in so many messages goes to the real consumer.
_SAMPLE = 20
_START_SECONDS = 30.0


def trickle(scale: Scale, ahead_s: float) -> Plan:
    """Messages at an even rate, due anywhere within their slots."""
    count = scale.trickle_rate * scale.trickle_seconds
    return lambda now: one_by_one(now + ahead_s, scale.trickle_rate, count, random.Random(7))


def all_at_once(scale: Scale, ahead_s: float) -> Plan:
    """Messages that are all due at one instant."""
    return lambda now: burst(now + ahead_s, scale.burst)


class Leading:
    """Tells when an endpoint leads; an observer."""

    def __init__(self) -> None:
        self._began = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        if isinstance(event, TermBegan):
            self._began.set()

    async def wait(self) -> None:
        """Wait for it.

        Raises:
            StorageError: it did not come to lead.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._began.wait()
        except TimeoutError:
            raise StorageError(f"the endpoint did not lead within {_START_SECONDS:.0f} s") from None


@asynccontextmanager
async def leading(settings: Settings, recorder: Recorder) -> AsyncIterator[Endpoint]:
    """An endpoint that leads, and another one of the same name that only schedules: that is what is given.

    A leader is woken by what its own process schedules; it shall not be here.
    """
    began = Leading()
    async with (
        Endpoint(settings, observers=[began], wrap_transport=recorder.wrap) as leader,
        Endpoint(settings, wrap_transport=recorder.wrap) as sender,
        running(leader.run),
    ):
        await began.wait()
        yield sender


async def measure_postdate(ground: Ground, settings: Settings, plan: Plan, scale: Scale) -> Punctuality:
    """Schedule as planned, by another process than the leader, and see when each is receivable."""
    recorder = Recorder(SystemClock())
    async with Account(ground.settings) as account, leading(settings, recorder) as sender:
        await account.know_the_time(ground.queue, within_s=scale.clock_known_s)
        known, now = interval_of(account.clock), seconds_of(account.clock.now())
        due = plan(now)
        await schedule(sender, [ground.queue] * len(due), due)
        _check_ahead(account.clock, due)
        await finished(recorder, len(due), quiet_s=due[-1] - now + QUIET_SECONDS)
        return judge(recorder.observed(), due, known)


async def measure_classic(
    ground: Ground, variant: type[LeanStorage | SdkStorage], plan: Plan, scale: Scale
) -> Punctuality:
    """Insert rows as planned, and see when each is receivable."""
    recorder, clock = Recorder(SystemClock()), SystemClock()
    async with Account(ground.settings, recorder) as account, Account(ground.settings) as ours:
        await ours.know_the_time(ground.queue, within_s=scale.clock_known_s)
        async with running(Classic(variant(account), clock).run):
            known, now = interval_of(ours.clock), seconds_of(ours.clock.now())
            due = plan(now)
            messages = Messages(ground.settings, clock, ground.queue).at(due)
            await ours.insert([classic_entity(message) for message in messages])
            _check_ahead(ours.clock, due)
            await finished(recorder, len(due), quiet_s=due[-1] - now + QUIET_SECONDS)
        return judge(recorder.observed(), due, known)


async def schedule(sender: Endpoint, queues: Sequence[str], due: Sequence[float]) -> None:
    """Schedule a message for each due time, numbered from 0.

    Raises:
        PostdateError: one was refused.
    """
    done = await sender.schedule_many(
        Outgoing(queue, body_of(number), at=instant_of(instant))
        for number, (queue, instant) in enumerate(zip(queues, due, strict=True))
    )
    for error in done.failures.values():
        raise error


def _check_ahead(clock: StorageClock, due: Sequence[float]) -> None:
    behind = seconds_of(clock.now()) - due[0]
    if behind > 0:
        raise StorageError(f"scheduling {len(due)} messages ended {behind:.1f} s after the first was due")


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """What a real consumer saw, beside what the puts' answers say."""

    #: Messages that it received.
    sample: int
    #: Received before their due time.
    early: int
    #: Received before the computed lower bound.
    before_bounds: int
    #: From the computed lower bound to the latest instant at which the receive can have been handled.
    behind_p50_s: float
    behind_max_s: float


async def cross_check(ground: Ground, scale: Scale, settings: Settings) -> CrossCheck:
    """A trickle of which every twentieth message goes to a queue that a consumer polls without rest."""
    recorder = Recorder(SystemClock())
    async with Account(ground.settings) as account, leading(settings, recorder) as sender:
        await account.know_the_time(ground.queue, within_s=scale.clock_known_s)
        known, now = interval_of(account.clock), seconds_of(account.clock.now())
        due = trickle(scale, scale.rows_ahead_s)(now)
        sampled = range(0, len(due), _SAMPLE)
        queues = [f"{ground.queue}@{CONSUMER}" if n in sampled else ground.queue for n in range(len(due))]
        await schedule(sender, queues, due)
        patience = due[-1] - now + QUIET_SECONDS
        consumer = Consumer(sender, f"{ground.queue}@{CONSUMER}")
        async with running(consumer.run):
            await finished(recorder, len(due), quiet_s=patience)
            if not await consumer.until(len(sampled), within_s=patience):
                raise StorageError(f"{len(consumer.first)} of {len(sampled)} messages reached the consumer")
        return _compare(list(recorder.observed()), due, known, consumer.first)


def _compare(
    puts: Sequence[Observed],
    due: Sequence[float],
    known: OffsetInterval | None,
    seen: dict[int, tuple[float, float]],
) -> CrossCheck:
    found = appearances(puts, known).first
    for put in sorted(puts, key=lambda put: put.received):
        known = learned(known, put)
    assert known is not None
    early = before = 0
    behind = []
    for number, (_, received) in seen.items():
        clock = known.aged(received)
        handled_high = received + clock.high
        early += handled_high < due[number]
        before += handled_high < found[number].low
        behind.append(handled_high - found[number].low)
    behind.sort()
    return CrossCheck(len(seen), early, before, behind[len(behind) // 2], behind[-1])
