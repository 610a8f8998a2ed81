"""Every error that Postdate raises, as one tree.

    PostdateError
    ├── UsageError                    a mistake in what was asked for; nothing was changed
    │   ├── ConfigurationError        a setting is missing or wrong
    │   ├── InvalidDueTime            naive, not representable, NaN
    │   ├── InvalidDestination        not a queue name, or an unknown account alias
    │   ├── InvalidHeader             not text, or too much text
    │   ├── InvalidBody               cannot be turned into bytes
    │   ├── InvalidHandle             not a handle of ours
    │   ├── MessageTooLarge           would not fit its queue when dispatched
    │   └── MessageRefused            the service does not take what its row holds
    ├── DelayedDeliveryDisabled       the toggle is off
    ├── DestinationNotFound           the queue is not there
    ├── PoisonMessage                 a queue message or row that cannot be read
    │   ├── UnreadableBody            not of the type that its handler takes
    │   └── NoHandler                 no handler takes messages of its type
    ├── TryLater                      raised by a handler: not now, and not a failure
    │   └── ClaimLost                 a handler took too long, and another one took its message over
    ├── HandlerTimeout                a handler took longer than it may
    ├── HandlerNeverEnded             every process that took the message ended before its handler did
    ├── CriticalFailure               a breaker tripped: the process should be restarted
    ├── AzuriteError                  the local storage service can't be installed or started
    └── StorageError                  the storage service said no, or nothing
        ├── StorageUnreachable        no answer from the address
        ├── AccessDenied              wrong key, or a missing role
        ├── ServiceBusy               throttled or timed out on the service's side; try again
        ├── OutcomeUnknown            the call may or may not have been applied
        ├── NotProvisioned            table or container is missing: `postdate setup`
        └── SchedulingInterrupted     many were scheduled, and the service failed before the last

What to catch: `UsageError` to show the caller their mistake, `StorageError` to try again later,
`PostdateError` for all.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import ClassVar

_SHOWN_CHARACTERS = 80


def shown(value: object) -> str:
    """A value as errors quote it: its repr, cut where it is long; nothing of a text that may hold a key.

    Connection strings, signed URLs and keys all have a `=`, and are easily passed in the wrong place.
    """
    if isinstance(value, str) and "=" in value:
        return "…"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


class PostdateError(Exception):
    """Anything that Postdate raises on purpose. The text is one line that names the way out."""

    #: Exit status of the command line: 1 failed, 2 wrong usage, 3 storage unreachable.
    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        # Errors quote what others wrote (a value's repr, a service's answer), and stay one line all the same.
        return " ".join(super().__str__().splitlines())


class UsageError(PostdateError, ValueError):
    """The caller asked for something that can't be; nothing was changed."""

    exit_code = 2


class ConfigurationError(UsageError):
    """A setting is missing or wrong."""


class InvalidDueTime(UsageError):
    """The due time or delay is naive, not a number, or outside the years 1601 to 9998."""


class InvalidDestination(UsageError):
    """The destination is not a valid queue name, or names an unknown account alias."""


class InvalidHeader(UsageError):
    """A header is not text, or the headers together are too long for a row."""


class InvalidBody(UsageError):
    """The body can't be turned into bytes."""


class InvalidHandle(UsageError):
    """The text is not a handle that `schedule` returned."""


class MessageTooLarge(UsageError):
    """The message would not fit its queue when dispatched, and no claim check may help."""


class MessageRefused(UsageError):
    """The service does not take what the message's row holds; no repeat will help."""


class DelayedDeliveryDisabled(PostdateError):
    """Delayed delivery is switched off by `POSTDATE_DISABLE_DELAYED_DELIVERY`."""


class DestinationNotFound(PostdateError):
    """The destination queue does not exist. `near` holds similar names that do."""

    def __init__(self, destination: str, near: Sequence[str] = ()) -> None:
        self.destination = destination
        self.near = tuple(near)
        hint = f" Did you mean {', '.join(repr(n) for n in self.near)}?" if self.near else ""
        super().__init__(
            f"destination queue {destination!r} does not exist.{hint} "
            f"Create it with `postdate setup --queue {destination}`."
        )

    def __reduce__(self) -> tuple[type["DestinationNotFound"], tuple[str, tuple[str, ...]]]:
        return type(self), (self.destination, self.near)


class PoisonMessage(PostdateError):
    """A queue message or a row that can never be read; its text says why."""


class UnreadableBody(PoisonMessage):
    """The body is not of the type that the message's handler takes."""


class NoHandler(PoisonMessage):
    """No handler takes messages of this type."""


class TryLater(PostdateError):
    """Raised in a handler: the message goes back, hidden for `delay`, a second at least; nothing failed."""

    def __init__(self, reason: str, delay: float | timedelta = 1.0) -> None:
        super().__init__(reason)
        self.reason = reason
        #: Seconds; a queue hides for whole ones.
        self.delay: float = delay.total_seconds() if isinstance(delay, timedelta) else delay

    def __reduce__(self) -> tuple[type["TryLater"], tuple[str, float]]:
        return type(self), (self.reason, self.delay)


class ClaimLost(TryLater):
    """The claim on a message ended before its handler did, and another one took it over: nothing was kept."""


class HandlerTimeout(PostdateError):
    """A handler took longer than `POSTDATE_HANDLER_TIMEOUT`; it was cancelled where that is possible."""


class HandlerNeverEnded(PostdateError):
    """The message was taken as often as it may be, and each time the process ended before its handler did."""


class CriticalFailure(PostdateError):
    """A part of the endpoint has failed for so long that only a restart is left; its text says which."""


class AzuriteError(PostdateError):
    """Azurite can't be installed or started; its text ends with what the tools said."""


class StorageError(PostdateError):
    """The storage service refused a call, or did not answer. Nothing accepted earlier is lost."""


class StorageUnreachable(StorageError):
    """No answer from the storage service's address."""

    exit_code = 3


class AccessDenied(StorageError):
    """The key is wrong, or the identity lacks a role."""


class ServiceBusy(StorageError):
    """The service throttled the call or timed out; the same call may succeed later."""


class OutcomeUnknown(StorageError):
    """The connection broke after the request was sent: it may or may not have been applied."""


class NotProvisioned(StorageError):
    """The delays table or its container is missing. `postdate setup` creates both."""


class SchedulingInterrupted(StorageError):
    """The service failed while many messages were scheduled; its error is the cause.

    What has a handle is durable and stays. What failed with a `StorageError`, and what was not tried, has to
    be scheduled again: with the same `message_id` and `at` that is harmless, whatever became of it.
    """

    def __init__(
        self,
        reason: str,
        index: int = 0,
        handles: Sequence[str | None] = (),
        failures: Mapping[int, PostdateError] | None = None,
    ) -> None:
        super().__init__(f"scheduling stopped at message {index}: {reason}")
        self.reason = reason
        #: The first message that may not be durable; all before it are, or were refused.
        self.index = index
        #: From `schedule_many`: a handle for each that is durable, None for others that were read; in order.
        self.handles = list(handles)
        #: From `schedule_many`, by index: why there is no handle.
        self.failures = dict(failures or {})

    def __reduce__(self) -> tuple[type["SchedulingInterrupted"], tuple[object, ...]]:
        return type(self), (self.reason, self.index, self.handles, self.failures)
