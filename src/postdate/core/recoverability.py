"""What becomes of a message whose handler failed: pure decisions.

    received -> handler raises -> policy(config, context) -> one action

    ImmediateRetry      the message is visible again at once
    DelayedRetry(d)     it comes again when the delay is over
    MoveToError(queue)  a copy with the reason in its headers goes to the error queue
    Discard(reason)     it goes, and a record says why

Two counters: `f`, failures since the message was last put into its queue or put off (the service's dequeue
count tells it), and `d`, delayed retries done (a header tells it). Rules and defaults are those of
NServiceBus (recoverability, sections 1 to 3), so a default policy makes
(immediate + 1) x (delayed + 1) attempts: 24.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from postdate.core.classify import Classifier, Kind
from postdate.errors import UsageError
from postdate.model import headers as h


@dataclass(frozen=True, slots=True)
class ImmediateRetry:
    """Again, at once."""


@dataclass(frozen=True, slots=True)
class DelayedRetry:
    """Again, after a delay."""

    delay: timedelta

    def __post_init__(self) -> None:
        if self.delay < timedelta(0):
            raise UsageError(f"delay {self.delay} of a delayed retry is negative")


@dataclass(frozen=True, slots=True)
class MoveToError:
    """To the error queue; None: the endpoint's."""

    queue: str | None = None

    def __post_init__(self) -> None:
        if self.queue is not None and not self.queue.strip():
            raise UsageError("the error queue of a MoveToError is blank; leave it out for the endpoint's own")


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop the message; the reason goes into a record."""

    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise UsageError("a Discard needs a reason")


Action = ImmediateRetry | DelayedRetry | MoveToError | Discard


@dataclass(frozen=True, slots=True)
class RecoverabilityConfig:
    """What a policy goes by; the endpoint's settings fill it."""

    immediate_retries: int = 5
    delayed_retries: int = 3
    #: The k-th delayed retry waits k times this.
    increase: timedelta = timedelta(seconds=10)
    error_queue: str = "error"
    #: No further delayed retry when the last was scheduled longer ago.
    interval_limit: timedelta = timedelta(days=1)
    #: No further delayed retry when the message was sent longer ago; None: any age.
    age_limit: timedelta | None = None
    #: These go to the error queue at once, subclasses too.
    unrecoverable: tuple[type[BaseException], ...] = ()
    #: Whether the endpoint has delayed delivery at all.
    can_delay: bool = True
    #: Whether a failed message can be tried again: not if it was acknowledged before (at most once).
    can_retry: bool = True
    #: Tells apart what a retry can and can't help; None: nothing is told apart.
    classifier: Classifier | None = None


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """One failure. Headers and body are as received, whatever the handler did with them."""

    error: BaseException
    message_id: str
    native_id: str
    headers: Mapping[str, str | None]
    body: bytes = field(repr=False)
    #: The queue that the message came from.
    receive_address: str
    #: `f`: failures since it was last put into the queue or put off, this one included.
    immediate_failures: int
    #: `d`: delayed retries done so far.
    delayed_retries: int
    #: Attempts in all, this one included.
    attempts: int
    #: The storage service's time.
    now: datetime


Policy = Callable[[RecoverabilityConfig, ErrorContext], Action]
#: Of the k-th delayed retry, k from 1.
DelayOf = Callable[[RecoverabilityConfig, int], timedelta]


def linear(config: RecoverabilityConfig, k: int) -> timedelta:
    """10, 20, 30 s by default: the increase, k times."""
    return config.increase * k


def retrying(delay_of: DelayOf) -> Policy:
    """The default steps with another delay between delayed retries."""

    def policy(config: RecoverabilityConfig, context: ErrorContext) -> Action:
        kind = config.classifier(context.error) if config.classifier else Kind.UNKNOWN
        if isinstance(context.error, config.unrecoverable) or kind is Kind.PERMANENT:
            return MoveToError()
        at_once = _immediate_retries(config, kind)
        if context.immediate_failures <= at_once:
            return ImmediateRetry()
        if kind is not Kind.BROKEN and _may_be_put_off(config, context):
            asked = delay_of(config, context.delayed_retries + 1)
            return DelayedRetry(max(asked, hinted_delay(context.error)))
        return MoveToError()

    return policy


