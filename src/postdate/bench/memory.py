"""How much memory a process has while messages wait, and whether it grows with them."""

import asyncio
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from postdate import Endpoint
from postdate.bench.figures import Memory
from postdate.bench.ground import Ground
from postdate.bench.workload import Messages
from postdate.clock import SystemClock
from postdate.demo.processes import start_process, stop_all
from postdate.errors import PostdateError, StorageError
from postdate.settings import child_environment

_ADD_CHUNK = 5_000
_FAR = timedelta(days=1)
_START_SECONDS = 60.0
_STEADY_SECONDS = 10.0

#: Resident memory of a process and what it started, in MiB.
MemoryOf = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Flat:
    """Peak memory of the engine alone, over few and over many due rows."""

    few: dict[str, float]
    many: dict[str, float]


async def process_memory(ground: Ground, waiting: int, memory_of: MemoryOf) -> Memory:
    """A `postdate run` that leads, over so many rows that are due tomorrow."""
    settings, clock = ground.settings, SystemClock()
    async with Endpoint(settings) as endpoint:
        messages = Messages(settings, clock, ground.queue)
        far = clock.now() + _FAR
        for start in range(0, waiting, _ADD_CHUNK):
            chunk = range(start, min(waiting, start + _ADD_CHUNK))
            await endpoint.parts.backend.store.add(
                [messages.delayed(number, far + timedelta(milliseconds=number)) for number in chunk]
            )
    process = await start_process(settings, lambda _process, _told: None)
    try:
        end = clock.monotonic() + _START_SECONDS
        while process.term is None:
            if clock.monotonic() > end:
                raise StorageError(f"the process did not lead; it said: {process.said}")
            await clock.sleep(0.1)
        await clock.sleep(_STEADY_SECONDS)
        return Memory(
            waiting=waiting,
            client_mb=memory_of(process.pid),
            server_mb=math.nan if ground.server_pid is None else memory_of(ground.server_pid),
        )
    finally:
        await stop_all([process])


async def flat(few: int, many: int) -> Flat:
    """Drain made rows in a process of their own, few and many.

    Raises:
        PostdateError: a process failed.
    """
    return Flat(await _drained(few), await _drained(many))


async def _drained(count: int) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "postdate.bench.flat",
        str(count),
        env=child_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise PostdateError(f"draining {count} made rows failed: {err.decode(errors='replace')[-400:]}")
    found: dict[str, Any] = json.loads(out)
    return found
