"""What many messages a day need, by arithmetic on what was simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil
from typing import Any

from bench.simulator.limits import Limits

_DAY_S = 86_400.0
#: Requests for each message besides the leader's: one insert by its sender; receive 32 at once, delete each.
_SENDER_REQUESTS = 1.0
_CONSUMER_REQUESTS = 1.0 + 1 / 32
#: Put, received, deleted.
_QUEUE_OPERATIONS = 3.0


@dataclass(frozen=True)
class Need:
    """What one rate needs. `filled`: the share of each limit that is planned for."""

    per_day: float
    peak_factor: float
    filled: float
    peak_per_s: float
    shards: int
    queues: int
    account_requests_per_s: float
    accounts: int


def need(
    per_day: float, peak: float, *, per_shard_s: float, leader_requests: float, limits: Limits, filled: float
) -> Need:
    """Shards, queues and accounts for a number of messages a day.

    Args:
        per_day: messages.
        peak: times the mean.
        per_shard_s: what one shard was found to sustain, with its intake.
        leader_requests: of the leader, for each message.
        limits: of one account.
        filled: share of every limit to plan for.
    """
    rate = per_day / _DAY_S * peak
    requests = rate * (leader_requests + _SENDER_REQUESTS + _CONSUMER_REQUESTS)
    return Need(
        per_day=per_day,
        peak_factor=peak,
        filled=filled,
        peak_per_s=round(rate, 1),
        shards=ceil(rate / (per_shard_s * filled)),
        queues=ceil(rate * _QUEUE_OPERATIONS / (limits.queue_messages_s * filled)),
        account_requests_per_s=round(requests, 1),
        accounts=ceil(requests / (limits.account_requests_s * filled)),
    )


def needs(results: Mapping[str, Sequence[Mapping[str, Any]]], limits: Limits) -> list[dict[str, Any]]:
    """From ten million to a billion a day, at the mean and at three times it."""
    [base] = [r for r in results["one_leader"] if r["case"] == "as it is, many queues"]
    sustained = {where: sustained_per_s(results["intake_beside"], where) for where in _places(results)}
    return [
        {
            "rows_go_to": where,
            "per_shard_s": round(per_shard_s, 1),
            **asdict(
                need(
                    per_day,
                    peak,
                    per_shard_s=per_shard_s,
                    leader_requests=base["requests_per_message"],
                    limits=limits,
                    filled=filled,
                )
            ),
        }
        for where, per_shard_s in sustained.items()
        for per_day in (1e7, 1e8, 1e9)
        for peak, filled in ((1.0, 1.0), (3.0, 1.0), (3.0, 0.7))
    ]


def _places(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    return list(dict.fromkeys(str(r["rows_go_to"]) for r in results["intake_beside"]))


def sustained_per_s(records: Sequence[Mapping[str, Any]], where: str) -> float:
    """The rate at which as many are scheduled as are handed over: where the two lines cross.

    Where they do not cross within what was simulated, the last hand-over rate: no less is sustained.
    """
    points = sorted((r["intake_per_s"], r["per_s"]) for r in records if r["rows_go_to"] == where)
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 >= x0 and y1 < x1:
            share = (y0 - x0) / ((y0 - x0) + (x1 - y1))
            return float(x0 + share * (x1 - x0))
    return float(points[-1][1])
