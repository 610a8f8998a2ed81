"""When a failure has lasted for so long that it is critical: pure decisions, time passed in.

**Over time** (`OverTimeBreaker`): disarmed; armed by a failure; triggered when things failed for a window.
Any success disarms it. Only a failure triggers it, never time alone: at the end of the window it takes one
more, so that a failure and then silence, in which nobody tried anything, is nothing critical. Nor do two
failures with a long silence between them belong together: the second arms it anew.

**By rate** (`RateBreaker`): triggered when so many failures lie within a sliding window, whatever succeeds in
between; disarmed by the first success after a window without any.

A triggered breaker stays so until it is disarmed: what it triggers happens once. All instants are monotonic
seconds, in the order of the calls.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

#: Seconds over which failures are counted by rate.
RATE_WINDOW_SECONDS = 30.0


class BreakerState(StrEnum):
    """What a breaker thinks of its part."""

    DISARMED = "disarmed"
    ARMED = "armed"
    TRIGGERED = "triggered"


class Decision(Protocol):
    """What both kinds have."""

    @property
    def state(self) -> BreakerState:
        """What was decided so far."""
        ...

    @property
    def began_at(self) -> float:
        """When the first of the failures came that are taken together; without any, nothing is meant."""
        ...

    @property
    def decides_at(self) -> float | None:
        """From when on a failure triggers it, if that is known."""
        ...

    def failed(self, now: float) -> None:
        """Something failed."""
        ...

    def succeeded(self, now: float) -> None:
        """Something went through."""
        ...


@dataclass(slots=True)
class OverTimeBreaker:
    """Triggers when failures went on for `window_s` without a success."""

    window_s: float
    #: Failures that are further apart don't belong together; longer than the window.
    silence_s: float
    state: BreakerState = field(default=BreakerState.DISARMED, init=False)
    began_at: float = field(default=0.0, init=False)
    _failed_at: float = field(default=0.0, init=False)

    @property
    def decides_at(self) -> float | None:
        """The end of the window, while it is armed."""
        return self.began_at + self.window_s if self.state is BreakerState.ARMED else None

    def failed(self, now: float) -> None:
        """Something failed."""
        quiet_s, self._failed_at = now - self._failed_at, now
        decides_at = self.decides_at
        if self.state is BreakerState.DISARMED or (decides_at is not None and quiet_s > self.silence_s):
            self.state, self.began_at = BreakerState.ARMED, now
        elif decides_at is not None and now >= decides_at:
            self.state = BreakerState.TRIGGERED

    def succeeded(self, now: float) -> None:  # noqa: ARG002 - whenever it was
        """Something went through."""
        self.state = BreakerState.DISARMED


@dataclass(slots=True)
class RateBreaker:
    """Triggers when the failures within a sliding window reach `maximum_per_s` on the average."""

    maximum_per_s: float
    window_s: float = RATE_WINDOW_SECONDS
    state: BreakerState = field(default=BreakerState.DISARMED, init=False)
    #: The latest, as many as it takes.
    _failures: deque[float] = field(init=False)

    def __post_init__(self) -> None:
        self._failures = deque(maxlen=self.limit)

    @property
    def limit(self) -> int:
        """So many failures within the window trigger it."""
        return max(1, math.ceil(self.maximum_per_s * self.window_s))

    @property
    def began_at(self) -> float:
        """The first failure that counts."""
        return self._failures[0] if self._failures else 0.0

    @property
    def decides_at(self) -> float | None:
        """Any failure may."""
        return None

    def failed(self, now: float) -> None:
        """Something failed."""
        self._forget(now)
        self._failures.append(now)
        if len(self._failures) >= self.limit:
            self.state = BreakerState.TRIGGERED
        elif self.state is BreakerState.DISARMED:
            self.state = BreakerState.ARMED

    def succeeded(self, now: float) -> None:
        """Something went through."""
        self._forget(now)
        if not self._failures:
            self.state = BreakerState.DISARMED

    def _forget(self, now: float) -> None:
        while self._failures and now - self._failures[0] >= self.window_s:
            self._failures.popleft()
