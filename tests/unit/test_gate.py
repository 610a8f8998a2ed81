"""Sends at once: more while latency holds, no more when it grows, half when the service is busy."""

import asyncio

import pytest

from postdate.engine.gate import Gate
from postdate.events import Events, Throttled
from postdate.testing.clock import VirtualClock
from postdate.testing.signals import EventLog


def gate_of(maximum=64):
    log = EventLog()
    clock = VirtualClock()
    return Gate(maximum, Events([log]), clock), clock, log


def sends(gate, clock, count, seconds):
    """So many sends that took so long."""
    for _ in range(count):
        gate.succeeded(clock.monotonic() - seconds(gate.limit))


def test_it_grows_to_the_maximum_while_latency_holds():
    gate, clock, log = gate_of(40)
    sends(gate, clock, 5000, lambda limit: 0.02)
    assert gate.limit == 40
    assert log.of(Throttled) == []


def test_it_stops_growing_where_more_at_once_only_wait_longer():
    gate, clock, _ = gate_of(256)
    # A service that handles one after the other: twice as many at once take twice as long.
    sends(gate, clock, 20_000, lambda limit: 0.002 * limit)
    assert 16 < gate.limit < 64


def test_a_few_that_wait_on_purpose_don_t_stop_it():
    gate, clock, _ = gate_of(32)
    for n in range(5000):
        gate.succeeded(clock.monotonic() - (0.1 if n % 10 == 0 else 0.01))
    assert gate.limit == 32


def test_it_halves_each_time_the_service_is_busy_and_recovers():
    gate, clock, log = gate_of(64)
    sends(gate, clock, 10_000, lambda limit: 0.01)
    assert gate.limit == 64
    for expected in (32, 16, 8, 4, 2, 1, 1):
        gate.throttled(RuntimeError("503"))
        assert gate.limit == expected
    assert [event.concurrency for event in log.of(Throttled)] == [32, 16, 8, 4, 2, 1]
    sends(gate, clock, 10_000, lambda limit: 0.01)
    assert gate.limit == 64


async def test_refusals_of_one_moment_halve_it_once():
    gate, _, log = gate_of(64)
    for _ in range(16):
        await gate.enter()
    for _ in range(16):
        gate.throttled(RuntimeError("503"))
        gate.leave()
    assert gate.limit == 8
    for _ in range(2):
        await gate.enter()
        gate.throttled(RuntimeError("503"))
        gate.leave()
    assert gate.limit == 2
    assert [event.concurrency for event in log.of(Throttled)] == [8, 4, 2]


@pytest.mark.parametrize("maximum", [1, 3, 16])
async def test_never_more_than_the_limit_are_inside(maximum):
    gate, _, _ = gate_of(maximum)
    inside = most = 0

    async def one():
        nonlocal inside, most
        await gate.enter()
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        gate.leave()

    await asyncio.gather(*(one() for _ in range(100)))
    assert most == maximum
