"""All peers, one after the other; what fails is named, and the others still run."""

import asyncio
from collections.abc import Callable, Collection
from importlib.metadata import version

from bench.peers import workloads
from bench.peers.apscheduler_postgresql import APSchedulerPostgreSQL
from bench.peers.celery_redis import CeleryRedis
from bench.peers.contender import Contender
from bench.peers.dramatiq_redis import DramatiqRedis
from bench.peers.procrastinate_postgresql import ProcrastinatePostgreSQL
from bench.peers.stage import stage
from postdate.bench.figures import Figures
from postdate.bench.scale import Scale
from postdate.clock import SystemClock
from postdate.errors import PostdateError

Say = Callable[[str], None]

_CONTENDERS: tuple[Contender, ...] = (
    CeleryRedis(),
    DramatiqRedis(),
    ProcrastinatePostgreSQL(),
    APSchedulerPostgreSQL(),
)
_WORKLOADS = (
    workloads.drain,
    workloads.trickle,
    workloads.burst,
    workloads.idle,
    workloads.memory,
    workloads.kill,
)


async def measure_all(scale: Scale, say: Say, only: Collection[str]) -> list[Figures]:
    """The figures of each peer in `only`, of all if it is empty."""
    return [await _measure(one, scale, say) for one in _CONTENDERS if not only or one.name in only]


async def _measure(contender: Contender, scale: Scale, say: Say) -> Figures:
    clock = SystemClock()
    library = f"{contender.distribution} {version(contender.distribution)}"
    figures = Figures(contender.name, library, list(contender.notes))
    try:
        async with contender.serve() as server:
            figures.version = f"{library}, {await asyncio.to_thread(server.version)}"
            for workload in _WORKLOADS:
                began = clock.monotonic()
                try:
                    async with stage(contender, server) as one:
                        await workload(one, scale, figures)
                except Exception as error:  # noqa: BLE001 - whatever it is, it goes with the figures
                    _failed(figures, workload.__name__, error, say)
                say(f"{contender.name}: {workload.__name__} took {clock.monotonic() - began:.0f} s")
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes with the figures
        _failed(figures, "server", error, say)
    return figures


def _failed(figures: Figures, what: str, error: Exception, say: Say) -> None:
    said = str(error) if isinstance(error, PostdateError) else repr(error)
    text = " ".join(f"{what}: {said}".split())
    figures.failures.append(text)
    say(f"{figures.name} failed: {text}")
