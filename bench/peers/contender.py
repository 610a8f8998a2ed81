"""What the workloads must know of a peer."""

import sys
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

from bench.peers.processes import Child, child, scheduling
from bench.peers.servers import Server
from bench.peers.wiring import Wiring


class Contender(ABC):
    """A library with the server that it stands on, as a user would run it on one small machine."""

    #: As in figures and on the command line.
    name: ClassVar[str]
    #: The distribution whose version is reported.
    distribution: ClassVar[str]
    #: The module that schedules, below `bench.peers.apps`.
    app: ClassVar[str]
    #: What Python runs as the worker.
    worker_arguments: ClassVar[tuple[str, ...]]
    #: What a reader must know: settings, pool, concurrency.
    notes: ClassVar[tuple[str, ...]]
    #: Several workers may run at a time.
    several: ClassVar[bool] = True
    #: While its worker runs, only that process can schedule what it shall run in time.
    worker_schedules: ClassVar[bool] = False
    #: How long, as documented, what a killed worker held stays away, and why; in seconds.
    recovery_s: ClassVar[float]
    recovery: ClassVar[str]

    @abstractmethod
    def serve(self) -> AbstractAsyncContextManager[Any]:
        """The server, running."""

    @abstractmethod
    def held(self, server: Any) -> set[int]:
        """The numbers of the messages that the server still holds."""

    def url(self, server: Server) -> str:
        """Where the library finds the server."""
        return server.url

    def scheduler(self, folder: Path, wiring: Wiring) -> AbstractAsyncContextManager[Child]:
        """A process that schedules."""
        return scheduling(f"bench.peers.apps.{self.app}", folder, wiring)

    def worker(self, folder: Path, wiring: Wiring) -> AbstractAsyncContextManager[Child]:
        """A worker, started."""
        wiring.write(folder)
        command = (sys.executable, *self.worker_arguments)
        return child(command, folder, name=f"{self.name}-worker", talks=self.worker_schedules)
