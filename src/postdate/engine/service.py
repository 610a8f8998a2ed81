"""Serving: elector and poller together, with one contract for start and stop.

`serve` runs until it is stopped or cancelled. Both mean the same: no new page is begun, sends under way
finish, their rows are removed, the lease is given back. Cancellation can't cut this short; the process's own
grace period does.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from postdate.engine.accountant import Accountant
from postdate.engine.elector import Elector
from postdate.engine.passes import Passes, PassResult
from postdate.engine.poller import Poller
from postdate.engine.sweeper import Sweeper
from postdate.engine.tasks import to_the_end


class Companion(Protocol):
    """Works beside the poller, while this process serves."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; return when what was begun is done."""
        ...


class Service:
    """Leads or follows, and works while it leads."""

    def __init__(
        self,
        elector: Elector,
        poller: Poller,
        passes: Passes,
        sweeper: Sweeper,
        accountant: Accountant,
        companions: Sequence[Companion] = (),
    ) -> None:
        self._elector = elector
        self._poller = poller
        self._passes = passes
        self._sweeper = sweeper
        self._accountant = accountant
        self._companions = companions
        self._serving: asyncio.Task[None] | None = None

    @property
    def serving(self) -> bool:
        """Whether `serve` is running."""
        return self._serving is not None and not self._serving.done()

    async def serve(self, stop: asyncio.Event | None = None) -> None:
        """Serve until `stop` is set or the task is cancelled; then stop cleanly.

        Raises:
            RuntimeError: this service is running already.
        """
        if self.serving:
            raise RuntimeError("this endpoint is running already")
        stopping = asyncio.Event()
        self._serving = asyncio.create_task(self._serve(stopping), name="postdate-serve")
        watching = asyncio.create_task((stop or asyncio.Event()).wait(), name="postdate-stop")
        try:
            await asyncio.wait({self._serving, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.set()
            watching.cancel()
            await to_the_end(self._serving)

    async def _serve(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as parts:
            give_back = asyncio.Event()
            parts.create_task(self._elect(give_back), name="postdate-elector")
            sweeping = parts.create_task(self._sweeper.run(self._elector), name="postdate-sweeper")
            counting = parts.create_task(self._accountant.run(), name="postdate-accountant")
            beside = [parts.create_task(one.run(stop), name="postdate-companion") for one in self._companions]
            try:
                await self._poller.run(stop)
                await asyncio.gather(*beside)
            finally:
                counting.cancel()
                sweeping.cancel()
                give_back.set()
        self._accountant.tell()

    async def _elect(self, give_back: asyncio.Event) -> None:
        try:
            await self._elector.run(give_back)
        except asyncio.CancelledError:
            if give_back.is_set():
                raise
            # Nobody of ours cancelled it: serving on without it would be following for ever.
            raise RuntimeError("the election was cancelled from within") from None

    async def deliver_due(self) -> PassResult:
        """Hand over what is due within the lookahead, once, if this process leads or can.

        For timers and tests. While `serve` runs, it is a pass of its leader; otherwise the lease is taken,
        renewed for as long as the pass lasts, and given back.
        """
        if self.serving:
            return await self._one_pass()
        give_back = asyncio.Event()
        tried = asyncio.Event()
        electing = asyncio.create_task(self._elector.run(give_back, tried), name="postdate-elector")
        try:
            await tried.wait()
            return await self._one_pass()
        finally:
            give_back.set()
            await to_the_end(electing)

    async def _one_pass(self) -> PassResult:
        term = self._elector.term
        if term is None:
            return PassResult(led=False)
        result = await self._passes.one_pass(term.number)
        await self._sweeper.after_pass()
        return result
