"""What is simulated, and how much of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from bench.simulator.limits import Service
from bench.simulator.load import Consumers, Due, Senders
from bench.simulator.measure import Measured, measured
from bench.simulator.world import Planned, World, all_to, queue_name, simulate

#: Virtual seconds after which a run ends, whatever is left.
_AT_MOST_S = 900.0
#: Many queues: none of them is at its limit.
MANY = 64


@dataclass(frozen=True)
class Sizes:
    """How many messages, and which of the many cases."""

    drain: int = 10_000
    per_shard: int = 4_000
    shards: Sequence[int] = (1, 2, 4, 8, 16, 32)
    #: Of these, with consumers.
    consumed_shards: Sequence[int] = (8, 16, 32)
    #: Of the what-if with hash buckets.
    wide_shards: Sequence[int] = (1, 2, 4, 8, 16)
    steady_s: float = 24.0
    overload_s: float = 30.0
    rates: Sequence[int] = (20, 50, 100, 200, 300, 600)
    overload: int = 1_000
    burst: int = 10_000
    large_burst: int = 100_000
    concurrency: Sequence[int] = (8, 16, 32, 64, 256)
    unremoved: Sequence[int] = (50, 100, 200, 500, 1_000)
    latency_factors: Sequence[float] = (0.5, 1.0, 2.0, 4.0)
    cpu_us: Sequence[int] = (150, 250, 350, 500, 700)
    intake: Sequence[int] = (0, 250, 500, 750, 1_000)
    tight: Sequence[int] = (2_000, 1_000, 700, 500, 300)
    tight_messages: int = 3_000
    idle_s: float = 3_600.0


FULL = Sizes()
QUICK = Sizes(
    drain=2_000,
    per_shard=500,
    shards=(1, 4),
    consumed_shards=(4,),
    wide_shards=(1, 4),
    steady_s=4.0,
    overload_s=5.0,
    rates=(20, 300),
    burst=1_000,
    large_burst=3_000,
    concurrency=(8, 64),
    unremoved=(50, 200),
    latency_factors=(1.0, 4.0),
    cpu_us=(150, 700),
    intake=(0, 500),
    tight=(2_000, 1_000),
    tight_messages=1_500,
    overload=500,
)


@dataclass(frozen=True)
class Setting:
    """What holds for all runs of one simulation."""

    seed: int
    sizes: Sizes = FULL
    service: Service = field(default_factory=Service)

    def limited(self, **limits: Any) -> Service:
        """The same service with other limits."""
        return replace(self.service, limits=replace(self.service.limits, **limits))

    def slower(self, factor: float, service: Service) -> Service:
        """A service whose answers take so many times as long."""
        return replace(service, latencies=replace(service.latencies, factor=factor))

    def by_processor(self, micros: float, service: Service) -> Service:
        """The same service, with another cost of a message for us."""
        return replace(service, client=replace(service.client, per_message_s=micros / 1e6))


def drain(
    setting: Setting,
    service: Service | None = None,
    *,
    messages: int | None = None,
    shards: int = 1,
    queues: int = MANY,
    consumers: bool = False,
    at_most_s: float = _AT_MOST_S,
    **settings: object,
) -> tuple[World, Measured, Consumers]:
    """Rows that are all due already, handed over as fast as it goes. Limits start with nothing saved up."""
    world = World(
        service or setting.service,
        seed=setting.seed,
        shards=shards,
        saved_up=False,
        envelopes=all_to(queues),
        **settings,
    )
    count = setting.sizes.drain if messages is None else messages
    planned = [Planned(-60.0 + n * 1e-4, queue_name(n % queues)) for n in range(count)]
    consume = Consumers(world)

    async def play(world: World) -> None:
        await world.preload(planned)
        beside, also = ([consume.run()], lambda: consume.done) if consumers else ([], lambda: True)
        await world.deliver(at_most_s=at_most_s, beside=beside, also=also)

    simulate(world, play)
    return world, measured(world), consume


def with_intake(setting: Setting, intake_per_s: float, due: Due) -> tuple[World, Measured, Senders | None]:
    """The same, while senders schedule messages for later beside it."""
    world = World(setting.service, seed=setting.seed, saved_up=False, envelopes=all_to(MANY))
    planned = [Planned(-60.0 + n * 1e-4, queue_name(n % MANY)) for n in range(setting.sizes.drain)]
    senders = Senders(world, per_s=intake_per_s, due=due, queue=queue_name(0)) if intake_per_s else None

    async def play(world: World) -> None:
        await world.preload(planned)
        await world.deliver(at_most_s=_AT_MOST_S, beside=[senders.run()] if senders else [])

    simulate(world, play)
    return world, measured(world), senders


def flow(setting: Setting, per_s: float, seconds: float, *, due: Due) -> tuple[World, Measured]:
    """Messages due evenly over some time, by chance within it, while as many are scheduled for later."""
    world = World(setting.service, seed=setting.seed, envelopes=all_to(MANY))
    random = Random(setting.seed)
    # The first come within the lookahead of 30 s a second after the start.
    instants = sorted(31.0 + random.uniform(0.0, seconds) for _ in range(round(per_s * seconds)))
    planned = [Planned(at, queue_name(n % MANY)) for n, at in enumerate(instants)]
    senders = Senders(world, per_s=per_s, due=due, queue=queue_name(0))

    async def play(world: World) -> None:
        await world.preload(planned)
        await world.deliver(at_most_s=_AT_MOST_S, beside=[senders.run()])

    simulate(world, play)
    return world, measured(world)


def burst(setting: Setting, messages: int, lookahead_s: float, *, queues: int) -> Measured:
    """Messages that are all due at one instant, seen long before."""
    world = World(
        setting.service,
        seed=setting.seed,
        envelopes=all_to(queues),
        lookahead=lookahead_s,
        direct_within=max(90.0, lookahead_s),
    )
    due_s = lookahead_s + 10.5
    planned = [Planned(due_s, queue_name(n % queues)) for n in range(messages)]

    async def play(world: World) -> None:
        await world.preload(planned)
        await world.deliver(at_most_s=_AT_MOST_S)

    simulate(world, play)
    return measured(world)


def in_this_hour(random: Random) -> float:
    """Due 20 to 40 minutes after the start: rows of the partition that the leader works in."""
    return random.uniform(1_200.0, 2_400.0)


def over_a_day(random: Random) -> float:
    """Due at any time of the 24 hours after the start's."""
    return random.uniform(2_700.0, 2_700.0 + 86_400.0)
