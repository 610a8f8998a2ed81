"""What a task did, as far as it is known; a sum of two depends on no order."""

from collections import Counter
from dataclasses import asdict, dataclass, field

import msgspec

from postdate.events import Event, Expired, HandedOver, MovedToErrorQueue, Removed

DONE, STOPPED, LOST = "done", "stopped", "lease lost"
#: The worse, the later.
_ENDS = (DONE, STOPPED, LOST)


@dataclass(slots=True)
class Tally:
    """Counts of messages. An observer of the endpoint's events."""

    handed_over: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    expired: int = 0
    #: Attempts that failed; the rows wait for the next one.
    failed: int = 0
    #: Rows that were left alone: in back-off, or not due yet.
    waiting: int = 0
    #: Rows of what was sent: removed by us, or found gone or changed.
    removed: int = 0
    missed: int = 0
    #: Attempts of the task before this one, which ended without a word.
    unheard: int = 0
    end: str = DONE

    def __call__(self, event: Event) -> None:
        """Hear an event."""
        if isinstance(event, HandedOver):
            name = event.destination
            self.handed_over[name] = self.handed_over.get(name, 0) + 1
        elif isinstance(event, Removed):
            self.removed += event.count
            self.missed += event.missed
        elif isinstance(event, MovedToErrorQueue):
            self.moved += 1
        elif isinstance(event, Expired):
            self.expired += 1

    @property
    def sent(self) -> int:
        """Messages handed over."""
        return sum(self.handed_over.values())

    @property
    def unremoved(self) -> int:
        """Rows of what was sent that are still there: the next leader sends them again."""
        return max(0, self.sent + self.moved + self.expired - self.removed - self.missed)

    def doubtful(self, batch: int) -> int:
        """Messages that may be there twice, at most; an attempt without a word left at most a batch."""
        return self.missed + self.unremoved + self.unheard * batch

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            dict(Counter(self.handed_over) + Counter(other.handed_over)),
            self.moved + other.moved,
            self.expired + other.expired,
            self.failed + other.failed,
            self.waiting + other.waiting,
            self.removed + other.removed,
            self.missed + other.missed,
            self.unheard + other.unheard,
            max(self.end, other.end, key=_ENDS.index),
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """What a task's document says."""

    #: Attempts that claimed it.
    attempts: int = 0
    #: What the one that ended did.
    told: Tally | None = None

    def json(self) -> bytes:
        """As it is stored."""
        return msgspec.json.encode(asdict(self))

    @classmethod
    def read(cls, text: bytes) -> "Claim":
        """Back from `json`; nothing: nobody claimed it yet."""
        return msgspec.json.decode(text, type=cls) if text else cls()
