"""One unbroken spell of leadership, and until when this process may act on it.

The service counts a lease from when it handled the call, which is after the call was made. So the trust
window is counted from just *before* the call, on the monotonic clock, less a margin: a slow successful
renewal never stretches it, and a process that was frozen finds its window over when it wakes.
"""

from dataclasses import dataclass

#: Seconds of the lease that are not used: room for a send that is under way when the window closes.
MARGIN = 3.0


@dataclass(frozen=True, slots=True)
class Term:
    """`number` only grows, from leader to leader; it is the fencing token. Instants are monotonic seconds."""

    number: int
    trusted_until: float
    renew_at: float

    def may_act(self, now: float) -> bool:
        """Whether the lease is surely still ours at `now`."""
        return now < self.trusted_until


def begin(
    number: int, *, attempted_at: float, lease_seconds: float, renew_after: float | None = None
) -> Term:
    """The term after a successful acquire or renew that was begun at `attempted_at`.

    It is renewed after a third of the lease, unless another number of seconds is given.
    """
    if renew_after is None:
        renew_after = lease_seconds / 3
    return Term(
        number=number,
        trusted_until=attempted_at + lease_seconds - MARGIN,
        renew_at=attempted_at + renew_after,
    )
