"""The engine's memory over any number of due rows: `python -m postdate.bench.flat ROWS` prints its peak.

The rows are made when a page is asked for, and sends are dropped, so that nothing but the engine is in the
process: no emulator could hold a million rows, and a store in memory would be what is measured.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from postdate.backends.memory import MemoryAccount, MemoryBackend
from postdate.bench.ground import plain_settings
from postdate.bench.workload import Messages
from postdate.clock import Clock, SystemClock
from postdate.compose import put_together
from postdate.errors import PostdateError
from postdate.events import Events
from postdate.model.delayed import DelayedRow, Row
from postdate.model.limits import PAGE_ROWS
from postdate.ports import Guard, Receipt
from postdate.settings import BackendName

_QUEUE = "orders"
_STATUS = Path("/proc/self/status")


class MadeRows:
    """Due rows that nothing holds: made page by page, and forgotten when they are removed."""

    def __init__(self, messages: Messages, count: int, due_at: datetime) -> None:
        self._messages = messages
        self._count = count
        self._due_at = due_at
        self._made = 0
        self.removed = 0
        #: Set when all are.
        self.empty = asyncio.Event()

    async def due(self, until: datetime) -> AsyncIterator[Sequence[Row]]:  # noqa: ARG002 - all are due
        """Pages of a thousand; each row once."""
        while self._made < self._count:
            first, self._made = self._made, min(self._count, self._made + PAGE_ROWS)
            yield [self._row(number) for number in range(first, self._made)]
            await asyncio.sleep(0)

    def _row(self, number: int) -> DelayedRow:
        delayed = self._messages.delayed(number, self._due_at + timedelta(microseconds=number))
        return DelayedRow(delayed.key, "etag", delayed)

    async def next_due(self, after: datetime | None = None) -> datetime | None:  # noqa: ARG002 - all are due
        """None, or that of the rows."""
        return self._due_at if self._made < self._count else None

    async def remove(self, rows: Sequence[Row], guard: Guard | None = None) -> list[bool]:  # noqa: ARG002 - no race here
        """Count them."""
        await asyncio.sleep(0)
        self.removed += len(rows)
        if self.removed >= self._count:
            self.empty.set()
        return [True] * len(rows)


class Dropped:
    """A queue that keeps nothing."""

    async def send(self, destination: str, text: str, **how: object) -> Receipt:  # noqa: ARG002 - dropped
        """Drop it, after a turn of the loop, as a request would take one."""
        await asyncio.sleep(0)
        return Receipt("id", "receipt")


@dataclass
class FlatBackend:
    """The ports, with made rows and a queue that keeps nothing; the rest is the memory backend's."""

    store: Any
    sender: Any
    lease: Any
    receiver: Any
    payloads: Any
    timeouts: Any
    inbox: Any
    delivery_log: Any
    requests: Any

    @property
    def description(self) -> Mapping[str, str]:
        """Says what it is."""
        return {"backend": "made rows"}

    async def reach(self) -> Mapping[str, PostdateError | None]:
        """Nothing can be out of reach."""
        return {}

    async def close(self) -> None:
        """Nothing to close."""


async def drain(count: int, clock: Clock) -> dict[str, float]:
    """Drain so many rows with the real engine; rows, seconds, and peak memory in MiB."""
    settings = plain_settings(
        endpoint="postdate-bench-flat", backend=BackendName.MEMORY, disable_timeout_manager=True
    )
    rest = MemoryBackend(MemoryAccount(), settings.table_name, clock, frozenset())
    await rest.store.create()
    await rest.lease.create()
    rows = MadeRows(Messages(settings, clock, _QUEUE), count, clock.now() - timedelta(hours=1))
    backend = FlatBackend(
        rows,
        Dropped(),
        rest.lease,
        rest.receiver,
        rest.payloads,
        rest.timeouts,
        rest.inbox,
        rest.delivery_log,
        rest.requests,
    )
    parts = put_together(settings, backend, clock, Events([]))
    stop = asyncio.Event()
    began = clock.monotonic()
    serving = asyncio.create_task(parts.service.serve(stop))
    waiting = asyncio.create_task(rows.empty.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    seconds = clock.monotonic() - began
    stop.set()
    waiting.cancel()
    await serving
    return {
        "rows": rows.removed,
        "seconds": seconds,
        "cpu_us": time.process_time() / count * 1e6,
        "peak_mb": peak_mb(),
    }


def peak_mb() -> float:
    """The most memory that this process was resident with, in MiB; not what a parent had before it."""
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    [peak] = [line.split() for line in lines if line.startswith("VmHWM:")]
    return int(peak[1]) / 1024


def main(arguments: Sequence[str]) -> None:
    """Print what was found as JSON."""
    found = asyncio.run(drain(int(arguments[0]), SystemClock()))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
