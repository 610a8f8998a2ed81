"""The driver as leader: the elector of every process, on an event loop in a thread of its own.

Where another process leads, the driver waits as any follower does; or asks it to step aside: the service
refuses that leader its next renewal, and gives the lease to nobody before its time is over. So a leader of
any kind, .NET too, finds its term at an end by its own rules, and is a follower again.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from postdate.clock import wait_for
from postdate.endpoint import Endpoint
from postdate.errors import StorageError
from postdate.spark.reference import SettingsReference

#: How often the lease is asked for where a leader was told to step aside: it must not be the first again.
_EAGER = timedelta(seconds=0.3)
#: Seconds after which it is told again, where it led on all the same.
_AGAIN_SECONDS = 20.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Leading:
    """The term in which the driver leads."""

    term: int
    lease_id: str = field(repr=False)


@contextmanager
def leading(
    settings: SettingsReference, stop: threading.Event, *, take_over: bool
) -> Iterator[Leading | None]:
    """Lead from the first line of the block to its last; None: asked to stop before that came to be.

    The lease is renewed meanwhile. If it is lost, nothing is raised here: executors find out by themselves.

    Raises:
        PostdateError: settings are wrong, or the service does not answer.
    """
    leader = _Leader(settings, stop, take_over=take_over)
    with ThreadPoolExecutor(1, "postdate-leader") as threads:
        running = threads.submit(asyncio.run, leader.run())
        running.add_done_callback(leader.ended)
        try:
            yield leader.began.result()
        finally:
            leader.give_back.set()
            running.result()


class _Leader:
    def __init__(self, settings: SettingsReference, stop: threading.Event, *, take_over: bool) -> None:
        loaded = settings.load()
        self._settings = loaded.model_copy(update={"probe_interval": _EAGER}) if take_over else loaded
        self._stop = stop
        self._take_over = take_over
        self.began: Future[Leading | None] = Future()
        self.give_back = threading.Event()

    def ended(self, running: "Future[None]") -> None:
        """It is over: who still waits for the beginning waits no more."""
        if not self.began.done():
            error = running.exception()
            if error is None:
                self.began.set_result(None)
            else:
                self.began.set_exception(error)

    async def run(self) -> None:
        """Lead until the lease is to be given back, or lost.

        Raises:
            StorageUnreachable: there is no answer.
            CriticalFailure: there was none for as long as the breaker of the lease bears.
        """
        async with Endpoint(self._settings) as endpoint:
            await endpoint.parts.backend.lease.holder()  # no answer is told at once
            await endpoint.parts.breakers.watch(partial(self._lead, endpoint))

    async def _lead(self, endpoint: Endpoint, critical: asyncio.Event) -> None:
        elector, stop, tried = endpoint.parts.elector, asyncio.Event(), asyncio.Event()
        electing = asyncio.create_task(elector.run(stop, tried), name="postdate-elector")
        try:
            await tried.wait()
            term = await self._elected(endpoint, critical)
            if term is not None:
                leading, changed = term
                self.began.set_result(leading)
                # A second term would be nobody's: the executors act in the first.
                while not (changed.is_set() or self.give_back.is_set()):
                    await wait_for(changed, _LOOK_SECONDS, endpoint.parts.clock)
        finally:
            stop.set()
            await electing

    async def _elected(
        self, endpoint: Endpoint, critical: asyncio.Event
    ) -> tuple[Leading, asyncio.Event] | None:
        """The term, and what is set at its end; None: asked to stop."""
        elector, lease, clock = endpoint.parts.elector, endpoint.parts.backend.lease, endpoint.parts.clock
        told_at = float("-inf")
        while not (self._stop.is_set() or self.give_back.is_set() or critical.is_set()):
            changed, term, lease_id = elector.changed, elector.term, lease.lease_id
            if term is not None and lease_id is not None:
                return Leading(term.number, lease_id), changed
            if self._take_over and clock.monotonic() - told_at > _AGAIN_SECONDS:
                with suppress(StorageError):  # the elector finds that out too
                    await lease.let_run_out()
                    told_at = clock.monotonic()
            await wait_for(changed, _LOOK_SECONDS, clock)
        return None
