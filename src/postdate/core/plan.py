"""What to do with the rows of a page: a pure decision.

A row is handed over when it is due within the lookahead, hidden in its queue until its due time. Hidden
time is whole seconds, so it is rounded up: late by less than a second, never early.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from postdate.model.delayed import DelayedRow, Row, UnreadableRow
from postdate.model.limits import MAX_HIDDEN_SECONDS


@dataclass(frozen=True, slots=True)
class HandOver:
    """Put the message on its destination; how long it is hidden is decided at that moment."""

    row: DelayedRow


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


def plan(page: Iterable[Row], *, now: datetime, lookahead: timedelta) -> list[Step]:
    """One step for each row of a page.

    Args:
        page: rows in due order.
        now: the earliest that the storage service's clock can show.
        lookahead: how long before its due time a message may be handed over.
    """
    steps: list[Step] = []
    for row in page:
        ready_at = ready(row, lookahead)
        if ready_at is not None and ready_at > now:
            steps.append(Wait(row, ready_at))
        elif isinstance(row, UnreadableRow):
            steps.append(Refuse(row))
        else:
            steps.append(HandOver(row))
    return steps


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
