"""How a load drains: messages of each minute, handed over at a given rate. Pure.

A leader takes a message as soon as its due time is nearer than the lookahead, earliest first, and hands over
so many a second. Of a minute's messages each is taken to be due when the minute begins, so what is late is
told too late by less than a minute, never too early.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class DrainedMinute:
    """A minute's messages on their way out."""

    minute: datetime
    messages: int
    #: Of earlier minutes, still there when this minute's first could be handed over.
    backlog: int
    #: When the last of them is handed over.
    done_at: datetime
    #: How long after its minute's begin that is; 0: in time.
    late: timedelta


def drained(
    minutes: Iterable[tuple[datetime, int]], *, rate: float, start: datetime, lookahead: timedelta
) -> Iterator[DrainedMinute]:
    """What becomes of each minute's messages. Memory does not grow with the minutes.

    Args:
        minutes: begin of a minute (aware) and its messages, in order; those without messages may be left out.
        rate: messages a second, above 0.
        start: nothing is handed over before; what is overdue then begins then.
        lookahead: how long before its due time a message is taken.
    """
    pace = Fraction(rate)
    done = Fraction(0)  # seconds after start when all so far are handed over
    for minute, messages in minutes:
        due = _seconds(minute - start)
        begins = max(Fraction(0), due - _seconds(lookahead))
        waiting = max(Fraction(0), done - begins)
        done = max(done, begins) + messages / pace
        # A message is gone when its turn is over.
        backlog = -(-waiting * pace // 1)
        yield DrainedMinute(
            minute, messages, int(backlog), _after(start, done), _span(max(Fraction(0), done - due))
        )


def _seconds(span: timedelta) -> Fraction:
    return Fraction(span // timedelta(microseconds=1), 1_000_000)


def _span(seconds: Fraction) -> timedelta:
    try:
        return timedelta(microseconds=round(seconds * 1_000_000))
    except OverflowError:
        return timedelta.max


def _after(start: datetime, seconds: Fraction) -> datetime:
    try:
        return start + _span(seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=start.tzinfo)
