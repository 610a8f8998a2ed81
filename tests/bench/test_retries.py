"""The scenario of the article on default retries: 20 messages, 20 delayed retries each."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from bench.retries import MESSAGES, RETRIES, Scenario, changes, draw, on_storage, run_scenario
from postdate import Endpoint, Settings
from postdate.backends.memory import MemoryAccount
from postdate.model.envelope import unwrap
from postdate.testing.clock import VirtualClock


def memory_settings(unit):
    defaults = {name: f.get_default(call_default_factory=True) for name, f in Settings.model_fields.items()}
    return Settings(**defaults | {"endpoint": "Article", "backend": "memory"} | changes(unit))


def check(scenario, unit, *, tolerance):
    gaps = scenario.gaps(unit)
    assert len(scenario.attempts) == MESSAGES * (RETRIES + 1) == 420
    assert len(gaps) == MESSAGES * RETRIES == 400
    assert Counter(attempt.order for attempt in scenario.attempts) == {
        str(n): RETRIES + 1 for n in range(1, MESSAGES + 1)
    }
    assert len({(attempt.order, attempt.number) for attempt in scenario.attempts}) == 420
    for order in range(1, MESSAGES + 1):
        headers = [a.retries_header for a in scenario.attempts if a.order == str(order)]
        assert headers == [None, *map(str, range(1, RETRIES + 1))]
    assert min(gap.real - gap.asked for gap in gaps) >= -1e-6  # the rounding of sums
    assert max(gap.real - gap.asked for gap in gaps) <= tolerance
    assert len(scenario.failed) == MESSAGES
    assert {event.attempts for event in scenario.failed} == {RETRIES + 1}


@pytest.mark.parametrize("consumers", [1, 3])
async def test_unscaled_in_virtual_time(consumers):
    unit = timedelta(seconds=1)
    clock, memory, scenario = VirtualClock(), MemoryAccount(), Scenario()
    began = clock.monotonic()

    async def let_time_pass():
        while not scenario.all_failed.is_set():
            await clock.advance(1)
        return clock.monotonic() - began

    async with AsyncExitStack() as stack:
        endpoints = [
            await stack.enter_async_context(
                scenario.on(
                    Endpoint(memory_settings(unit), clock=clock, memory=memory, observers=[scenario.hear]),
                    clock.monotonic,
                )
            )
            for _ in range(consumers)
        ]
        await endpoints[0].setup()
        await run_scenario(endpoints, scenario, let_time_pass)
    check(scenario, unit, tolerance=1.0)
    assert 210 <= clock.monotonic() - began <= 235
    queues = memory.queues
    assert len(queues["error"].messages) == MESSAGES
    assert all(not slot.messages for name, slot in queues.items() if name != "error")
    assert all(not table.rows for table in memory.tables.values())
    for stored in queues["error"].messages.values():
        headers = unwrap(stored.text, stored.native_id).message.headers
        assert headers["NServiceBus.FailedQ"] == "article"
        assert "NServiceBus.Retries" not in headers
        assert "NServiceBus.Retries.Timestamp" not in headers


@pytest.mark.alone
async def test_scaled_by_a_tenth_on_azurite(postdate_settings, tmp_path):
    unit = timedelta(seconds=0.1)
    async with asyncio.timeout(120):
        scenario = await on_storage(postdate_settings, unit)
    check(scenario, unit, tolerance=0.5)
    draw(scenario.gaps(unit), tmp_path / "retries.png")
    assert (tmp_path / "retries.png").stat().st_size > 10_000
