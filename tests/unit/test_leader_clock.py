"""A leader knows the service's clock: learned from calls that it makes anyway, whatever its own clock says."""

import asyncio
from datetime import timedelta

import pytest
from engine_cases import breakers_on

from postdate.backends.memory.lease import MemoryLease
from postdate.clock import StorageClock
from postdate.engine.elector import Elector
from postdate.events import ClockUnsure, Events, TermBegan
from postdate.testing.clock import VirtualClock
from postdate.testing.signals import EventLog

HOUR, FIVE_MINUTES = timedelta(hours=1), timedelta(minutes=5)


class Service:
    """A storage service whose clock is off and drifts, and whose answers carry whole seconds."""

    def __init__(self, offset, drift=0.0, latency=0.004):
        self.local = VirtualClock()
        self.clock = StorageClock(self.local)
        self.log = EventLog()
        self._began = (self.local.monotonic(), self.local.now() + offset)
        self._drift, self.latency = drift, latency
        self.calls = 0
        self._lease = MemoryLease({}, "lease", self.local)

    def truth(self):
        began, at = self._began
        return at + timedelta(seconds=(self.local.monotonic() - began) * (1 + self._drift))

    def __getattr__(self, name):
        inner = getattr(self._lease, name)

        async def call(*args):
            self.calls += 1
            sent = self.local.monotonic()
            await self.local.sleep(self.latency / 2)
            date = self.truth().replace(microsecond=0)
            answer = await inner(*args)
            await self.local.sleep(self.latency / 2)
            self.clock.observe(date, sent=sent, received=self.local.monotonic())
            return answer

        return call

    def elector(self, **changes):
        values = {
            "holder": "one",
            "lease_seconds": 15,
            "lookahead_seconds": 30.0,
            "probe_seconds": 3.0,
            "uncertainty_limit": 5.0,
            "breaker": breakers_on(self.clock).lease,
            **changes,
        }
        return Elector(self, self.clock, Events([self.log]), **values)


async def lead(service, elector, seconds, each=0.5):
    """Lead for so long, and look all the while: the truth is never outside of what the clock allows."""
    stop = asyncio.Event()
    running = asyncio.create_task(elector.run(stop))
    for _ in range(int(seconds / each)):
        await service.local.advance(each)
        if service.clock.uncertainty is not None:
            assert service.clock.now() <= service.truth() <= service.clock.latest()
    stop.set()
    await service.local.advance(10)
    await running


@pytest.mark.parametrize("offset", [timedelta(0), FIVE_MINUTES, -FIVE_MINUTES, timedelta(seconds=0.637)])
@pytest.mark.parametrize("drift", [0.0, 5e-5, -5e-5])
async def test_a_new_leader_knows_the_services_clock_within_ten_seconds(offset, drift):
    service = Service(offset, drift)
    await lead(service, service.elector(), 10)
    assert service.clock.uncertainty < 0.03
    assert service.calls <= 16


async def test_it_stays_known_by_renewals_alone():
    service = Service(FIVE_MINUTES, drift=3e-5)
    await lead(service, service.elector(), 900, each=5)
    assert service.clock.uncertainty < 0.03
    assert service.calls <= 10 + 900 / 4


async def test_a_step_of_the_machines_clock_changes_nothing():
    service = Service(timedelta(0))
    elector, stop = service.elector(), asyncio.Event()
    running = asyncio.create_task(elector.run(stop))
    await service.local.advance(20)
    before = service.clock.now() - service.truth()
    service.local.step(-HOUR)
    assert abs((service.clock.now() - service.truth()) - before) < timedelta(milliseconds=1)
    await service.local.advance(20)
    assert service.clock.now() <= service.truth() <= service.clock.latest()
    assert elector.may_act(1)
    stop.set()
    await service.local.advance(10)
    await running


async def test_who_does_not_know_the_services_clock_does_not_lead():
    service = Service(timedelta(0), latency=3.5)
    await lead(service, service.elector(uncertainty_limit=2.0), 60)
    assert service.log.of(TermBegan) == []
    assert service.log.of(ClockUnsure)
    record = await service._lease.holder()
    assert record.leased is False


async def test_it_leads_once_the_service_answers_faster():
    service = Service(timedelta(0), latency=3.5)
    elector, stop = service.elector(uncertainty_limit=2.0), asyncio.Event()
    running = asyncio.create_task(elector.run(stop))
    await service.local.advance(30)
    service.latency = 0.01
    await service.local.advance(10)
    assert len(service.log.of(TermBegan)) == 1
    stop.set()
    await service.local.advance(10)
    await running
