"""What the demo schedules: when, for when, and what is changed afterwards.

Times are seconds after the start, all in proportion to the length of the run. With 60 s: messages are
scheduled over the first 20 s, with delays from 2 to 30 s; every seventh is due at one and the same instant
("everybody at nine"), so that the leader has a burst to hand over when it is killed.
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random

#: Shares of the run's length.
SENDING = 1 / 3
SHORTEST_DELAY = 1 / 30
LONGEST_DELAY = 1 / 2
BURST_DUE = 7 / 12
_BURST_SENDING = (1 / 12, 13 / 60)
#: The lookahead, unless another is asked for: so that delays of its length and less go straight to the queue,
#: and the others wait in rows.
LOOKAHEAD = 1 / 3

_BURST_EVERY = 7
_CHANGED_EVERY = 12
#: A change has to arrive well before the leader may read the row.
_CHANGE_MARGIN = 1.5


class Change(StrEnum):
    """What its sender does to a message afterwards."""

    NONE = "none"
    CANCEL = "cancel"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Planned:
    """One message."""

    message_id: str
    send_at: float
    due_at: float
    #: Scheduled for an instant, like the whole burst; otherwise with a delay.
    at_instant: bool = False
    change: Change = Change.NONE
    change_at: float = 0.0
    #: Where a moved message is moved to.
    new_due_at: float = 0.0
    #: Its queue is deleted once it is scheduled.
    doomed: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """All messages, in the order in which they are scheduled."""

    messages: tuple[Planned, ...]
    #: Messages that will wait in rows until a leader hands them over.
    rows: int
    #: When the last one is due.
    ends_at: float


def write_scenario(messages: int, seconds: float, lookahead: float, *, seed: int = 1) -> Scenario:
    """The same scenario for the same arguments.

    Args:
        messages: how many, the doomed one included; at least 2.
        seconds: length of the run.
        lookahead: of the endpoint, in seconds: longer delays become rows.
        seed: of the choices.
    """
    random = Random(seed)
    doomed = Planned("demo-doomed", 0.0, lookahead + seconds * SHORTEST_DELAY, doomed=True)
    planned = [doomed]
    for number in range(1, messages):
        message_id = f"demo-{number:05d}"
        if number % _BURST_EVERY == 0:
            send_at = seconds * random.uniform(*_BURST_SENDING)
            planned.append(Planned(message_id, send_at, seconds * BURST_DUE, at_instant=True))
        else:
            planned.append(_single(message_id, number, seconds, lookahead, random))
    planned.sort(key=lambda one: one.send_at)
    rows = sum(
        one.due_at - one.send_at > lookahead and one.change is not Change.CANCEL and not one.doomed
        for one in planned
    )
    return Scenario(tuple(planned), rows, max(max(one.due_at, one.new_due_at) for one in planned))


def _single(message_id: str, number: int, seconds: float, lookahead: float, random: Random) -> Planned:
    send_at = seconds * SENDING * random.random()
    delay = seconds * random.uniform(SHORTEST_DELAY, LONGEST_DELAY)
    due_at = send_at + delay
    # A row can be changed until the leader may read it, a hidden message until it is due.
    changeable = (delay - lookahead if delay > lookahead else delay) - _CHANGE_MARGIN
    kind = number % _CHANGED_EVERY
    if changeable <= 0 or kind > 1:
        return Planned(message_id, send_at, due_at)
    change_at = send_at + changeable * random.uniform(0.2, 0.8)
    if kind == 0:
        return Planned(message_id, send_at, due_at, change=Change.CANCEL, change_at=change_at)
    soonest, latest = change_at + seconds * SHORTEST_DELAY, seconds * (SENDING + LONGEST_DELAY)
    new_due_at = random.uniform(soonest, max(soonest, latest))
    return Planned(
        message_id, send_at, due_at, change=Change.MOVE, change_at=change_at, new_due_at=new_due_at
    )
