"""Clocks: the storage clock answers with the earliest that it can be over there; waiting ends on time."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from postdate.clock import EPOCH, StorageClock, SystemClock, wait_for

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class HandClock:
    """A machine whose clocks are set by hand; a sleep ends when the test says so."""

    def __init__(self) -> None:
        self.wall, self.seconds = NOON, 5000.0
        self.sleeps: list[float] = []
        self.woken = asyncio.Event()

    def now(self) -> datetime:
        return self.wall

    def latest(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await self.woken.wait()


def test_before_any_response_the_storage_clock_is_the_machines():
    clock = StorageClock(HandClock())
    assert clock.now() == clock.latest() == NOON
    assert clock.uncertainty is None
    assert clock.offset is None


def test_after_a_response_it_is_the_earliest_and_latest_that_it_can_be_there():
    machine = HandClock()
    clock = StorageClock(machine)
    server = NOON + timedelta(minutes=5)
    clock.observe(server, sent=4999.8, received=5000.0)
    assert clock.now() == server
    assert timedelta(seconds=1.2) <= clock.latest() - server < timedelta(seconds=1.21)
    assert clock.uncertainty is not None
    assert 1.2 <= clock.uncertainty < 1.21
    assert clock.offset is not None
    assert 300.6 <= clock.offset < 300.61


def test_it_goes_on_with_the_monotonic_clock_and_not_with_the_wall_clock():
    machine = HandClock()
    clock = StorageClock(machine)
    clock.observe(NOON, sent=5000.0, received=5000.0)
    machine.wall -= timedelta(days=1)
    machine.seconds += 10
    assert clock.now() == NOON + timedelta(seconds=10 - 10 * 100e-6)
    assert clock.monotonic() == 5010.0


def test_more_responses_make_it_surer():
    machine = HandClock()
    clock = StorageClock(machine)
    clock.observe(NOON, sent=5000.0, received=5000.01)
    machine.seconds = 5000.6
    clock.observe(NOON + timedelta(seconds=1), sent=5000.59, received=5000.6)
    assert clock.uncertainty is not None
    assert clock.uncertainty < 0.7


async def test_it_sleeps_on_the_machines_clock():
    machine = HandClock()
    machine.woken.set()
    await StorageClock(machine).sleep(7.5)
    assert machine.sleeps == [7.5]


async def test_the_system_clock_is_aware_and_grows():
    clock = SystemClock()
    before = clock.now()
    assert before.tzinfo is UTC
    assert before <= clock.latest()
    assert before > EPOCH
    first = clock.monotonic()
    await clock.sleep(-1)
    assert clock.monotonic() >= first


async def test_where_there_is_no_boot_time_clock_the_monotonic_one_is_taken(monkeypatch):
    monkeypatch.setattr("postdate.clock._BOOTTIME", None)
    before = time.monotonic()
    assert before <= SystemClock().monotonic() <= time.monotonic()


async def test_waiting_ends_at_once_when_the_event_is_set_or_no_time_is_given():
    machine, event = HandClock(), asyncio.Event()
    assert await wait_for(event, 0, machine) is False
    assert await wait_for(event, -5, machine) is False
    event.set()
    assert await wait_for(event, 60, machine) is True
    assert machine.sleeps == []


async def test_waiting_ends_when_the_event_is_set():
    machine, event = HandClock(), asyncio.Event()
    waiting = asyncio.create_task(wait_for(event, 60, machine))
    await asyncio.sleep(0)
    event.set()
    assert await waiting is True
    assert machine.sleeps == [60]
    assert len(asyncio.all_tasks()) == 1


async def test_waiting_ends_when_the_time_is_over():
    machine, event = HandClock(), asyncio.Event()
    waiting = asyncio.create_task(wait_for(event, 60, machine))
    await asyncio.sleep(0)
    machine.woken.set()
    assert await waiting is False
    assert len(asyncio.all_tasks()) == 1


async def test_waiting_that_is_cancelled_leaves_nothing_behind():
    waiting = asyncio.create_task(wait_for(asyncio.Event(), 60, HandClock()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert len(asyncio.all_tasks()) == 1
