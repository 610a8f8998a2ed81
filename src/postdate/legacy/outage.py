"""How long looking for timeouts has failed, and when somebody has to be told."""

from dataclasses import dataclass

from postdate.core.timeout_rounds import retry_after


@dataclass(slots=True)
class Outage:
    """Failures in a row. Instants are monotonic seconds."""

    limit_s: float
    failures: int = 0
    since: float | None = None
    told: bool = False

    def over(self) -> None:
        """A look succeeded."""
        self.failures, self.since, self.told = 0, None, False

    def failed(self, now: float) -> float:
        """A look failed; seconds until the next: at the latest when the limit is reached."""
        self.failures += 1
        if self.since is None:
            self.since = now
        pause, left_s = retry_after(self.failures), self.limit_s - (now - self.since)
        return min(pause, left_s) if left_s > 0 else pause

    def lasts_too_long(self, now: float) -> bool:
        """Whether this failure is the one that has to be told; True once for each outage."""
        if self.told or self.since is None or now - self.since < self.limit_s:
            return False
        self.told = True
        return True
