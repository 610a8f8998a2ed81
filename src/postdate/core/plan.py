"""What to do with the rows of a page: a pure decision.

A row is handed over when it is due within the lookahead, hidden in its queue until its due time. Hidden
time is whole seconds, rounded up: never early. How late depends on the instant of the send: a whole number
of seconds before the due time it is not late at all, anywhere else up to a second.

So a few messages are each sent at the next such instant, which is at most a second away. A burst can't be:
it goes out at once, at the pace that the service takes, ahead of its due time and late by less than a
second. Only who would come later than nine tenths of it waits for that instant: a tenth at most.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from postdate.model.delayed import DelayedRow, Row, UnreadableRow
from postdate.model.limits import MAX_HIDDEN_SECONDS

_SECOND = timedelta(seconds=1)
#: Seconds that a message of a burst waits at most, to be in time instead of nearly a second late.
BURST_PATIENCE = 0.1


@dataclass(frozen=True, slots=True)
class HandOver:
    """Put the message on its destination; how long it is hidden is decided at that moment."""

    row: DelayedRow
    #: Not before this instant: the hidden time then ends exactly when the message is due.
    send_at: datetime


@dataclass(frozen=True, slots=True)
class Refuse:
    """Send the row to the error queue: it can't be read."""

    row: UnreadableRow


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave the row alone until then."""

    row: Row
    until: datetime


Step = HandOver | Refuse | Wait


def hidden_seconds(due_at: datetime, now: datetime) -> int:
    """Whole seconds to hide a message so that it appears at `due_at` or within a second after."""
    remaining = (due_at - now).total_seconds()
    return min(max(0, math.ceil(remaining)), MAX_HIDDEN_SECONDS)


def send_instant(due_at: datetime, now: datetime) -> datetime:
    """The first instant from `now` on that is a whole number of seconds before the due time."""
    if due_at <= now:
        return now
    return due_at - timedelta(seconds=(due_at - now) // _SECOND)


def pause_before(due_at: datetime, now: datetime, patience: float) -> float:
    """Seconds to wait before sending, so as to be exactly in time; 0: more than `patience`, or overdue."""
    pause = (send_instant(due_at, now) - now).total_seconds()
    return pause if pause <= patience else 0.0


def plan(page: Iterable[Row], *, now: datetime, lookahead: timedelta, precise_limit: int = 0) -> list[Step]:
    """One step for each row of a page, in the order of sending.

    Args:
        page: rows in due order.
        now: the earliest that the storage service's clock can show.
        lookahead: how long before its due time a message may be handed over.
        precise_limit: sends within one second that surely find the service free. A page in which more than
            these are due per second is a burst: each is sent at once.
    """
    steps: list[Step] = []
    for row in page:
        ready_at = ready(row, lookahead)
        if ready_at is not None and ready_at > now:
            steps.append(Wait(row, ready_at))
        elif isinstance(row, UnreadableRow):
            steps.append(Refuse(row))
        else:
            steps.append(HandOver(row, now))
    ahead = [step for step in steps if isinstance(step, HandOver) and step.row.delayed.due_at > now]
    return steps if _is_burst(ahead, precise_limit) else _aligned(steps, ahead, now, precise_limit)


def _is_burst(ahead: list[HandOver], precise_limit: int) -> bool:
    """Whether more are due per second, over the time from the first to the last, than can be timed singly."""
    if len(ahead) <= precise_limit:
        return False
    dues = [step.row.delayed.due_at for step in ahead]
    return len(ahead) > precise_limit * (max(dues) - min(dues)) / _SECOND


def _aligned(steps: list[Step], ahead: list[HandOver], now: datetime, precise_limit: int) -> list[Step]:
    """What is overdue first, then each message at an instant of its own, so many within each second."""
    at: dict[int, datetime] = {}
    for number, step in enumerate(ahead):
        due_at = step.row.delayed.due_at
        # In time also where little is left of it: then more than so many share a second.
        seconds = min(number // precise_limit, (due_at - now) // _SECOND)
        at[id(step)] = send_instant(due_at, now + seconds * _SECOND)
    timed: list[Step] = [
        replace(step, send_at=at.get(id(step), step.send_at)) if isinstance(step, HandOver) else step
        for step in steps
    ]
    return sorted(timed, key=lambda step: step.send_at if isinstance(step, HandOver) else now)


def ready(row: Row, lookahead: timedelta) -> datetime | None:
    """From when on the row may be handed over; None: at once."""
    if isinstance(row, UnreadableRow):
        due_at, next_attempt_at = row.due_at, row.next_attempt_at
    else:
        due_at, next_attempt_at = row.delayed.due_at, row.delayed.next_attempt_at
    # Hidden for longer than a queue can, a message would come early.
    lookahead = min(lookahead, timedelta(seconds=MAX_HIDDEN_SECONDS))
    # A row whose last attempt failed is tried when its back-off is over, but not before the lookahead.
    instants = [due_at - lookahead] if due_at is not None else []
    if next_attempt_at is not None:
        instants.append(next_attempt_at)
    return max(instants, default=None)
