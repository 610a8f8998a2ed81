"""What the timeout manager knows while it leads. Instants are monotonic seconds."""

from dataclasses import dataclass, field, replace

from postdate.core.timeout_rounds import REST_SECONDS, RESTING
from postdate.events import Event, Events
from postdate.legacy.handing_over import Acting


@dataclass(slots=True)
class TermState:
    """Of one term: when to look, where nothing was, and what was said."""

    acting: Acting
    next_round_at: float
    #: Of the next round.
    number: int = 0
    #: Rounds in a row that found no message; at first as if it had been quiet for long.
    quiet_rounds: int = 10
    #: When to look at the store before the next round; None: not before.
    wake_at: float | None = None
    #: Queues that were missing, and when to look for them again.
    missing: dict[str, float] = field(default_factory=dict)
    #: Queues whose last look found something: they are looked into again in the next round.
    busy: set[str] = field(default_factory=set)
    #: Whether it is worth asking if all is empty.
    ask_if_empty: bool = True
    told: set[type[Event]] = field(default_factory=set)
    #: Set when the store failed in the middle of a look: what is left of it would fail too.
    halted: bool = False
    rests: int = 0
    #: Whether there was no store the last time.
    storeless: bool = False

    def next_term(self, acting: Acting, now: float) -> "TermState":
        """Of the next term of this process. Rounds go on where they were: terms may be short."""
        return replace(self, acting=acting, wake_at=now, told=set(), halted=False, ask_if_empty=True)

    def wake_by(self, at: float) -> None:
        """Look at the store by this instant."""
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at

    @property
    def look_at(self) -> float:
        """When to look again."""
        return self.next_round_at if self.wake_at is None else min(self.wake_at, self.next_round_at)

    def rest(self, now: float, *, storeless: bool = False) -> None:
        """There is nothing here: look again in a while."""
        self.number = RESTING
        self.rests += 1
        self.storeless = storeless
        self.missing.clear()
        self.wake_at = None
        self.ask_if_empty = True
        self.next_round_at = now + REST_SECONDS

    def tell_once(self, events: Events, event: Event) -> None:
        """Emit an event, unless one of its kind was in this term."""
        if type(event) not in self.told:
            self.told.add(type(event))
            events.emit(event)
