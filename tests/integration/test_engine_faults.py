"""What Azurite can't show, injected at the HTTP transport under the whole engine: each with its right outcome."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from postdate.backends.azure_storage.backend import open_backend
from postdate.clock import StorageClock, SystemClock
from postdate.compose import put_together
from postdate.engine.acceptance import Outgoing
from postdate.engine.changes import CancelOutcome
from postdate.errors import OutcomeUnknown, ServiceBusy
from postdate.events import (
    DispatchFailed,
    Events,
    HandedOver,
    MovedToErrorQueue,
    PassFailed,
    Removed,
    TermLost,
)
from postdate.model.envelope import unwrap
from postdate.settings import Guarantee
from postdate.testing.faults import Faults
from postdate.testing.signals import EventLog


@dataclass
class Scene:
    parts: Any
    faults: Faults
    log: EventLog
    queue: str

    async def schedule(self, n, delay, **options):
        return await self.parts.intake.schedule(
            Outgoing(self.queue, n, delay=delay, message_id=f"m{n}", **options)
        )

    async def schedule_together(self, count):
        """So many messages due at one instant: one pass, one removal.

        By the latest that it can be now: until its second turns the service's clock is known to a second,
        and an instant that is reached while this schedules would go straight to the queue, with no row.
        """
        at = self.parts.clock.latest() + timedelta(seconds=1)
        for n in range(count):
            outgoing = Outgoing(self.queue, n, at=at, message_id=f"m{n}")
            await self.parts.intake.schedule(outgoing)

    async def arrived(self):
        """Ids of all messages in the queue; none of them hidden longer than the test waits."""
        found = []
        while page := await self.parts.backend.receiver.receive(self.queue, count=32, visibility_s=60):
            found += [unwrap(r.text, r.native_id).message.message_id for r in page]
        return sorted(found)

    async def rows(self):
        return [row async for row in self.parts.backend.store.upcoming()]


@asynccontextmanager
async def open_scene(settings, **changes):
    settings = settings.model_copy(
        update={"lookahead": timedelta(0), "retry_base": timedelta(milliseconds=50), **changes}
    )
    queue, log = f"q-{settings.endpoint}"[:60].strip("-"), EventLog()
    async with Faults() as faults:
        clock = StorageClock(SystemClock())
        backend = await open_backend(settings, clock, wrap_transport=faults.wrap)
        try:
            await backend.store.create()
            await backend.lease.create()
            for name in (queue, settings.error_queue):
                await backend.sender.create(name)
            yield Scene(put_together(settings, backend, clock, Events([log])), faults, log, queue)
        finally:
            await backend.close()


@asynccontextmanager
async def running(scene):
    stop = asyncio.Event()
    task = asyncio.create_task(scene.parts.service.serve(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def test_an_empty_page_with_a_continuation_is_not_the_end(postdate_settings):
    async with open_scene(postdate_settings) as scene:
        await scene.schedule(1, 0.3)
        # A scan over 700 partition servers with nothing on them: the SDK's own iteration would recurse.
        rule = scene.faults.on("table.query", times=700).empty_page()
        async with running(scene):
            await scene.log.wait(HandedOver)
        assert rule.hits == 700
        assert await scene.arrived() == ["m1"]


async def test_a_busy_queue_service_delays_and_never_fails_a_message(postdate_settings):
    async with open_scene(postdate_settings, number_of_retries=0) as scene:
        await scene.schedule(1, 0.3)
        scene.faults.on("queue.send", times=3).respond(503, "ServerBusy")
        async with running(scene):
            await scene.log.wait(HandedOver)
        assert [e.counted for e in scene.log.of(DispatchFailed)] == [False] * 3
        assert scene.log.of(MovedToErrorQueue) == []
        assert await scene.arrived() == ["m1"]


async def test_a_send_that_was_applied_and_not_answered_is_repeated_under_the_same_id(postdate_settings):
    async with open_scene(postdate_settings) as scene:
        await scene.schedule(1, 0.3)
        rule = scene.faults.on("queue.send").lose_answer()
        async with running(scene):
            await scene.log.wait(HandedOver)
            await scene.log.wait(Removed)
        assert rule.hits == 1
        assert await scene.arrived() == ["m1", "m1"]  # at least once, and told apart by nothing but time
        assert await scene.rows() == []


async def test_at_most_once_does_not_repeat_a_send_that_was_not_answered(postdate_settings):
    async with open_scene(postdate_settings, guarantee=Guarantee.AT_MOST_ONCE) as scene:
        await scene.schedule(1, 0.3)
        scene.faults.on("queue.send").lose_answer()
        async with running(scene):
            await scene.log.wait(DispatchFailed)
            await scene.schedule(2, 0.3)
            await scene.log.wait(HandedOver)
        assert await scene.arrived() == ["m1", "m2"]


@pytest.mark.parametrize("how", ["lose_answer", "time_out"])
async def test_a_removal_that_was_applied_and_not_answered_doubles_nothing(postdate_settings, how):
    async with open_scene(postdate_settings) as scene:
        await scene.schedule_together(5)
        rule = scene.faults.on("table.batch_delete")
        getattr(rule, how)()
        async with running(scene):
            await scene.log.wait(HandedOver, count=5)
            await rule.reached.wait()
            await scene.schedule(9, 0.3)
            await scene.log.wait(HandedOver, count=6)
        assert await scene.arrived() == ["m0", "m1", "m2", "m3", "m4", "m9"]
        assert await scene.rows() == []


async def test_an_insert_that_was_applied_and_not_answered_is_one_row(postdate_settings):
    async with open_scene(postdate_settings) as scene:
        rule = scene.faults.on("table.insert").lose_answer()
        handle = await scene.schedule(1, 3600)
        assert rule.hits == 1
        assert len(await scene.rows()) == 1
        assert await scene.parts.changes.cancel(handle) is CancelOutcome.CANCELLED


async def test_scheduling_again_after_a_conflict_is_the_same_message(postdate_settings):
    async with open_scene(postdate_settings) as scene:
        at = scene.parts.clock.now() + timedelta(hours=1)

        async def schedule():
            outgoing = Outgoing(scene.queue, "x", at=at, message_id="twice")
            return await scene.parts.intake.schedule(outgoing)

        assert await schedule() == await schedule()  # the second insert is answered 409
        assert len(await scene.rows()) == 1


async def test_a_row_deleted_by_somebody_else_is_sent_and_forgotten(postdate_settings):
    """404 on delete: the message is out, the row is gone, and the pass goes on."""
    async with open_scene(postdate_settings) as scene:
        await scene.schedule_together(4)
        victim = (await scene.rows())[1]

        async def steal(call):
            del call
            assert await scene.parts.backend.store.remove([victim]) == [True]

        scene.faults.on("table.batch_delete").before(steal)
        async with running(scene):
            removed = await scene.log.wait(Removed)
        assert (removed.count, removed.missed) == (3, 1)
        assert await scene.arrived() == ["m0", "m1", "m2", "m3"]


async def test_a_row_changed_between_read_and_delete_stays(postdate_settings):
    """412 on delete: somebody gave the row new content; it is theirs now, and goes out again."""
    async with open_scene(postdate_settings) as scene:
        await scene.schedule_together(4)
        changed = (await scene.rows())[2]

        async def touch(call):
            del call
            await scene.parts.backend.store.update(changed, failure_count=1, next_attempt_at=None)

        scene.faults.on("table.batch_delete").before(touch)
        async with running(scene):
            await scene.log.wait(Removed, where=lambda e: e.missed == 1)
            await scene.log.wait(HandedOver, count=5)
        assert len(await scene.arrived()) == 5
        assert await scene.rows() == []


async def test_a_lease_lost_in_the_middle_of_a_page_stops_the_page(postdate_settings):
    async with open_scene(postdate_settings, send_concurrency=1, unremoved_limit=4) as scene:
        await scene.schedule_together(30)
        held = scene.faults.on("queue.send", nth=10).hold()
        stop = asyncio.Event()
        serving = asyncio.create_task(scene.parts.service.serve(stop))
        await held.reached.wait()
        # Somebody takes the lease away and leads; our next renewal finds out.
        rival = await open_backend(postdate_settings, StorageClock(SystemClock()))
        try:
            await rival.lease.break_lease()
            term = await rival.lease.acquire("rival", 15, 0.0)
            await scene.log.wait(TermLost)
            held.release()
            stop.set()
            await serving
            sent = len(await scene.arrived())
            assert sent <= 10  # the one that had left the guard behind, and none after it
            assert term == 2
            assert {e.term for e in scene.log.of(HandedOver)} == {1}
            # Nothing is lost: what was not sent waits, and what was sent and not removed is at most the limit.
            assert 30 - sent <= len(await scene.rows()) <= 30 - sent + 4
        finally:
            await rival.lease.release()
            await rival.close()


async def test_a_sick_table_is_backed_off_from_and_recovers(postdate_settings):
    async with open_scene(postdate_settings) as scene:
        await scene.schedule(1, 0.3)
        # Four attempts of the SDK's own are one call of ours.
        scene.faults.on("table.query", times=8).respond(500, "OperationTimedOut")
        async with running(scene):
            await scene.log.wait(PassFailed)
            await scene.log.wait(HandedOver)
        assert await scene.arrived() == ["m1"]


async def test_scheduling_into_a_busy_table_says_so_and_stores_nothing(postdate_settings):
    async with open_scene(postdate_settings) as scene:
        scene.faults.on("table.insert", times=100).respond(503, "ServerBusy")
        with pytest.raises(ServiceBusy):
            await scene.schedule(1, 3600)
        assert await scene.rows() == []


async def test_cancelling_while_the_answer_gets_lost_is_told_as_unsure_and_then_unknown(postdate_settings):
    async with open_scene(postdate_settings) as scene:
        handle = await scene.schedule(1, 3600)
        scene.faults.on("table.batch_delete").lose_answer()
        with pytest.raises(OutcomeUnknown):
            await scene.parts.changes.cancel(handle)
        assert await scene.parts.changes.cancel(handle) is CancelOutcome.UNKNOWN


async def test_a_table_that_is_being_deleted_is_no_duplicate_row(postdate_settings):
    async with open_scene(postdate_settings) as scene:
        scene.faults.on("table.insert", times=100).respond(409, "TableBeingDeleted")
        with pytest.raises(ServiceBusy, match="deletion is under way"):
            await scene.schedule(1, 3600)
