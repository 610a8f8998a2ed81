"""Putting one message on its destination: the one place that decides form, hidden time and time to live."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from postdate.clock import Clock
from postdate.core.plan import hidden_seconds, pause_before
from postdate.errors import AccessDenied, NotProvisioned, UsageError
from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage
from postdate.model.envelope import EnvelopeForm, wrap
from postdate.model.limits import MAX_TIME_TO_LIVE
from postdate.model.message import Message
from postdate.model.names import dispatch_address
from postdate.ports import Backend, Guard, QueueSender, Receipt

#: Added to a wait, so that it never ends a clock tick early: the message would be hidden a second too long.
WAKE_SECONDS = 0.0005

EnvelopeFormOf = Callable[[str], EnvelopeForm]


class HandOverTo:
    """Sends delayed messages to their queues, hidden until they are due."""

    def __init__(self, sender: QueueSender, clock: Clock, envelope_form: EnvelopeFormOf) -> None:
        self._sender = sender
        self._clock = clock
        self._envelope_form = envelope_form

    async def send(
        self,
        delayed: DelayedMessage,
        *,
        term: int | None = None,
        guard: Guard | None = None,
        patience: float = 0.0,
    ) -> tuple[Receipt, int]:
        """Send it; the receipt that can withdraw it, and for how many seconds it is hidden.

        The hidden time is counted from now, by the earliest reading of the service's clock, and rounded up:
        never early. `expires_after` counts from the due time.

        Args:
            delayed: the message.
            term: the leader's, that goes into the headers.
            guard: see `QueueSender.send`.
            patience: seconds that it may wait before, where that makes it punctual.

        Raises:
            see `QueueSender.send`.
        """
        text = wrap(_stamped(delayed, term), self._envelope_form(delayed.destination))
        if patience:
            pause = pause_before(delayed.due_at, self._clock.now(), patience)
            if pause:
                await self._clock.pause(pause + WAKE_SECONDS)
        hidden_for = hidden_seconds(delayed.due_at, self._clock.now())
        remaining = time_to_live(delayed)
        receipt = await self._sender.send(
            dispatch_address(delayed.destination),
            text,
            hidden_for=hidden_for,
            time_to_live=None
            if remaining is None
            else hidden_for + max(1, math.ceil(remaining.total_seconds())),
            guard=guard,
        )
        return receipt, hidden_for


async def know_the_time(clock: Clock, backend: Backend) -> None:
    """Ask the service for its time where no answer has told it yet: the machine's clock may be wrong.

    Queues of further accounts tell nothing, and not every call asks our own account first.
    """
    if clock.uncertainty is None:
        with suppress(NotProvisioned):  # that is an answer too
            await backend.store.next_due()
    if clock.uncertainty is None:
        # A store of the user's own knows nothing of our account.
        with suppress(NotProvisioned, AccessDenied):
            await backend.lease.holder()


def time_to_live(delayed: DelayedMessage) -> timedelta | None:
    """How long after its due time the message is worth something; None: for ever.

    Only in rows that we wrote: .NET refuses the combination, so there the header means nothing to us.
    """
    text = delayed.message.headers.get(h.TIME_TO_BE_RECEIVED)
    if text is None or delayed.scheduled_at is None:
        return None
    try:
        span = h.parse_timespan(text)
    except UsageError:
        return None
    # .NET's TimeSpan.MaxValue means never.
    return span if span <= MAX_TIME_TO_LIVE else None


def _stamped(delayed: DelayedMessage, term: int | None) -> Message:
    """With the leader's term as fencing token; a row of a .NET endpoint goes out exactly as it is."""
    if term is None or delayed.scheduled_at is None:
        return delayed.message
    return replace(delayed.message, headers={**delayed.message.headers, h.TERM: str(term)})
