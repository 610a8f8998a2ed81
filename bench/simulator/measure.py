"""What came of a run, as figures."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from bench.simulator.world import World
from postdate.bench.figures import Lateness
from postdate.model.requests import Outcome


@dataclass(frozen=True)
class Measured:
    """One run. Rates are per second of virtual time."""

    messages: int
    #: Neither in a queue nor in a table.
    lost: int
    #: Still in a table when the run was ended.
    waiting: int
    duplicated: int
    early: int
    #: Handed over and removed, from the first hand-over to the last removal.
    per_s: float
    late_p50_s: float
    late_p99_s: float
    late_max_s: float
    #: Requests of the leaders for each message, those that were refused too.
    requests_per_message: float
    refused: int
    #: Which limits refused how much.
    refused_by: dict[str, int]
    most_in_flight: int
    #: Share of the leaders' processor time that was used.
    processor: float
    #: What the engine told: failed hand-overs, passes and removals, and reductions of the gate.
    heard: dict[str, int]

    def record(self) -> dict[str, Any]:
        """As JSON can hold it, with a sensible number of digits."""
        return {name: _short(value) for name, value in asdict(self).items()}


def measured(world: World) -> Measured:
    """The figures of a run that is over."""
    first: dict[int, datetime] = {}
    own = [arrival for arrival in world.arrivals if arrival.text.isdigit()]
    for arrival in own:
        number = int(arrival.text)
        first[number] = min(arrival.visible_at, first.get(number, arrival.visible_at))
    late = [(visible_at - world.due_at(number)).total_seconds() for number, visible_at in first.items()]
    held = world.held()
    lateness = Lateness.of(late, expected=len(world.planned), duplicated=len(own) - len(first))
    began = min((arrival.at for arrival in own), default=world.began)
    seconds = max(shard.backend.store.removed_at for shard in world.shards) - began
    requests = world.requests()
    attempts = sum(sum(outcomes.values()) for outcomes in requests.values())
    refused = sum(outcomes.get(Outcome.THROTTLED.value, 0) for outcomes in requests.values())
    return Measured(
        messages=len(world.planned),
        lost=len(world.planned) - len(first.keys() | held),
        waiting=len(held - first.keys()),
        duplicated=lateness.duplicated,
        early=lateness.early,
        per_s=lateness.count / seconds if seconds > 0 else 0.0,
        late_p50_s=lateness.p50_s,
        late_p99_s=lateness.p99_s,
        late_max_s=lateness.max_s,
        requests_per_message=attempts / max(1, lateness.count),
        refused=refused,
        refused_by=dict(sorted(world.account.refused_by.items())),
        most_in_flight=max(world.account.most_in_flight.values(), default=0),
        processor=sum(s.backend.processor.busy_s for s in world.shards) / (world.now * len(world.shards)),
        heard=dict(sorted(world.heard.counts.items())),
    )


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
