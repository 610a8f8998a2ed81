"""What a peer's processes are told, and how they tell what they did."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

from postdate.clock import SystemClock

#: A message of ours: its number and its due time in milliseconds since 1970, the finest that all peers keep.
Message = tuple[int, int]
Schedule = Callable[[Sequence[Message]], None]

_FILE = "peer.json"


@dataclass(frozen=True)
class Wiring:
    """Written into a process's own folder, in which it is started."""

    #: Of the server.
    url: str
    #: Where deliveries are recorded.
    record: str
    #: Which process delivered.
    label: str

    def write(self, folder: Path) -> None:
        """For the process that is started in `folder`."""
        (folder / _FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls) -> Self:
        """What this process was told."""
        return cls(**json.loads(Path(_FILE).read_text(encoding="utf-8")))


class Recorder:
    """Notes deliveries in a file that several processes append to, a line in one write."""

    def __init__(self, wiring: Wiring) -> None:
        self._clock = SystemClock()
        self._label = wiring.label
        self._file = os.open(wiring.record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, number: int, due_ms: int) -> None:
        """All that the peers' tasks do; call it first."""
        now = self._clock.now().timestamp()
        os.write(self._file, f"{number} {due_ms} {now:.6f} {self._label}\n".encode())


@dataclass(frozen=True)
class Delivery:
    """One line of a record."""

    number: int
    due_s: float
    at_s: float
    label: str

    @property
    def late_s(self) -> float:
        """Seconds after the due time, both by this machine's clock."""
        return self.at_s - self.due_s


class Record:
    """The deliveries that were noted in a file, as far as it was read."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._path = path
        self._read = 0
        self._numbers: set[int] = set()
        self.deliveries: list[Delivery] = []
        #: Labels of the processes that delivered a probe: messages with a number below zero.
        self.probed: set[str] = set()

    def refresh(self) -> None:
        """Read what was added."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.decode().splitlines():
            number, due_ms, at, label = line.split()
            if int(number) < 0:
                self.probed.add(label)
            else:
                self._numbers.add(int(number))
                self.deliveries.append(Delivery(int(number), int(due_ms) / 1000, float(at), label))

    @property
    def count(self) -> int:
        """How many messages were delivered, each counted once."""
        return len(self._numbers)

    @property
    def firsts(self) -> dict[int, Delivery]:
        """The first delivery of each message."""
        firsts: dict[int, Delivery] = {}
        for delivery in sorted(self.deliveries, key=lambda one: one.at_s):
            firsts.setdefault(delivery.number, delivery)
        return firsts

    @property
    def duplicated(self) -> int:
        """Deliveries beyond the first of each message."""
        return len(self.deliveries) - self.count

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two deliveries."""
        instants = sorted(delivery.at_s for delivery in self.deliveries)
        return max((later - earlier for earlier, later in pairwise(instants)), default=0.0)
