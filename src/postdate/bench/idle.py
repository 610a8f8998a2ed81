"""What quiet costs, and what it does to the first message after it."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from postdate import Endpoint
from postdate.bench.account import Account, interval_of
from postdate.bench.bounds import Punctuality, judge
from postdate.bench.classic import LONGEST_WAIT_SECONDS, PEEK_SECONDS, Classic, idle_polls_after
from postdate.bench.classic_storage import LeanStorage
from postdate.bench.drain import QUIET_SECONDS, finished, running
from postdate.bench.ground import Ground
from postdate.bench.observe import Recorder
from postdate.bench.punctual import Leading
from postdate.bench.scale import Scale
from postdate.bench.workload import Messages, classic_entity, instant_of, seconds_of
from postdate.clock import Clock, SystemClock
from postdate.core.backoff import classic_idle_wait
from postdate.model.requests import Counts, RequestCounter, by_operation
from postdate.settings import Settings

HOUR_SECONDS = 3600.0
#: Quiet before the first message, as it is meant; how it is shortened is told with the figures.
QUIET_BEFORE_SECONDS = 1800.0
_UNSURE_SECONDS = 600.0


class FastClock:
    """The machine's clock, run so many times as fast: an hour of sleeping passes in a minute or two.

    The service's clock is not faster. So a lease lasts longer than its holder thinks, which changes no
    request, and each answer's `Date` looks like a step, which the storage clock takes as one.
    """

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._real = SystemClock()
        self._now = self._real.now()
        self._began = self._real.monotonic()

    def now(self) -> datetime:
        """The wall clock as it would be."""
        return self._now + timedelta(seconds=self._passed())

    def latest(self) -> datetime:
        """The same as `now()`."""
        return self.now()

    @property
    def uncertainty(self) -> float | None:
        """Zero."""
        return 0.0

    def good_probe(self, after: float) -> float:
        """Any instant is as good."""
        return after

    def monotonic(self) -> float:
        """Fast seconds."""
        return self._began + self._passed()

    async def sleep(self, seconds: float) -> None:
        """Wait for fast seconds."""
        await self._real.sleep(seconds / self._speed)

    async def pause(self, seconds: float) -> None:
        """The same as `sleep`."""
        await self.sleep(seconds)

    def _passed(self) -> float:
        return (self._real.monotonic() - self._began) * self._speed


#: Fast seconds after which a process has taken its lease, published it and learned the clock.
_SETTLED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class IdleHours:
    """Requests of one process in each hour without messages, by operation."""

    hours: list[dict[str, dict[str, int]]]
    speed: float

    def requests(self, hour: int) -> int:
        """All requests of an hour, counted from 0."""
        return sum(sum(ended.values()) for ended in self.hours[hour].values())


async def idle_hours(ground: Ground, scale: Scale) -> dict[str, IdleHours]:
    """An idle classic process, an idle leader and an idle follower, side by side on one account."""
    clocks = [FastClock(scale.idle_speed) for _ in range(3)]
    # A round trip seems longer on a fast clock, and the service's clock less well known.
    settings = ground.with_settings(clock_uncertainty_limit=timedelta(seconds=_UNSURE_SECONDS))
    elsewhere = ground.with_settings(
        endpoint=f"{ground.settings.endpoint}c", delays_table=f"{ground.settings.delays_table}c"
    )
    began = Leading()
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(Account(elsewhere))
        stack.push_async_callback(ours.remove)
        await ours.provision()
        account = await stack.enter_async_context(Account(elsewhere))
        await stack.enter_async_context(running(Classic(LeanStorage(account), clocks[0]).run))
        leader = await stack.enter_async_context(Endpoint(settings, clock=clocks[1], observers=[began]))
        await stack.enter_async_context(running(leader.run))
        await began.wait()
        follower = await stack.enter_async_context(Endpoint(settings, clock=clocks[2]))
        await stack.enter_async_context(running(follower.run))
        counters = {
            "classic": account.requests,
            "leader": leader.parts.backend.requests,
            "follower": follower.parts.backend.requests,
        }
        # Classic's quiet begins with its first poll, as after a message; ours when a process has settled.
        settled = (0.0, _SETTLED_SECONDS, _SETTLED_SECONDS)
        counted = await asyncio.gather(
            *(
                _hours(counter, clock, scale, after_s)
                for counter, clock, after_s in zip(counters.values(), clocks, settled, strict=True)
            )
        )
    return dict(zip(counters, counted, strict=True))


async def _hours(counter: RequestCounter, clock: Clock, scale: Scale, after_s: float) -> IdleHours:
    """Hours of quiet, which begins in so many seconds."""
    before: Counts = {}
    if after_s:
        await clock.sleep(after_s)
        before = counter.counts()
    began, hours = clock.monotonic(), []
    for hour in range(1, scale.idle_hours + 1):
        await clock.sleep(began + hour * HOUR_SECONDS - clock.monotonic())
        counts = counter.counts()
        made = {key: count - before.get(key, 0) for key, count in counts.items()}
        hours.append(by_operation({key: count for key, count in made.items() if count}))
        before = counts
    return IdleHours(hours, scale.idle_speed)


async def first_after_quiet(ground: Ground, settings: Settings, scale: Scale) -> Punctuality:
    """Idle endpoints, each with a leader of its own; then one message for each, by another process."""
    recorder, chance = Recorder(SystemClock()), random.Random(11)
    async with Account(ground.settings) as account, AsyncExitStack() as stack:
        leaders, senders = [], []
        for number in range(scale.idle_endpoints):
            own = await stack.enter_async_context(_further(ground, settings, number))
            leaders.append(await stack.enter_async_context(Endpoint(own, wrap_transport=recorder.wrap)))
            senders.append(await stack.enter_async_context(Endpoint(own)))
        for leader in leaders:
            # Begun at any phase of their beats.
            await account.clock.sleep(chance.uniform(0, 2 * scale.idle_quiet_s / 3) / len(leaders))
            await stack.enter_async_context(running(leader.run))
        await account.clock.sleep(scale.idle_quiet_s)
        await account.know_the_time(ground.queue, within_s=scale.clock_known_s)
        known, now = interval_of(account.clock), seconds_of(account.clock.now())
        due = _spread(now, scale, chance)
        for number, (sender, instant) in enumerate(zip(senders, due, strict=True)):
            message = Messages(sender.settings, account.clock, ground.queue).delayed(
                number, instant_of(instant)
            )
            await sender.parts.backend.store.add([message])
        await finished(recorder, len(due), quiet_s=due[-1] - now + QUIET_SECONDS)
        return judge(recorder.observed(), due, known)


async def classic_after_quiet(ground: Ground, scale: Scale) -> Punctuality:
    """The same with the classic algorithm, whose sleeps are as long as 30 quiet minutes make them."""
    recorder, chance = Recorder(SystemClock()), random.Random(11)
    polls = idle_polls_after(QUIET_BEFORE_SECONDS - scale.after_idle_delay_s)
    longest = classic_idle_wait(polls, PEEK_SECONDS, LONGEST_WAIT_SECONDS)
    async with Account(ground.settings) as ours, AsyncExitStack() as stack:
        accounts = []
        for number in range(scale.idle_endpoints):
            own = await stack.enter_async_context(_further(ground, ground.settings, number))
            account = await stack.enter_async_context(Account(own, recorder))
            classic = Classic(LeanStorage(account), SystemClock(), idle_polls=polls)
            first_wait = chance.uniform(0, min(longest, scale.after_idle_delay_s))
            await stack.enter_async_context(running(partial(classic.run, first_wait_s=first_wait)))
            accounts.append(account)
        await ours.know_the_time(ground.queue, within_s=scale.clock_known_s)
        known, now = interval_of(ours.clock), seconds_of(ours.clock.now())
        due = _spread(now, scale, chance)
        for number, (account, instant) in enumerate(zip(accounts, due, strict=True)):
            message = Messages(ground.settings, ours.clock, ground.queue).delayed(number, instant_of(instant))
            await account.insert([classic_entity(message)])
        await finished(recorder, len(due), quiet_s=due[-1] - now + QUIET_SECONDS)
        return judge(recorder.observed(), due, known)


def _spread(now: float, scale: Scale, chance: random.Random) -> Sequence[float]:
    """Due times after the delay, not all at one instant: these endpoints know nothing of each other."""
    first = now + scale.after_idle_delay_s
    return sorted(round(first + chance.uniform(0, 10), 6) for _ in range(scale.idle_endpoints))


@asynccontextmanager
async def _further(ground: Ground, settings: Settings, number: int) -> AsyncIterator[Settings]:
    """A further endpoint on the account, with table and container of its own."""
    name = f"{ground.settings.endpoint}e{number}"
    own = settings.model_copy(update={"endpoint": name, "delays_table": name})
    async with Account(own) as account:
        await account.provision()
        try:
            yield own
        finally:
            await account.remove()
