"""Who takes part beside the serving processes: the sender and the consumers."""

import asyncio
from datetime import datetime, timedelta

from postdate import Endpoint
from postdate.demo.ledger import Ledger
from postdate.demo.scenario import Change, Planned, Scenario

#: Calls of the sender that run at once.
_CALLS = 16
DOOMED_QUEUE = "demo-doomed"


class Sender:
    """Schedules the scenario's messages at their times, then cancels and moves what it says."""

    def __init__(self, endpoint: Endpoint, scenario: Scenario, ledger: Ledger) -> None:
        self._endpoint = endpoint
        self._scenario = scenario
        self._ledger = ledger
        self._calls = asyncio.Semaphore(_CALLS)
        self._clock = endpoint.parts.clock
        self._began = 0.0
        self._began_at = self._clock.now()

    async def run(self) -> None:
        """Returns when everything is scheduled and changed.

        Raises:
            PostdateError: a message was not accepted.
        """
        self._began, self._began_at = self._clock.monotonic(), self._clock.now()
        async with asyncio.TaskGroup() as messages:
            for planned in self._scenario.messages:
                await self._until(planned.send_at)
                messages.create_task(self._one(planned))

    async def _until(self, seconds: float) -> None:
        await self._clock.sleep(self._began + seconds - self._clock.monotonic())

    def _instant(self, seconds: float) -> datetime:
        return self._began_at + timedelta(seconds=seconds)

    async def _one(self, planned: Planned) -> None:
        queue = DOOMED_QUEUE if planned.doomed else self._endpoint.settings.own_queue
        body = {"message": planned.message_id}
        async with self._calls:
            if planned.at_instant:
                handle = await self._endpoint.schedule(
                    queue, body, at=self._instant(planned.due_at), message_id=planned.message_id
                )
            else:
                delay = planned.due_at - planned.send_at
                handle = await self._endpoint.schedule(
                    queue, body, delay=delay, message_id=planned.message_id
                )
            if planned.doomed:
                await self._endpoint.parts.backend.sender.delete(DOOMED_QUEUE)
                self._ledger.doomed(planned.message_id)
        if planned.change is not Change.NONE:
            await self._until(planned.change_at)
            async with self._calls:
                await self._change(planned, handle)

    async def _change(self, planned: Planned, handle: str) -> None:
        if planned.change is Change.CANCEL:
            self._ledger.cancelled(planned.message_id, await self._endpoint.cancel(handle))
        else:
            result = await self._endpoint.reschedule(handle, at=self._instant(planned.new_due_at))
            self._ledger.moved(planned.message_id, str(result.outcome), result.due_at)


async def consume(endpoint: Endpoint, ledger: Ledger) -> None:
    """Take whatever becomes visible in the endpoint's queue, note when, and acknowledge; until cancelled.

    The clock is read before anything else is awaited: `latest()` is the latest instant that it can be at
    the service, so a message whose due time lies behind it was early for sure.
    """
    clock = endpoint.parts.clock
    async with asyncio.TaskGroup() as acks:
        async for delivery in endpoint.receive():
            ledger.arrived(delivery, clock.latest())
            acks.create_task(delivery.ack())


async def collect_failures(endpoint: Endpoint, ledger: Ledger) -> None:
    """Take what goes to the error queue; until cancelled."""
    async for delivery in endpoint.receive(endpoint.settings.error_queue):
        ledger.failed(delivery)
        await delivery.ack()
