"""One unbroken spell of leadership, and until when this process may act on it.

The service counts a lease from when it handled the call, which is after the call was made. So the trust
window is counted from just *before* the call, on the monotonic clock, less a margin: a slow successful
renewal never stretches it, and a process that was frozen finds its window over when it wakes.
"""

from dataclasses import dataclass

#: Share of the lease that is not used: room for a send that is under way when the window closes.
MARGIN = 0.2


@dataclass(frozen=True, slots=True)
class Term:
    """`number` only grows, from leader to leader; it is the fencing token. Instants are monotonic seconds."""

    number: int
    trusted_until: float
    renew_at: float

    def may_act(self, now: float) -> bool:
        """Whether the lease is surely still ours at `now`."""
        return now < self.trusted_until


def begin(number: int, *, attempted_at: float, lease_seconds: float) -> Term:
    """The term after a successful acquire or renew that was begun at `attempted_at`."""
    return Term(
        number=number,
        trusted_until=attempted_at + lease_seconds * (1 - MARGIN),
        renew_at=attempted_at + lease_seconds / 3,
    )
