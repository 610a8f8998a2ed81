"""What a task does: its ranges are handed over by the engine of every leader, in the driver's term."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

from postdate.backends.own_store import WithOwnStore
from postdate.clock import Clock, wait_for
from postdate.core.backoff import retry_wait
from postdate.endpoint import Endpoint
from postdate.engine.handover import know_the_time
from postdate.engine.passes import Passes
from postdate.engine.passing import make_passes
from postdate.errors import PostdateError, StorageError
from postdate.spark import tasks
from postdate.spark.draining.fence import Fence
from postdate.spark.draining.order import Order, stop_mark
from postdate.spark.draining.pacing import Pacer
from postdate.spark.draining.rows import RangeRows
from postdate.spark.draining.tally import DONE, LOST, STOPPED, Claim, Tally
from postdate.spark.reference import SettingsReference
from postdate.spark.tasks import azure_backend, opened

#: What a task yields, as Spark's schema.
ANSWER = "task int, told binary"
#: Tries to read a range, and the pauses between them in seconds.
_TRIES = 5
_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 8.0


def drain_share(
    settings: SettingsReference, order: Order, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The whole of a task: one row goes in and names it, one comes out and tells its tally."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            told = tasks.run(partial(_drain, settings, order, number))
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), pa.array([told], pa.binary())], names=["task", "told"]
            )


async def _drain(settings: SettingsReference, order: Order, number: int) -> bytes:
    """One share; its `Claim` as JSON.

    Raises:
        PostdateError: the service failed for long, or another attempt took over.
    """
    async with opened(settings) as endpoint:
        await know_the_time(endpoint.parts.clock, endpoint.parts.backend)
        backend = azure_backend(endpoint)
        claim = backend.claim(order.claim(number))

        async def stop_asked() -> bool:
            return await backend.bulk.get(stop_mark(order.run)) is not None

        fence = Fence(order.term, order.lease_id, backend.lease, claim, endpoint.parts.clock, stop_asked)
        said = await fence.enter()
        if said is None:
            return Claim(told=Tally(end=_end(fence))).json()
        before = Claim.read(said)
        try:
            if before.told is None:
                mine = Claim(before.attempts + 1)
                await claim.write(mine.json())
                tally = Tally(unheard=before.attempts)
                await _watched(fence, _hand_over(endpoint, order, number, fence, tally))
                tally.end = _end(fence)
                before = Claim(mine.attempts, tally)
                await claim.write(before.json())
        finally:
            with suppress(StorageError):  # it runs out
                await claim.give_back()
        return before.json()


async def _watched(fence: Fence, work: Coroutine[Any, Any, None]) -> None:
    """Do the work while the fence is watched; without that it can't be done."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(fence.watch())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [task for task in (working, watching) if task.done()]
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    for task in ended:
        task.result()


async def _hand_over(endpoint: Endpoint, order: Order, number: int, fence: Fence, tally: Tally) -> None:
    parts = endpoint.parts
    parts.events.observe(tally)
    backend = azure_backend(endpoint)
    rows = RangeRows(backend.store, order.shares[number], fence, Pacer(order.rates, parts.clock))
    limited = WithOwnStore(backend, rows)
    passes = make_passes(
        parts.settings, limited, parts.clock, parts.events, fence, parts.breakers, timed=False
    )
    share = _Share(passes, order.term, fence, tally, parts.clock)
    # What fails for long is an error here, as where a leader serves.
    await parts.breakers.watch(share.hand_over, fence.stop)
    if fence.overtaken:
        raise PostdateError(f"task {number}: another attempt took it over, since this one stood still")


@dataclass(frozen=True, slots=True)
class _Share:
    passes: Passes
    term: int
    fence: Fence
    tally: Tally
    clock: Clock

    async def hand_over(self, stop: asyncio.Event) -> None:
        """Pass over the share until nothing was refused for want of a proof.

        Raises:
            StorageError: it can't be read, or the service tells nothing of the term.
        """
        failures = 0
        while not self.fence.ended and not stop.is_set():
            await self.fence.sure()
            self.fence.refused = False
            try:
                result = await self.passes.one_pass(self.term, stop, ask_next=False)
            except StorageError:
                failures += 1
                if failures == _TRIES:
                    raise
                pause = retry_wait(
                    failures, base_s=_PAUSE_SECONDS, maximum_s=_LONGEST_PAUSE_SECONDS, random=Random()
                )
                await wait_for(stop, pause, self.clock)
                continue
            self.tally.failed += result.failed
            if not self.fence.refused:
                self.tally.waiting += result.waiting
                return


def _end(fence: Fence) -> str:
    if fence.lost:
        return LOST
    return STOPPED if fence.stop.is_set() else DONE
