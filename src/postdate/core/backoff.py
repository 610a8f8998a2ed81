"""How long to wait after a failure."""

from random import Random


def classic_idle_wait(idle_polls: int, peek_s: float = 0.125, maximum_s: float = 30.0) -> float:
    """Seconds that the .NET poller sleeps after its n-th idle poll in a row (n from 1).

    Kept for comparison: our leader sleeps until the next due time instead.
    """
    return min(idle_polls * peek_s, maximum_s)


def retry_wait(failures: int, *, base_s: float, maximum_s: float, random: Random) -> float:
    """Seconds before the next try after `failures` (from 1) in a row: exponential, with jitter.

    Between half and all of `base_s * 2 ** (failures - 1)`, at most `maximum_s`: half is kept so that a
    failing row never comes back at once.
    """
    full = min(maximum_s, base_s * 2.0 ** min(failures - 1, 40))
    return full * random.uniform(0.5, 1.0)


def jittered(seconds: float, random: Random, share: float = 0.1) -> float:
    """`seconds` less up to `share` of it, so that processes started together spread out."""
    return seconds * (1.0 - random.uniform(0.0, share))
