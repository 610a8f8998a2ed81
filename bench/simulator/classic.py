"""The published algorithm of the closest peer, as a small model: nothing of it is run.

One page of 50 rows at a time: renew the lease, query, renew again, then for all 50 rows side by side a send
and after it a delete of the one row; the next page is read when the slowest row is done. Same latencies, no
limits of the service, and no processor time, so this is what it reaches at best.
"""

from dataclasses import dataclass
from random import Random
from statistics import fmean

from bench.simulator.limits import Latencies

_PAGE = 50
_CYCLES = 2_000


@dataclass(frozen=True)
class Classic:
    """What the model gives."""

    per_s: float
    requests_per_message: float
    #: Seconds of one page: the slowest row's share, and all.
    slowest_row_s: float
    page_s: float


def classic(latencies: Latencies, seed: int) -> Classic:
    """The mean of many pages."""
    random = Random(seed)
    slowest = [
        max(latencies.put_message.draw(random) + latencies.entity.draw(random) for _ in range(_PAGE))
        for _ in range(_CYCLES)
    ]
    before = [latencies.lease.draw(random) * 2 + latencies.query.draw(random, _PAGE) for _ in range(_CYCLES)]
    slowest_row_s = fmean(slowest) * latencies.factor
    page_s = slowest_row_s + fmean(before) * latencies.factor
    return Classic(
        per_s=_PAGE / page_s,
        requests_per_message=2 + 3 / _PAGE,
        slowest_row_s=slowest_row_s,
        page_s=page_s,
    )
