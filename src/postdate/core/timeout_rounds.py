"""When the timeout manager looks where.

A round asks about what is due in the store, and looks into a queue: two requests, each minute. What is
rarely needed takes the place of one of these now and then, so that an idle manager never makes more:

- The dispatcher's queue holds notices of older instances only. They do not matter for punctuality, since the
  store tells the same; somebody has to take them away.
- A look everywhere finds timeouts whose partition is not that of their due time.
"""

from dataclasses import dataclass

#: Seconds between two rounds.
ROUND_SECONDS = 60.0
#: Seconds between two looks, each one request, where there is nothing of the timeout manager: for the store,
#: and for a queue without one, in turn.
REST_SECONDS = 600.0
#: The number of a round where nothing was found the last time.
RESTING = -1
#: Rounds of which one looks into the dispatcher's queue, and of which one looks everywhere.
_NOTICES_EACH = 10
_EVERYWHERE_EACH = 60
_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Round:
    """What one round looks at, besides what is due."""

    #: The timeouts queue: what shall be kept until it is due.
    requests: bool
    #: The dispatcher's queue: what somebody found to be due.
    notices: bool
    #: All partitions of the store.
    everywhere: bool


def round_of(number: int) -> Round:
    """The round of this number.

    The first of a term, 0, looks at all. That of one who rests does too, but not into all partitions.
    """
    if number <= 0:
        return Round(requests=True, notices=True, everywhere=number == 0)
    if number % _EVERYWHERE_EACH == _EVERYWHERE_EACH // 2:
        return Round(requests=False, notices=False, everywhere=True)
    notices = number % _NOTICES_EACH == _NOTICES_EACH // 2
    return Round(requests=not notices, notices=notices, everywhere=False)


def pause_after(quiet_rounds: int) -> float:
    """Seconds until the next round, after so many in a row that found no message in a queue.

    Where one came, there may soon be more: the next look follows in a second.
    """
    return min(ROUND_SECONDS, 2.0 ** min(quiet_rounds, 10))


def retry_after(failures: int) -> float:
    """Seconds until the next try, after so many failures (from 1) in a row.

    Without jitter: there is one leader, so nobody comes at the same time.
    """
    return min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(failures - 1, 10))
