"""The scenario of the article on default retries: 20 messages, 20 delayed retries each."""

import asyncio
import statistics
import threading
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from bench.retries import MESSAGES, RETRIES, Scenario, changes, draw, on_storage, run_scenario
from postdate import Endpoint, Settings
from postdate.backends.memory import MemoryAccount
from postdate.clock import SystemClock
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
        while not scenario.all_failed.is_set() and clock.monotonic() - began < 300:
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


class Meter:
    """How long a plain request to the storage service takes at worst, meanwhile: what this machine adds to all."""

    def __init__(self, connection):
        self._url = dict(part.split("=", 1) for part in connection.split(";") if part)["QueueEndpoint"]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self.worst = 0.0

    def _measure(self):
        place, clock = urlsplit(self._url), SystemClock()
        while not self._over.is_set():
            began = clock.monotonic()
            connection = HTTPConnection(place.netloc)
            connection.request("GET", place.path)  # refused, since nobody signed it
            connection.getresponse().read()
            connection.close()
            self._over.wait(0.02)
            self.worst = max(self.worst, clock.monotonic() - began - 0.02)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._thread.join()


@pytest.mark.alone
async def test_scaled_by_a_tenth_on_azurite(postdate_settings, tmp_path):
    """A delay is two requests late: one puts the message off, the other finds it again."""
    unit = timedelta(seconds=0.1)
    with Meter(postdate_settings.connection.get_secret_value()) as meter:
        async with asyncio.timeout(120):
            scenario = await on_storage(postdate_settings, unit)
    print(f"the slowest plain request took {meter.worst:.3f} s")
    check(scenario, unit, tolerance=0.5 + 2 * meter.worst)
    assert statistics.median(gap.real - gap.asked for gap in scenario.gaps(unit)) <= 0.5
    draw(scenario.gaps(unit), tmp_path / "retries.png")
    assert (tmp_path / "retries.png").stat().st_size > 10_000
