"""The steps of a run, one after the other, each on a ground of its own; a failure stops no other step."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from postdate.bench.ground import Grounds
from postdate.bench.memory import MemoryOf
from postdate.bench.results import LIMIT, Results, Say
from postdate.bench.scale import Scale
from postdate.clock import SystemClock


@dataclass(frozen=True)
class Bench:
    """One run."""

    grounds: Grounds
    scale: Scale
    results: Results
    say: Say
    #: How to tell a process's memory; None: it can't be.
    memory_of: MemoryOf | None = None


@dataclass(frozen=True)
class Step:
    """One workload of one contender."""

    workload: str
    contender: str
    work: Callable[[Bench], Awaitable[None]]
    #: It mostly waits, so it may do that beside others of its kind that follow or precede it.
    waits: bool = False


def chosen(steps: Iterable[Step], only: Collection[str]) -> list[Step]:
    """The steps of these workloads and contenders; all if none is named."""
    steps = list(steps)
    workloads = {step.workload for step in steps}.intersection(only)
    contenders = {step.contender for step in steps}.intersection(only) - workloads
    return [
        step
        for step in steps
        if (not workloads or step.workload in workloads)
        and (not contenders or step.contender in contenders.union(only))
    ]


async def run_steps(bench: Bench, steps: Collection[Step]) -> None:
    """Run them one after the other, those that mostly wait side by side.

    What fails is kept with the figures of its contender.
    """
    numbered = list(enumerate(steps, 1))
    while numbered:
        together = [numbered.pop(0)]
        while together[0][1].waits and numbered and numbered[0][1].waits:
            together.append(numbered.pop(0))
        await asyncio.gather(*(_run(bench, step, f"{number}/{len(steps)}") for number, step in together))


async def _run(bench: Bench, step: Step, place: str) -> None:
    clock = SystemClock()
    name = step.workload if step.workload == step.contender else f"{step.contender} {step.workload}"
    bench.say(f"[{place}] {name}")
    began = clock.monotonic()
    try:
        await step.work(bench)
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes with the figures
        line = f"{step.workload}: {_told(error)}"
        if step.contender == LIMIT:
            bench.results.failures.append(line)
        else:
            bench.results.of(step.contender).failures.append(line)
        bench.say(f"{name} FAILED: {line}")
    bench.say(f"{name} took {clock.monotonic() - began:.0f} s")


def _told(error: Exception) -> str:
    """One line; of several errors the first, since the others mostly follow from it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return " ".join(f"{type(error).__name__}: {error}".split())
