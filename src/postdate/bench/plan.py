"""What `postdate bench` does to a user's own account, told before it is done."""

from collections import Counter
from collections.abc import Mapping

from postdate.bench.scale import LIMIT_CONCURRENCIES, ROWS_A_BATCH, Scale
from postdate.model.requests import RequestKind, Service

#: Workloads and contenders of a user's run: what says most for the least.
DRAINS = ("limit", "drain")
LATENESS = ("trickle", "burst")
CONTENDERS = ("limit", "classic", "sdk_loop", "postdate")

_PUT = RequestKind(Service.QUEUE, "put message")
_DELETE = RequestKind(Service.TABLE, "delete")
_BATCH = RequestKind(Service.TABLE, "batch")
_QUERY = RequestKind(Service.TABLE, "query")
_RENEW = RequestKind(Service.BLOB, "renew lease")
_CLASSIC_PAGE = 50
_REMOVED_AT_ONCE = 50
_PAGE = 1_000
_LOOKS = 60
#: The limit is measured before and after the drains.
_LIMITS = 2


def steps_of(*, lateness: bool) -> set[str]:
    """What the run chooses of all steps."""
    return {*DRAINS, *CONTENDERS, *(LATENESS if lateness else ())}


def forecast(scale: Scale, *, lateness: bool) -> Mapping[RequestKind, int]:
    """About how many requests a run makes, by what they do, but for setting up and cleaning."""
    requests: Counter[RequestKind] = Counter()
    puts = scale.limit_puts * len(LIMIT_CONCURRENCIES)
    requests[_PUT] += _LIMITS * 2 * puts
    requests[_BATCH] += _LIMITS * 2 * puts // ROWS_A_BATCH  # rows come and go
    requests[_PUT] += scale.drain  # the loop
    requests[_DELETE] += scale.drain
    requests[_BATCH] += scale.drain // ROWS_A_BATCH
    trickle = scale.trickle_rate * scale.trickle_seconds
    classic = [scale.drain, *((trickle, scale.burst) if lateness else ())]
    ours = [scale.drain, *((trickle, scale.burst, scale.burst) if lateness else ())]
    for count in classic:
        pages = count // _CLASSIC_PAGE + 1
        requests.update(
            {_PUT: count, _DELETE: count, _QUERY: pages, _RENEW: 2 * pages, _BATCH: count // ROWS_A_BATCH}
        )
    for count in ours:
        batches = count // ROWS_A_BATCH + count // _REMOVED_AT_ONCE
        requests.update({_PUT: count, _QUERY: count // _PAGE + _LOOKS, _BATCH: batches})
    return {kind: count for kind, count in requests.items() if count}
