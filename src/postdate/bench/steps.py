"""The steps of a whole run: each workload of each contender."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta

from postdate.bench.bounds import Punctuality
from postdate.bench.classic_storage import LeanStorage, SdkStorage
from postdate.bench.drain import Drained, drain_classic, drain_postdate, drain_sdk_loop
from postdate.bench.figures import IdleHour, Kill
from postdate.bench.ground import Ground, quick
from postdate.bench.idle import classic_after_quiet, first_after_quiet, idle_hours
from postdate.bench.kill import kill_classic, kill_postdate
from postdate.bench.limit import Limit, measure_limit
from postdate.bench.linear import linear
from postdate.bench.memory import flat, process_memory
from postdate.bench.punctual import all_at_once, cross_check, measure_classic, measure_postdate, trickle
from postdate.bench.results import (
    CLASSIC,
    CLASSIC_SDK,
    LIMIT,
    POSTDATE,
    POSTDATE_0,
    SDK_LOOP,
    SDK_LOOP_DEFAULT,
    BenchmarkFailed,
)
from postdate.bench.run import Bench, Step
from postdate.bench.scale import Scale
from postdate.settings import Settings


def no_lookahead(settings: Settings) -> Settings:
    """The same endpoint without lookahead: classic behaviour."""
    return settings.model_copy(update={"lookahead": timedelta(0)})


async def _limit(bench: Bench) -> None:
    before = bench.results.limit
    async with bench.grounds.fresh() as ground:
        found = await measure_limit(ground, bench.scale.limit_puts)
    bench.results.limit = found if before is None else Limit.of([*before.runs, *found.runs])
    bench.results.rounds.setdefault(LIMIT, []).append(found.puts_and_deletes.per_s)
    bench.say(
        f"limit: {found.puts.per_s:,.0f} puts/s at {found.puts.concurrency} at once, "
        f"{found.puts.client_cpu_us:.0f} µs CPU each; {found.puts_and_deletes.per_s:,.0f}/s with deletes"
    )


def _drain(contender: str, work: Callable[[Ground, int], Awaitable[Drained]]) -> Step:
    async def step(bench: Bench) -> None:
        async with bench.grounds.fresh() as ground:
            drained = await work(ground, bench.scale.drain)
        drain = drained.drain
        rounds = bench.results.rounds.setdefault(contender, [])
        rounds.append(drain["per_s"])
        found = bench.results.details.setdefault(contender, {}).setdefault("drains", [])
        found.append(asdict(drained))
        # Of several rounds the middle one counts.
        middle = sorted(found, key=lambda one: float(one["drain"]["per_s"]))[len(found) // 2]
        bench.results.of(contender).drain = middle["drain"]
        bench.results.of(contender).notes.extend(
            f"drain, round {len(rounds)}: {note}" for note in (*drained.notes, *_reading(drained))
        )
        bench.say(
            f"{contender}: {drain['per_s']:,.0f}/s, {drain['client_cpu_us']:.0f} µs CPU and "
            f"{drain['requests_per_message']:.3f} requests per message"
        )

    return Step("drain", contender, step)


def _reading(drained: Drained) -> list[str]:
    if drained.reading_s is None:
        return []
    reading, in_all = drained.reading_s, drained.seconds_in_all
    alone = drained.drain["messages"] / (in_all - reading)
    note = (
        f"it waited {reading:.1f} of {in_all:.1f} s for pages, for which the emulator looks at all rows; "
        f"without that it would be {alone:,.0f} a second"
    )
    return [note]


def _drain_postdate_0(ground: Ground, count: int) -> Awaitable[Drained]:
    return drain_postdate(ground, no_lookahead(ground.settings), count)


def _settings(bench: Bench, ground: Ground) -> Settings:
    """Default settings, or shorter times for a quick run."""
    return quick(ground.settings) if bench.scale.short else ground.settings


def _classic_variant(bench: Bench) -> type[LeanStorage | SdkStorage]:
    """The one that drained faster; what was not drained is taken to be the lean one."""
    lean, sdk = bench.results.of(CLASSIC).drain, bench.results.of(CLASSIC_SDK).drain
    return SdkStorage if lean and sdk and sdk["per_s"] > lean["per_s"] else LeanStorage


Late = Callable[[Bench, Ground], Awaitable[Punctuality]]


def _late(workload: str, contender: str, work: Late, variant: str = "", *, waits: bool = False) -> Step:
    async def step(bench: Bench) -> None:
        async with bench.grounds.fresh() as ground:
            found = await work(bench, ground)
        bench.results.punctual(contender, workload, variant, found)
        late = found.lateness
        bench.say(
            f"{contender}: {workload} {variant} p50 {late.p50_s:.3f} s, p99 {late.p99_s:.3f} s, "
            f"max {late.max_s:.3f} s, early {late.early}, lost {late.lost}, duplicated {late.duplicated}; "
            f"known to {found.width_p50_s * 1000:.0f} ms"
        )

    return Step(workload, contender, step, waits)


def _trickle_postdate(bench: Bench, ground: Ground) -> Awaitable[Punctuality]:
    plan = trickle(bench.scale, bench.scale.rows_ahead_s)
    return measure_postdate(ground, _settings(bench, ground), plan, bench.scale)


def _trickle_postdate_0(bench: Bench, ground: Ground) -> Awaitable[Punctuality]:
    plan = trickle(bench.scale, bench.scale.ahead_s)
    return measure_postdate(ground, no_lookahead(_settings(bench, ground)), plan, bench.scale)


def _trickle_classic(bench: Bench, ground: Ground) -> Awaitable[Punctuality]:
    plan = trickle(bench.scale, bench.scale.ahead_s)
    return measure_classic(ground, _classic_variant(bench), plan, bench.scale)


def _burst_postdate(ahead_s: Callable[[Scale], float]) -> Late:
    def work(bench: Bench, ground: Ground) -> Awaitable[Punctuality]:
        plan = all_at_once(bench.scale, ahead_s(bench.scale))
        return measure_postdate(ground, _settings(bench, ground), plan, bench.scale)

    return work


def _burst_postdate_0(bench: Bench, ground: Ground) -> Awaitable[Punctuality]:
    plan = all_at_once(bench.scale, bench.scale.burst_ahead_s)
    return measure_postdate(ground, no_lookahead(_settings(bench, ground)), plan, bench.scale)


def _burst_classic(bench: Bench, ground: Ground) -> Awaitable[Punctuality]:
    plan = all_at_once(bench.scale, bench.scale.burst_ahead_s)
    return measure_classic(ground, _classic_variant(bench), plan, bench.scale)


def _after_idle_postdate(bench: Bench, ground: Ground) -> Awaitable[Punctuality]:
    bench.results.of(POSTDATE).notes.append(
        f"after quiet: {bench.scale.idle_endpoints} endpoints after {bench.scale.idle_quiet_s:.0f} s "
        "instead of 30 minutes; its sleeps do not grow with quiet"
    )
    return first_after_quiet(ground, _settings(bench, ground), bench.scale)


def _after_idle_classic(bench: Bench, ground: Ground) -> Awaitable[Punctuality]:
    bench.results.of(CLASSIC).notes.append(
        f"after quiet: {bench.scale.idle_endpoints} endpoints whose sleeps are as long from the start as "
        "30 minutes of quiet make them"
    )
    return classic_after_quiet(ground, bench.scale)


async def _cross_check(bench: Bench) -> None:
    async with bench.grounds.fresh(consumer=True) as ground:
        found = await cross_check(ground, bench.scale, _settings(bench, ground))
    bench.results.tell(POSTDATE, "cross_check", found)
    bench.say(
        f"a real consumer: {found.sample} received, {found.early} early, {found.before_bounds} before the "
        f"bounds, at most {found.behind_max_s * 1000:.0f} ms after the lower one"
    )
    if found.early or found.before_bounds:
        raise BenchmarkFailed("a consumer received what should not have been receivable yet")


async def _idle(bench: Bench) -> None:
    async with bench.grounds.fresh() as ground:
        found = await idle_hours(ground, bench.scale)
    for who, contender in (("classic", CLASSIC), ("leader", POSTDATE)):
        bench.results.of(contender).idle_hour = IdleHour(
            requests=found[who].requests(0),
            how=f"the first hour, on a clock that runs {bench.scale.idle_speed:g} times as fast",
        )
    for who, hours in found.items():
        bench.results.tell(CLASSIC if who == "classic" else POSTDATE, f"idle_{who}", hours)
        counts = ", ".join(str(hours.requests(hour)) for hour in range(len(hours.hours)))
        bench.say(f"idle {who}: {counts} requests in each hour")


async def _memory(bench: Bench) -> None:
    if bench.memory_of is None:
        raise BenchmarkFailed("the memory of processes can't be measured here")
    for waiting in bench.scale.process_waiting:
        async with bench.grounds.fresh() as ground:
            found = await process_memory(ground, waiting, bench.memory_of)
        bench.results.of(POSTDATE).memory = found
        bench.results.tell(POSTDATE, f"memory_{waiting}", dict(found))
        bench.say(
            f"{waiting:,} rows wait: leader {found['client_mb']:.0f} MB, service {found['server_mb']:.0f}"
        )


async def _flat(bench: Bench) -> None:
    found = await flat(*bench.scale.flat)
    bench.results.tell(POSTDATE, "flat", found)
    few, many = found.few, found.many
    bench.say(
        f"engine alone: {few['peak_mb']:.1f} MB over {few['rows']:,.0f} due rows, "
        f"{many['peak_mb']:.1f} MB over {many['rows']:,.0f}"
    )


def _kill(contender: str, work: Callable[[Bench, Ground], Awaitable[Kill]]) -> Step:
    async def step(bench: Bench) -> None:
        async with bench.grounds.fresh() as ground:
            bench.results.of(contender).kill = killed = await work(bench, ground)
        bench.say(
            f"{contender}: killed; lost {killed['lost']}, outstanding {killed['outstanding']}, "
            f"duplicated {killed['duplicated']}, longest gap {killed['longest_gap_s']:.1f} s"
        )

    return Step("kill", contender, step, waits=True)


def _kill_postdate(bench: Bench, ground: Ground) -> Awaitable[Kill]:
    return kill_postdate(ground, _settings(bench, ground), bench.scale, bench.scale.rows_ahead_s)


def _kill_postdate_0(bench: Bench, ground: Ground) -> Awaitable[Kill]:
    return kill_postdate(ground, no_lookahead(_settings(bench, ground)), bench.scale, bench.scale.ahead_s)


def _kill_classic(bench: Bench, ground: Ground) -> Awaitable[Kill]:
    return kill_classic(ground, bench.scale)


async def _linear(bench: Bench) -> None:
    found = []
    for count in bench.scale.linear:
        async with bench.grounds.fresh() as ground:
            found.append(await linear(ground, count))
        one = found[-1]
        bench.say(
            f"{count:,} due: {one.wall_us:.0f} µs each; CPU {one.client_cpu_us:.0f} ours, "
            f"{one.server_cpu_us:.0f} the service's; a raw put {one.put_after_us:.0f}"
        )
    bench.results.tell(POSTDATE, "linear", [asdict(one) for one in found])


_ROUND = [
    Step(LIMIT, LIMIT, _limit),
    _drain(CLASSIC, lambda ground, count: drain_classic(ground, LeanStorage, count)),
    _drain(POSTDATE, lambda ground, count: drain_postdate(ground, ground.settings, count)),
]

STEPS = [
    *_ROUND,
    *_ROUND,
    *_ROUND,
    _drain(CLASSIC_SDK, lambda ground, count: drain_classic(ground, SdkStorage, count)),
    _drain(SDK_LOOP, lambda ground, count: drain_sdk_loop(ground, count, shared_session=True)),
    _drain(SDK_LOOP_DEFAULT, lambda ground, count: drain_sdk_loop(ground, count, shared_session=False)),
    _drain(POSTDATE_0, _drain_postdate_0),
    _late("trickle", CLASSIC, _trickle_classic, waits=True),
    _late("trickle", POSTDATE, _trickle_postdate, waits=True),
    _late("trickle", POSTDATE_0, _trickle_postdate_0, waits=True),
    _late("burst", CLASSIC, _burst_classic),
    _late("burst", POSTDATE, _burst_postdate(lambda scale: scale.burst_queue_ahead_s), "via_queue"),
    _late("burst", POSTDATE, _burst_postdate(lambda scale: scale.burst_rows_ahead_s), "via_row"),
    _late("burst", POSTDATE_0, _burst_postdate_0),
    _late("after_idle", CLASSIC, _after_idle_classic, waits=True),
    _late("after_idle", POSTDATE, _after_idle_postdate, waits=True),
    Step("idle_hour", POSTDATE, _idle, waits=True),
    Step("memory", POSTDATE, _memory),
    Step("flat", POSTDATE, _flat),
    _kill(CLASSIC, _kill_classic),
    _kill(POSTDATE, _kill_postdate),
    _kill(POSTDATE_0, _kill_postdate_0),
    # A consumer that hardly rests beside them changes nothing: what counts is lost, doubled, and seconds.
    Step("cross_check", POSTDATE, _cross_check, waits=True),
    Step("linear", POSTDATE, _linear),
]