default_policy: Policy = retrying(linear)


def exponential(
    base: timedelta = timedelta(seconds=1),
    *,
    maximum: timedelta = timedelta(hours=1),
    jitter: float = 0.5,
    random: Random | None = None,
) -> Policy:
    """The default steps, each delay twice the one before.

    Args:
        base: of the first delayed retry.
        maximum: longest delay.
        jitter: up to this share is taken off by chance, so that messages that failed together don't
            come back together; 0 to 1.
        random: the chance.

    Raises:
        UsageError: base, maximum or jitter is out of range.
    """
    if base <= timedelta(0) or maximum < base or not 0 <= jitter <= 1:
        raise UsageError(
            f"exponential(base={base}, maximum={maximum}, jitter={jitter}): base must be more than zero, "
            "maximum at least base, jitter from 0 to 1"
        )
    chance = random or Random()

    def delay_of(config: RecoverabilityConfig, k: int) -> timedelta:
        del config
        full = min(maximum.total_seconds(), base.total_seconds() * 2.0 ** min(k - 1, 60))
        return timedelta(seconds=full * (1.0 - chance.uniform(0.0, jitter)))

    return retrying(delay_of)


def hinted_delay(error: BaseException) -> timedelta:
    """What the error itself asks to wait: its `retry_after`, a span or seconds; else zero."""
    hint: Any = getattr(error, "retry_after", None)
    if isinstance(hint, timedelta):
        return max(hint, timedelta(0))
    if isinstance(hint, int | float) and not isinstance(hint, bool) and 0 <= hint <= _LONGEST_HINT_SECONDS:
        return timedelta(seconds=hint)
    return timedelta(0)


_LONGEST_HINT_SECONDS = 86_400


def _immediate_retries(config: RecoverabilityConfig, kind: Kind) -> int:
    if kind is Kind.BROKEN:  # the same code on the same message
        return min(1, config.immediate_retries)
    if kind is Kind.BUSY and config.delayed_retries:  # at once would be more of what it is busy with
        return 0
    return config.immediate_retries


def _may_be_put_off(config: RecoverabilityConfig, context: ErrorContext) -> bool:
    if context.delayed_retries >= config.delayed_retries:
        return False
    last = _instant(context.headers.get(h.RETRIES_TIMESTAMP))
    if last is not None and context.now - last > config.interval_limit:
        return False
    sent = _instant(context.headers.get(h.TIME_SENT))
    return config.age_limit is None or sent is None or context.now - sent <= config.age_limit


def _instant(text: str | None) -> datetime | None:
    """None where it is absent or can't be read: such a header limits nothing."""
    try:
        return h.parse_instant(text) if text is not None else None
    except UsageError:
        return None


def retries_done(headers: Mapping[str, str | None]) -> int:
    """`d` from its header; 0 where it is absent or not a number."""
    return _number(headers.get(h.RETRIES))


def failures_now(dequeue_count: int, headers: Mapping[str, str | None]) -> int:
    """`f` of a message whose handler fails now: times handed out, less those that don't count.

    A process that died with the message counts as a failure: nothing else would end a message that kills.
    """
    text = headers.get(h.UNCOUNTED) or ""
    # Negative: failures of the message whose place this one took, which the service no longer counts.
    uncounted = -_number(text[1:]) if text.startswith("-") else _number(text)
    # A copy of the message made by hand begins at 1 again, with the header of the old one.
    return dequeue_count - uncounted if uncounted < dequeue_count else dequeue_count


def attempts_before(headers: Mapping[str, str | None]) -> int:
    """Attempts before the message was last put off."""
    return _number(headers.get(h.ATTEMPTS))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else 0
