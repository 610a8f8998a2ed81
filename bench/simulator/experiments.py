"""The experiments: each makes a list of records, one for each run."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from math import inf
from typing import Any

from bench.simulator.classic import classic
from bench.simulator.limits import Service
from bench.simulator.runs import (
    MANY,
    Setting,
    burst,
    drain,
    flow,
    in_this_hour,
    over_a_day,
    with_intake,
)
from bench.simulator.world import Planned, World, all_to, queue_name, simulate
from postdate.model.prices import billed
from postdate.model.requests import Outcome
from postdate.settings.prices import load_prices

Record = dict[str, Any]
#: When the account is squeezed, in seconds from and to, and to how many requests a second.
SQUEEZE_S = (4.0, 9.0)
SQUEEZED_REQUESTS_S = 400.0
_MONTH_HOURS = 730
#: Virtual seconds after which a leader that gets nowhere is no longer watched.
TIGHT_S = 300.0


def one_leader(setting: Setting) -> list[Record]:
    """What one leader reaches; and what it would, were one limit after the other not there."""
    free = replace(setting.service, client=replace(setting.service.client, per_message_s=0.0))
    endless = {"account_requests_s": inf, "queue_messages_s": inf, "partition_entities_s": inf}
    cases: list[tuple[str, Service, dict[str, Any]]] = [
        ("as it is, one queue", setting.service, {"queues": 1}),
        ("as it is, many queues", setting.service, {}),
        ("reads count nothing", setting.limited(read_weight=0.0), {}),
        ("no limit per queue", setting.limited(queue_messages_s=inf), {"queues": 1}),
        ("no limit per account", setting.limited(account_requests_s=inf), {}),
        ("no processor time", free, {}),
        ("unremoved limit 1,000", setting.service, {"unremoved_limit": 1_000}),
        ("no limit per partition, one queue", setting.limited(partition_entities_s=inf), {"queues": 1}),
        ("no limit per partition", setting.limited(partition_entities_s=inf), {}),
        ("8 hash buckets per hour", setting.limited(hash_buckets=8), {}),
        (
            "8 hash buckets per hour, unremoved limit 1,000",
            setting.limited(hash_buckets=8),
            {"unremoved_limit": 1_000},
        ),
        (
            "no limit per partition, unremoved limit 1,000",
            setting.limited(partition_entities_s=inf),
            {"unremoved_limit": 1_000},
        ),
        (
            "that, and 256 sends at once",
            setting.limited(partition_entities_s=inf),
            {"unremoved_limit": 1_000, "send_concurrency": 256},
        ),
        (
            "that, and no limits of the service",
            setting.limited(**endless),
            {"unremoved_limit": 1_000, "send_concurrency": 256},
        ),
    ]
    return [
        {"case": name, **drain(setting, service, **options)[1].record()} for name, service, options in cases
    ]


def knobs(setting: Setting) -> list[Record]:
    """One setting or assumption after the other, with no limit per partition, which would hide them all."""
    wide = setting.limited(partition_entities_s=inf)
    sizes = setting.sizes
    records: list[Record] = []

    def run(knob: str, value: float, service: Service, **settings: Any) -> None:
        records.append({"knob": knob, "value": value, **drain(setting, service, **settings)[1].record()})

    for at_once in sizes.concurrency:
        run("send_concurrency", at_once, wide, send_concurrency=at_once)
    for at_once in sizes.concurrency:
        run(
            "send_concurrency, unremoved_limit 1,000",
            at_once,
            wide,
            send_concurrency=at_once,
            unremoved_limit=1_000,
        )
    for limit in sizes.unremoved:
        run("unremoved_limit", limit, wide, unremoved_limit=limit)
    for factor in sizes.latency_factors:
        run("latency", factor, setting.slower(factor, wide))
    for micros in sizes.cpu_us:
        run("cpu_us", micros, setting.by_processor(micros, wide))
    return records


def intake_beside(setting: Setting) -> list[Record]:
    """What a leader reaches while others schedule messages into the same table."""
    records = []
    for where, due in (("the leader's hour", in_this_hour), ("over a day", over_a_day)):
        for per_s in setting.sizes.intake:
            world, figures, senders = with_intake(setting, per_s, due)
            records.append(
                {
                    "rows_go_to": where,
                    "intake_per_s": per_s,
                    "accepted_per_s": round(senders.accepted / world.now, 1) if senders else 0.0,
                    "intake_refused": senders.refused if senders else 0,
                    **figures.record(),
                }
            )
    return records


def steady(setting: Setting) -> list[Record]:
    """Lateness against the rate, with as many scheduled as become due; the last: more than one leader can."""
    sizes = setting.sizes
    cases = [(rate, sizes.steady_s, "the leader's hour", in_this_hour) for rate in sizes.rates]
    cases += [
        (sizes.overload, sizes.overload_s, "the leader's hour", in_this_hour),
        (sizes.overload, sizes.overload_s, "over a day", over_a_day),
    ]
    records = []
    for rate, seconds, where, due in cases:
        _, figures = flow(setting, rate, seconds, due=due)
        records.append({"rate": rate, "seconds": seconds, "rows_go_to": where, **figures.record()})
    return records


def bursts(setting: Setting) -> list[Record]:
    """Many messages at one instant."""
    sizes = setting.sizes
    cases = [(sizes.burst, MANY, ahead) for ahead in (0.0, 5.0, 10.0, 30.0)]
    cases += [(sizes.burst, 1, 30.0)]
    cases += [(sizes.large_burst, MANY, ahead) for ahead in (30.0, 120.0)]
    return [
        {
            "at_once": messages,
            "queues": queues,
            "lookahead_s": ahead,
            **burst(setting, messages, ahead, queues=queues).record(),
        }
        for messages, queues, ahead in cases
    ]


def tight(setting: Setting) -> list[Record]:
    """A partition that takes less than is documented, as one that the service is about to split does."""
    return [
        {
            "partition_entities_s": limit,
            "reads_count": weight,
            **drain(
                setting,
                setting.limited(partition_entities_s=float(limit), read_weight=weight),
                messages=setting.sizes.tight_messages,
                at_most_s=TIGHT_S,
            )[1].record(),
        }
        for weight in (1.0, 0.0)
        for limit in setting.sizes.tight
    ]


def squeezed(setting: Setting) -> list[Record]:
    """An account that takes little for a while: second by second, one record each."""
    service = setting.limited(partition_entities_s=inf)
    world = World(service, seed=setting.seed, saved_up=False, envelopes=all_to(MANY))
    count = setting.sizes.drain * 2
    planned = [Planned(-60.0 + n * 1e-4, queue_name(n % MANY)) for n in range(count)]
    began, ended = SQUEEZE_S

    async def squeeze() -> None:
        await world.clock.sleep(began)
        world.account.change(replace(service.limits, account_requests_s=SQUEEZED_REQUESTS_S))
        await world.clock.sleep(ended - began)
        world.account.change(service.limits)

    async def play(world: World) -> None:
        await world.preload(planned)
        await world.deliver(at_most_s=120.0, beside=[squeeze()])

    simulate(world, play)
    gate = dict[int, int]()
    for at, limit in world.heard.gate:
        gate[int(at)] = min(limit, gate.get(int(at), limit))
    sends: Counter[tuple[int, str]] = Counter()
    for (second, kind, outcome), number in world.account.requests.items():
        if kind == "queue put message":
            sends[second, outcome.value] += number
    records: list[Record] = []
    for second in range(int(world.now) + 1):
        key = int(world.began) + second
        records.append(
            {
                "second": second,
                "sends": sends[key, Outcome.OK.value],
                "sends_refused": sends[key, Outcome.THROTTLED.value],
                "most_in_flight": world.account.most_in_flight[key],
                "gate_lowered_to": gate.get(second),
            }
        )
    return records


def shards(setting: Setting) -> list[Record]:
    """Several leaders, each with its table and lease, on one account."""
    sizes = setting.sizes
    records = []
    cases: list[tuple[str, Service, tuple[int, ...], bool]] = [
        ("tables", setting.service, tuple(sizes.shards), False),
        ("tables, with consumers", setting.service, tuple(sizes.consumed_shards), True),
        ("tables with 8 buckets", setting.limited(hash_buckets=8), tuple(sizes.wide_shards), False),
    ]
    for layout, service, counts, consumers in cases:
        for number in counts:
            world, figures, consumed = drain(
                setting,
                service,
                messages=sizes.per_shard * number,
                shards=number,
                consumers=consumers,
            )
            requests = sum(world.account.taken["account", ""].values())
            records.append(
                {
                    "layout": layout,
                    "shards": number,
                    "consumed_per_s": round(consumed.per_s, 1) if consumers else None,
                    "account_requests_per_s": round(requests / world.now, 1),
                    **figures.record(),
                }
            )
    return records


def idle(setting: Setting) -> list[Record]:
    """An hour in which nothing is scheduled: what one shard costs with 0 to 2 followers."""
    prices = load_prices(None)
    records = []
    for followers in (0, 1, 2):
        world = World(setting.service, seed=setting.seed)
        world.shards.extend(world.process(0) for _ in range(followers))

        async def play(world: World) -> None:
            await world.set_up(set())
            await world.serve_until(lambda: False, at_most_s=setting.sizes.idle_s)

        simulate(world, play)
        requests = world.requests()
        hours = setting.sizes.idle_s / 3_600
        cost = prices.cost(billed(requests))
        records.append(
            {
                "followers": followers,
                "requests_per_hour": round(sum(sum(o.values()) for o in requests.values()) / hours, 1),
                "by_operation": requests,
                "cost_per_month": round(cost.amount / hours * _MONTH_HOURS, 3),
                "currency": cost.currency,
                "unpriced": list(cost.unpriced),
            }
        )
    return records


def classic_model(setting: Setting) -> list[Record]:
    """The classic algorithm at the same latencies: a model."""
    return [
        {"latency": factor, **{k: round(v, 4) for k, v in asdict(model).items()}}
        for factor in setting.sizes.latency_factors
        if (model := classic(replace(setting.service.latencies, factor=factor), setting.seed))
    ]


SQUEEZE = (
    f"An account that takes {SQUEEZED_REQUESTS_S:g} requests a second"
    f" from second {SQUEEZE_S[0]:g} to {SQUEEZE_S[1]:g}"
)

EXPERIMENTS: dict[str, Callable[[Setting], list[Record]]] = {
    "one_leader": one_leader,
    "knobs": knobs,
    "intake_beside": intake_beside,
    "steady": steady,
    "bursts": bursts,
    "tight": tight,
    "squeezed": squeezed,
    "shards": shards,
    "idle": idle,
    "classic_model": classic_model,
}
