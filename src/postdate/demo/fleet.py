"""The serving processes of the demo: start, watch, kill the leader at the worst moment, stop."""

import asyncio
import signal
from contextlib import suppress
from types import TracebackType
from typing import Self

from postdate.clock import SystemClock
from postdate.demo.processes import ProcessFailed, ServingProcess, Told, start_process, stop_all
from postdate.settings import Settings

PROCESSES = 3


class Fleet:
    """Three `postdate run` processes for one endpoint. Use it with `async with`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._processes: list[ServingProcess] = []
        self._news = asyncio.Event()
        #: Rows handed over so far, over all processes.
        self.handed_over = 0
        self._kill_after: int | None = None
        self.killed: ServingProcess | None = None
        self.killed_at: float | None = None
        self.handed_over_at_kill: int | None = None
        #: Seconds from the kill to the next leader's first word.
        self.takeover_s: float | None = None
        self.successor: ServingProcess | None = None
        self.exits: list[int] = []

    async def __aenter__(self) -> Self:
        try:
            for _ in range(PROCESSES):
                self._processes.append(await start_process(self._settings, self._hear))
        except BaseException:
            await stop_all(self._processes)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await stop_all(self._processes)

    async def stop(self) -> None:
        """Stop those that are left; their exit statuses are kept."""
        self.exits = await stop_all(one for one in self._processes if one is not self.killed)

    @property
    def leader(self) -> ServingProcess | None:
        """The process that leads, by its own word."""
        return next(
            (one for one in self._processes if one.exit_status is None and one.term is not None), None
        )

    def kill_leader_after(self, handed_over: int) -> None:
        """SIGKILL whoever hands over the row with this number, as soon as its word of it is here."""
        self._kill_after = handed_over

    def kill_leader_now(self) -> None:
        """SIGKILL the leader, if there is one and none was killed."""
        if self.killed is None and self.leader is not None:
            self._kill(self.leader)

    def _hear(self, process: ServingProcess, told: Told) -> None:
        if told.name == "handed_over":
            self.handed_over += 1
            if self.killed is None and self._kill_after is not None and self.handed_over >= self._kill_after:
                self._kill(process)
        elif told.name == "term_began" and self.killed_at is not None and self.takeover_s is None:
            self.takeover_s = told.heard_at - self.killed_at
            self.successor = process
        self._news.set()

    def _kill(self, process: ServingProcess) -> None:
        process.send(signal.SIGKILL)
        self.killed, self.killed_at = process, self._clock.monotonic()
        self.handed_over_at_kill = self.handed_over

    async def until_led(self, within: float) -> None:
        """Wait for a leader.

        Raises:
            ProcessFailed: a process ended, or none led within `within` seconds.
        """
        try:
            async with asyncio.timeout(within):
                while self.leader is None:
                    self.check()
                    self._news.clear()
                    with suppress(TimeoutError):  # a process that ends says nothing
                        await asyncio.wait_for(self._news.wait(), 0.5)
        except TimeoutError:
            raise ProcessFailed(f"no process led within {within:g} s") from None

    def check(self) -> None:
        """Raise if a process ended that was not killed."""
        for one in self._processes:
            if one.exit_status is not None and one is not self.killed:
                raise ProcessFailed(
                    f"`postdate run` (process {one.pid}) ended by itself with exit status {one.exit_status}; "
                    f"it said: {one.said}"
                )
