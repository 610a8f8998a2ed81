"""Slowing down when nothing succeeds: failures in a row, counted (recoverability, section 7)."""

from dataclasses import dataclass


@dataclass(slots=True)
class Slowdown:
    """After `limit` failures in a row, of all messages, one at a time until one succeeds; 0: never."""

    limit: int
    failures: int = 0

    @property
    def active(self) -> bool:
        """Whether to go slowly."""
        return 0 < self.limit <= self.failures

    def failed(self) -> bool:
        """Count a failure; True: this one began the slowdown."""
        self.failures += 1
        return self.failures == self.limit

    def succeeded(self) -> bool:
        """A message was handled; True: this ended the slowdown."""
        was_active = self.active
        self.failures = 0
        return was_active
