"""When a leader may rest: look at the table rarely, on a long lease.

A delay of at most `direct_within` goes straight to its queue. So a row that nobody has seen yet is due at
least that much later, and a leader that found nothing near need not look again before. Nor need a follower
be quick to take over: it is in time as long as it leads before the first such row is due.

With the defaults a resting leader makes two requests each 54 s: one look, one renewal.
"""

from datetime import timedelta

#: Seconds of the lease of a resting leader: the longest that the service gives.
REST_LEASE_SECONDS = 60
#: Seconds after which it is renewed. What is left is enough for a look and one try; should that fail, the
#: term ends, and nobody is late for it.
REST_RENEWAL_SECONDS = 54.0
#: Seconds that a new leader has for its first pass.
_SPARE_SECONDS = 5.0
#: Time that a leader has to hand over what it found at the last moment.
_PASS = timedelta(seconds=2)
#: Sleep between two looks where rows can turn up at short notice.
WATCHFUL = timedelta(seconds=10)


def rest_lease(rest_until: float | None, *, now: float, probe_seconds: float) -> bool:
    """Whether a lease taken now may be a long one: its expiry, after a crash, would be in time.

    Args:
        rest_until: monotonic seconds; nothing can need a leader before. None: something does.
        now: monotonic seconds.
        probe_seconds: between two tries of a follower.
    """
    takeover = REST_LEASE_SECONDS + probe_seconds + _SPARE_SECONDS
    return rest_until is not None and now + takeover <= rest_until


def slack_of(lookahead: timedelta, *, takeover: timedelta) -> timedelta:
    """How much later than the lookahead reaches it a message may be handed over, a crash included."""
    return max(timedelta(0), lookahead - takeover - _PASS)


def longest_sleep(idle_interval: timedelta, *, direct_limit: timedelta, takeover: timedelta) -> timedelta:
    """How long a leader may go without a look, although it knows of nothing.

    A row is seen early enough for another process to take over before it is due; where delays of a few
    seconds can become rows (no lookahead), that can't be had, and the leader looks each ten seconds.

    Args:
        idle_interval: the longest that is wanted.
        direct_limit: every delay above it is a row.
        takeover: how long a crash leaves the endpoint without a leader.
    """
    return min(idle_interval, max(WATCHFUL, direct_limit - takeover))
