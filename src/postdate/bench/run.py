"""The steps of a run, one after the other, each on a ground of its own; a failure stops no other step."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import timedelta

from postdate.bench.classic_storage import LeanStorage, SdkStorage
from postdate.bench.drain import Drained, drain_classic, drain_postdate, drain_sdk_loop
from postdate.bench.ground import Ground, Grounds
from postdate.bench.limit import measure_limit
from postdate.bench.results import (
    CLASSIC,
    CLASSIC_SDK,
    POSTDATE,
    POSTDATE_0,
    SDK_LOOP,
    SDK_LOOP_DEFAULT,
    Results,
    Say,
)
from postdate.bench.scale import Scale
from postdate.clock import SystemClock
from postdate.settings import Settings

LIMIT = "limit"


@dataclass(frozen=True)
class Bench:
    """One run."""

    grounds: Grounds
    scale: Scale
    results: Results
    say: Say


@dataclass(frozen=True)
class Step:
    """One workload of one contender."""

    workload: str
    contender: str
    work: Callable[[Bench], Awaitable[None]]


def no_lookahead(settings: Settings) -> Settings:
    """The same endpoint without lookahead: classic behaviour."""
    return settings.model_copy(update={"lookahead": timedelta(0)})


async def _limit(bench: Bench) -> None:
    async with bench.grounds.fresh() as ground:
        bench.results.limit = limit = await measure_limit(ground, min(bench.scale.drain, 5_000))
    bench.say(
        f"limit: {limit.puts.per_s:,.0f} puts/s at {limit.puts.concurrency} at once, "
        f"{limit.puts.client_cpu_us:.0f} µs CPU each; {limit.puts_and_deletes.per_s:,.0f}/s with deletes"
    )


def _drain(contender: str, work: Callable[[Ground, int], Awaitable[Drained]]) -> Step:
    async def step(bench: Bench) -> None:
        async with bench.grounds.fresh() as ground:
            drained = await work(ground, bench.scale.drain)
        bench.results.of(contender).drain = drain = drained.drain
        bench.results.tell(contender, "drain", drained)
        bench.say(
            f"{contender}: {drain['per_s']:,.0f}/s, {drain['client_cpu_us']:.0f} µs CPU and "
            f"{drain['requests_per_message']:.3f} requests per message"
        )

    return Step("drain", contender, step)


def _drain_postdate_0(ground: Ground, count: int) -> Awaitable[Drained]:
    return drain_postdate(ground, no_lookahead(ground.settings), count)


STEPS = [
    Step(LIMIT, LIMIT, _limit),
    _drain(CLASSIC, lambda ground, count: drain_classic(ground, LeanStorage, count)),
    _drain(CLASSIC_SDK, lambda ground, count: drain_classic(ground, SdkStorage, count)),
    _drain(SDK_LOOP, lambda ground, count: drain_sdk_loop(ground, count, shared_session=True)),
    _drain(SDK_LOOP_DEFAULT, lambda ground, count: drain_sdk_loop(ground, count, shared_session=False)),
    _drain(POSTDATE, lambda ground, count: drain_postdate(ground, ground.settings, count)),
    _drain(POSTDATE_0, _drain_postdate_0),
]


def chosen(only: Collection[str]) -> list[Step]:
    """The steps of these workloads and contenders; all if none is named."""
    workloads = {step.workload for step in STEPS}.intersection(only)
    contenders = {step.contender for step in STEPS}.intersection(only) - workloads
    return [
        step
        for step in STEPS
        if (not workloads or step.workload in workloads) and (not contenders or step.contender in contenders)
    ]


async def run_steps(bench: Bench, steps: Collection[Step]) -> None:
    """Run them; what fails is kept with the figures of its contender."""
    clock = SystemClock()
    for number, step in enumerate(steps, 1):
        name = step.workload if step.workload == step.contender else f"{step.contender} {step.workload}"
        bench.say(f"[{number}/{len(steps)}] {name}")
        began = clock.monotonic()
        try:
            await step.work(bench)
        except Exception as error:  # noqa: BLE001 - whatever it is, it goes with the figures
            line = " ".join(f"{step.workload}: {type(error).__name__}: {error}".split())
            if step.contender == LIMIT:
                bench.results.failures.append(line)
            else:
                bench.results.of(step.contender).failures.append(line)
            bench.say(f"{name} FAILED: {line}")
        bench.say(f"{name} took {clock.monotonic() - began:.0f} s")
