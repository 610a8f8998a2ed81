"""How many requests an endpoint will make, from its settings.

Follows what the engine does (`engine.elector`, `engine.poller`, `engine.remover`, `engine.intake`,
`engine.reception`); tests compare it with the requests of real runs. Counts are means.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from postdate.core.rest import REST_RENEWAL_SECONDS, longest_sleep, rest_lease, slack_of
from postdate.core.timeout_rounds import REST_SECONDS
from postdate.model.limits import BATCH_OPERATIONS, PAGE_ROWS
from postdate.model.requests import RequestKind, Service

_HOUR = 3600.0
#: Of the probe interval, jitter takes up to a tenth, a twentieth on the average.
_PROBE_SHARE = 0.95
#: A destination that was seen is not looked at again for so many seconds.
_SEEN_SECONDS = 60.0

Requests = Mapping[RequestKind, float]

QUERY = RequestKind(Service.TABLE, "query")
INSERT = RequestKind(Service.TABLE, "insert")
BATCH = RequestKind(Service.TABLE, "batch")
PUT_MESSAGE = RequestKind(Service.QUEUE, "put message")
GET_MESSAGES = RequestKind(Service.QUEUE, "get messages")
DELETE_MESSAGE = RequestKind(Service.QUEUE, "delete message")
LOOK_AT_QUEUE = RequestKind(Service.QUEUE, "get metadata")
ACQUIRE = RequestKind(Service.BLOB, "acquire lease")
RENEW = RequestKind(Service.BLOB, "renew lease")
RELEASE = RequestKind(Service.BLOB, "release lease")
LIST_BLOBS = RequestKind(Service.BLOB, "list blobs")
GET_BLOB = RequestKind(Service.BLOB, "get blob")
PUT_BLOB = RequestKind(Service.BLOB, "put blob")
LOOK_AT_BLOB = RequestKind(Service.BLOB, "get properties")


@dataclass(frozen=True, slots=True)
class Pace:
    """The settings that decide how often something is asked."""

    lease: timedelta
    probe: timedelta
    idle_interval: timedelta
    lookahead: timedelta
    #: Delays up to this need no row.
    direct_limit: timedelta
    unremoved_limit: int
    receive_batch: int
    #: Between two looks at an empty queue.
    receive_pause_s: float
    #: Whether somebody looks for what older instances left.
    timeout_manager: bool = True


def idle_leader(pace: Pace) -> Requests:
    """An hour of a leader for whom nothing is due."""
    looks = longest_sleep(
        pace.idle_interval, direct_limit=pace.direct_limit, takeover=pace.lease + pace.probe
    ).total_seconds()
    if rest_lease(pace.direct_limit.total_seconds(), now=0.0, probe_seconds=pace.probe.total_seconds()):
        renewals = REST_RENEWAL_SECONDS
        looks = min(looks, renewals)  # it looks before it renews a long lease
    else:
        renewals = _renewals(pace)
    return summed(_per_hour(looks=looks, renewals=renewals), _timeout_manager(pace))


def busy_leader(pace: Pace) -> Requests:
    """An hour of a leader while a message is due in each second; what each costs comes on top."""
    slack = slack_of(pace.lookahead, takeover=pace.lease + pace.probe).total_seconds()
    # Without slack it comes for each of them, and asks when the next one is due.
    looks = slack if slack >= 1.0 else 0.5
    return summed(_per_hour(looks=looks, renewals=_renewals(pace)), _timeout_manager(pace))


def single_pass() -> Requests:
    """One `deliver_due` in a process of its own, with nothing due."""
    return {ACQUIRE: 1.0, GET_BLOB: 1.0, PUT_BLOB: 1.0, QUERY: 2.0, LIST_BLOBS: 1.0, RELEASE: 1.0}


def follower(pace: Pace) -> Requests:
    """An hour of a process that serves and does not lead."""
    return {ACQUIRE: _HOUR / (pace.probe.total_seconds() * _PROBE_SHARE)}


def idle_consumer(pace: Pace) -> Requests:
    """An hour of a process that receives from an empty queue."""
    return {GET_MESSAGES: _HOUR / pace.receive_pause_s}


def checked_destination() -> Requests:
    """An hour of a process that schedules to one destination all the time, and asks whether it is there."""
    return {LOOK_AT_QUEUE: _HOUR / _SEEN_SECONDS}


def scheduled_as_row(*, together: bool) -> Requests:
    """Scheduling one message as a row: alone, or `together` with others of its hour."""
    return {BATCH: 1 / BATCH_OPERATIONS} if together else {INSERT: 1.0}


def scheduled_directly() -> Requests:
    """Scheduling one message that goes straight to its queue."""
    return {PUT_MESSAGE: 1.0}


def handed_over(pace: Pace) -> Requests:
    """Handing over one of many rows."""
    removed_together = min(BATCH_OPERATIONS, max(1, pace.unremoved_limit // 2))
    return {PUT_MESSAGE: 1.0, BATCH: 1 / removed_together, QUERY: 1 / PAGE_ROWS}


def large_body() -> Requests:
    """A body that goes to a blob: stored, fetched, and replaced by a mark when its message is done with."""
    return {PUT_BLOB: 2.0, GET_BLOB: 1.0, LOOK_AT_BLOB: 1.0}


def received(pace: Pace) -> Requests:
    """Receiving and acknowledging one of many messages."""
    return {GET_MESSAGES: 1 / pace.receive_batch, DELETE_MESSAGE: 1.0}


def summed(*parts: Requests) -> Requests:
    """All of them together."""
    total: dict[RequestKind, float] = {}
    for part in parts:
        for kind, count in part.items():
            total[kind] = total.get(kind, 0.0) + count
    return total


def times(factor: float, requests: Requests) -> Requests:
    """So many times as many."""
    return {kind: factor * count for kind, count in requests.items()}


def without(service: Service, requests: Requests) -> Requests:
    """Those to other services."""
    return {kind: count for kind, count in requests.items() if kind.service != service}


def _renewals(pace: Pace) -> float:
    return pace.lease.total_seconds() / 3


def _timeout_manager(pace: Pace) -> Requests:
    """An hour of looking whether there is anything of older instances, where there is nothing."""
    looks = _HOUR / REST_SECONDS if pace.timeout_manager else 0.0
    return {QUERY: looks / 2, LOOK_AT_QUEUE: looks / 2}


def _per_hour(*, looks: float, renewals: float) -> Requests:
    """By the seconds between two of each; large bodies past their age are looked for once an hour."""
    return {QUERY: _HOUR / looks, RENEW: _HOUR / renewals, LIST_BLOBS: 1.0}
