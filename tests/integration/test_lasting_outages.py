"""Failures of a real service that last: each ends `run` cleanly, or is told and gone when the service is back."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from postdate import Endpoint
from postdate.errors import CriticalFailure, StorageError
from postdate.events import BreakerDisarmed, BreakerTriggered, HandedOver, TermBegan
from postdate.testing.faults import Faults
from postdate.testing.signals import EventLog

SECOND = timedelta(seconds=1)
FOR_EVER = 10**9
#: Short windows, so that an outage of seconds lasts long.
QUICK = {
    "lookahead": timedelta(0),
    "idle_interval": SECOND / 2,
    "probe_interval": SECOND / 5,
    "retry_base": SECOND / 20,
    "retry_maximum": SECOND,
    "time_to_trigger_store_circuit_breaker": SECOND,
    "time_to_trigger_fetch_circuit_breaker": SECOND,
    "time_to_trigger_dispatch_circuit_breaker": SECOND,
    "maximum_recovery_failures_per_second": 0.1,
}


class Scene:
    def __init__(self, settings, faults, on_critical_error=None):
        self.faults, self.log = faults, EventLog()
        self.queue = f"q-{settings.endpoint}"[:60].strip("-")
        self.settings = settings.model_copy(update={**QUICK, "error_queue": f"{self.queue}-e"[:63]})
        self.endpoint = Endpoint(
            self.settings,
            observers=[self.log],
            wrap_transport=faults.wrap,
            on_critical_error=on_critical_error,
        )

    async def schedule(self, n=0, delay=0.2):
        return await self.endpoint.schedule(self.queue, n, delay=delay, message_id=f"m{n}")


@asynccontextmanager
async def open_scene(settings, on_critical_error=None):
    async with Faults() as faults:
        scene = Scene(settings, faults, on_critical_error)
        async with scene.endpoint:
            await scene.endpoint.setup(scene.queue)
            yield scene


@asynccontextmanager
async def running(scene):
    stop = asyncio.Event()
    task = asyncio.create_task(scene.endpoint.run(stop))
    try:
        await scene.log.wait(TermBegan)
        yield task
    finally:
        stop.set()
        await asyncio.gather(task, return_exceptions=True)


OUTAGES = {
    "reading the table": ("table.query", "fetch"),
    "sending to the queue": ("queue.send", "dispatch"),
    "removing rows": ("table.*delete", "dispatch"),
}


@pytest.mark.parametrize(("operation", "breaker"), OUTAGES.values(), ids=OUTAGES.keys())
async def test_an_outage_that_lasts_ends_run_gives_the_lease_back_and_loses_nothing(
    postdate_settings, operation, breaker
):
    async with open_scene(postdate_settings) as scene:
        async with running(scene) as task:
            rule = scene.faults.on(operation, times=FOR_EVER).respond(503, "ServerBusy")
            for n in range(5):
                await scene.schedule(n)
            async with asyncio.timeout(40):
                with pytest.raises(CriticalFailure, match="Failed to "):
                    await task
        assert [e.breaker for e in scene.log.of(BreakerTriggered)] == [breaker]
        assert (await scene.endpoint.parts.backend.lease.holder()).leased is False
        rule.takes = lambda call: False  # the service is well again
        async with running(scene):
            await scene.log.wait(HandedOver, where=lambda e: e.message_id == "m4")
            while [row async for row in scene.endpoint.upcoming()]:
                await scene.endpoint.parts.clock.sleep(0.05)
        queue = scene.endpoint.parts.backend.sender
        assert await queue.approximate_count(scene.queue) >= 5


async def test_what_a_callback_takes_care_of_goes_on_and_is_over_when_the_service_is_back(postdate_settings):
    told = asyncio.Queue()
    async with open_scene(postdate_settings, told.put_nowait) as scene, running(scene) as task:
        rule = scene.faults.on("table.query", times=FOR_EVER).respond(500, "OperationTimedOut")
        async with asyncio.timeout(40):
            assert (await told.get()).breaker == "fetch"
        assert not task.done()
        rule.takes = lambda call: False
        await scene.log.wait(BreakerDisarmed, where=lambda e: e.triggered)
        await scene.schedule(1)
        await scene.log.wait(HandedOver)


async def test_storing_that_fails_is_told_where_nobody_serves(postdate_settings):
    told = []
    async with open_scene(postdate_settings, told.append) as scene:
        scene.faults.on("table.insert", times=FOR_EVER).respond(503, "ServerBusy")
        async with asyncio.timeout(40):
            while not told:
                with pytest.raises(StorageError):
                    await scene.schedule(delay=3600)
        assert [record.breaker for record in told] == ["store"]


async def test_a_lease_without_an_answer_is_critical_also_for_a_follower(postdate_settings):
    async with open_scene(postdate_settings) as leader, running(leader), Faults() as faults:
        follower = Scene(postdate_settings, faults)
        # It hears twice that somebody else leads, and then nothing more.
        faults.on("lease.acquire", nth=3, times=FOR_EVER).respond(503, "ServerBusy")
        async with follower.endpoint, asyncio.timeout(40):
            with pytest.raises(CriticalFailure, match="Failed to ask for the lease"):
                await follower.endpoint.run()
        assert follower.log.of(TermBegan) == []


async def test_an_error_queue_that_is_gone_is_critical_and_gets_the_message_once_it_is_there(
    postdate_settings,
):
    settings = postdate_settings.model_copy(update={"number_of_retries": 0})
    async with open_scene(settings) as scene:
        sender = scene.endpoint.parts.backend.sender
        gone = f"{scene.queue}-g"[:63]
        await sender.create(gone)
        await scene.endpoint.schedule(gone, "x", delay=1)
        await sender.delete(gone)
        await sender.delete(scene.settings.error_queue)
        async with running(scene) as task, asyncio.timeout(60):
            with pytest.raises(CriticalFailure, match="Failed to execute error handling"):
                await task
        assert [e.breaker for e in scene.log.of(BreakerTriggered)] == ["recovery"]
        assert len([row async for row in scene.endpoint.upcoming()]) == 1
        await sender.create(scene.settings.error_queue)
        async with running(scene):
            while not await sender.approximate_count(scene.settings.error_queue):
                await scene.endpoint.parts.clock.sleep(0.05)
