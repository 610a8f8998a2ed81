"""Of inboxes: messages that came again, claims that were lost, and what was forgotten."""

import logging
from dataclasses import dataclass

from postdate.events.base import Event


@dataclass(frozen=True, slots=True)
class InboxRepeat(Event):
    """A message came that its consumer is done with. `dispatched`: of its messages, those sent once more."""

    name = "inbox_repeat"
    level = logging.INFO
    consumer: str
    message_id: str
    dispatched: int


@dataclass(frozen=True, slots=True)
class InboxClaimLost(Event):
    """A handler took longer than its claim lasted, and another one took the message over."""

    name = "inbox_claim_lost"
    level = logging.WARNING
    consumer: str
    message_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class InboxCallFailed(Event):
    """A call that an inbox can do without failed: prolonging, giving back, settling, forgetting."""

    name = "inbox_call_failed"
    level = logging.WARNING
    consumer: str
    doing: str
    reason: str


@dataclass(frozen=True, slots=True)
class InboxForgot(Event):
    """Messages past the retention were dropped."""

    name = "inbox_forgot"
    level = logging.INFO
    consumer: str
    messages: int


EVENTS: tuple[type[Event], ...] = (InboxRepeat, InboxClaimLost, InboxCallFailed, InboxForgot)
