"""Handling one message once: claim, effects, commit, dispatch.

    claim      the message is this consumer's for a while, or somebody else's, or done with
    effects    messages and records, kept in memory
    commit     done mark, messages and records in one write, conditional on the claim
    dispatch   the messages, under the ids and with the headers that were committed
    settle     they need not be dispatched again

Whatever dies before the commit has had no effect, and the next claim begins anew. Whatever dies after it
leaves a row that is done with, and whoever claims the message next dispatches what the row holds. So the
messages leave at least once, each time as the same message, and a consumer with an inbox takes them once.
"""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from postdate.clock import Clock
from postdate.concurrency import for_each
from postdate.engine.acceptance import Delay, Outgoing, due_time
from postdate.engine.claims import HeldClaim
from postdate.engine.handover import know_the_time
from postdate.engine.intake import Intake
from postdate.errors import NotProvisioned, PostdateError, TryLater, UsageError
from postdate.events import Events, InboxCallFailed, InboxRepeat
from postdate.model import headers as h
from postdate.model.headers import Headers
from postdate.model.inbox import (
    OUTCOME_BYTES,
    Asked,
    InboxKey,
    KeptMessage,
    Outcome,
    check_record_name,
    check_records,
    decode_outcome,
    encode_outcome,
    encode_record,
    expiry_of,
    keep_message,
)
from postdate.model.jsontext import read
from postdate.model.keys import identity
from postdate.ports import Backend, Busy, Done, InboxAnswer

#: Messages of one handler that are dispatched at once.
_DISPATCHED_AT_ONCE = 8
#: A large outcome in a blob is kept so much longer than its row, which goes by whole days.
_MARGIN = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class OnceSettings:
    """What handling once needs of the endpoint and of its inbox."""

    backend: Backend
    intake: Intake
    clock: Clock
    events: Events
    claim_for: timedelta
    retention: timedelta
    #: Raises where the endpoint has no delayed delivery.
    need_delays: Callable[[], None]


class Once:
    """One message for one consumer. Use it as an async context manager; `Inbox.once` makes it.

    The end of the block commits. Where the block raises, nothing of it is kept, and the claim is given back.
    """

    def __init__(self, settings: OnceSettings, key: InboxKey, message_id: str) -> None:
        self._settings = settings
        self._key = key
        self._message_id = message_id
        self._store = settings.backend.inbox
        self._entered = False
        self._attempt = 0
        #: Inside the block, if there is work.
        self._held: HeldClaim | None = None
        self._messages: list[KeptMessage] = []
        self._records: dict[str, bytes] = {}
        # Of all messages of this handling, which have it in common.
        self._conversation = str(uuid.uuid4())

    @property
    def fresh(self) -> bool:
        """Whether the effects are still to be had. False: they were, and what they sent is dispatched."""
        return self._attempt > 0

    @property
    def attempt(self) -> int:
        """The how-many-th claim of the message this is: a fencing number that only grows; 0 if not fresh."""
        return self._attempt

    @property
    def lost(self) -> bool:
        """Inside the block: it is known that another one has taken the message over; nothing will be kept."""
        return self._held is not None and self._held.lost

    # --- effects ----------------------------------------------------------------------------------

    def send(
        self,
        destination: str,
        body: Any,
        *,
        headers: Mapping[str, str | None] | None = None,
        message_id: str | None = None,
        expires_after: Delay | None = None,
    ) -> str:
        """Put a message on its destination once the block has ended; its message id.

        Raises:
            UsageError: the message is wrong, or its turn is over (`fresh` is false).
        """
        outgoing = Outgoing(destination, body, None, None, headers, message_id, expires_after)
        return self.take(outgoing)

    def schedule(
        self,
        destination: str,
        body: Any,
        *,
        delay: Delay | None = None,
        at: datetime | None = None,
        headers: Mapping[str, str | None] | None = None,
        message_id: str | None = None,
        expires_after: Delay | None = None,
    ) -> str:
        """Deliver a message when it is due, once the block has ended; its message id.

        A delay counts from now. Arguments as those of `Endpoint.schedule`.

        Raises:
            UsageError: as `send`.
            DelayedDeliveryDisabled: the toggle is off.
        """
        at = due_time(self._settings.clock, at=at, delay=delay)
        return self.take(Outgoing(destination, body, None, at, headers, message_id, expires_after))

    def take(self, outgoing: Outgoing) -> str:
        """Take a message over, to be dispatched once the block has ended; its message id.

        Raises:
            UsageError, DelayedDeliveryDisabled: as `schedule`.
        """
        self._need_block("send")
        clock = self._settings.clock
        at = outgoing.at if outgoing.delay is None else due_time(clock, at=outgoing.at, delay=outgoing.delay)
        if at is not None:
            self._settings.need_delays()
        message_id = outgoing.message_id or (outgoing.headers or {}).get(h.MESSAGE_ID) or self._next_id()
        defaults: Headers = {h.CONVERSATION_ID: self._conversation, h.RELATED_TO: self._message_id}
        asked = Asked(outgoing.destination, outgoing.body, at, outgoing.headers, outgoing.expires_after)
        self._messages.append(keep_message(asked, message_id, defaults, clock.now()))
        return message_id

    def upsert(self, name: str, value: Any) -> None:
        """Keep a record with the message: any JSON-able value, under a name; the last one of a name stays.

        Raises:
            UsageError: name or value are wrong, or the message's turn is over (`fresh` is false).
        """
        self._need_block("keep a record")
        self._records[check_record_name(name)] = encode_record(name, value)

    async def get(self, name: str) -> Any:
        """A record of this message: as it was just written, or as it was kept; None: there is none."""
        if self._held is None and not self._records:
            self._records = await self._store.records(self._key)
        content = self._records.get(check_record_name(name))
        return None if content is None else read(content)

    def _need_block(self, what: str) -> None:
        if self._held is None:
            raise UsageError(
                f"message {self._message_id!r}: {what} inside the block, and only if `fresh` is true"
            )

    def _next_id(self) -> str:
        digits = identity(self._key.message_id, f"{self._key.consumer}/{len(self._messages)}")
        return str(uuid.UUID(hex=digits))

    # --- claim, commit, dispatch ------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError(
                f"message {self._message_id!r}: enter the block once; ask the inbox for another one"
            )
        self._entered = True
        settings = self._settings
        answer = await self._claim()
        if isinstance(answer, Busy):
            left = (answer.until - settings.clock.now()).total_seconds()
            raise TryLater(
                f"consumer {self._key.consumer!r} is working on message {self._key.message_id!r} elsewhere",
                float(max(1, math.ceil(left))),
            )
        if isinstance(answer, Done):
            messages = await self._unsettled(answer.outcome)
            settings.events.emit(InboxRepeat(self._key.consumer, self._key.message_id, len(messages)))
        else:
            self._attempt = answer.claim.attempt
            self._held = HeldClaim(
                self._store, answer.claim, settings.clock, settings.events, settings.claim_for
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        if error is not None:
            await held.release()
            return
        try:
            payload = await self._commit(held)
        except BaseException:
            await held.release()
            raise
        if self._messages:
            await self._dispatch(self._messages, payload)

    async def _claim(self) -> InboxAnswer:
        await know_the_time(self._settings.clock, self._settings.backend)
        token = uuid.uuid4().hex
        try:
            return await self._store.claim(self._key, token, self._until())
        except NotProvisioned:
            await self._store.create()
            return await self._store.claim(self._key, token, self._until())

    def _until(self) -> datetime:
        return self._settings.clock.now() + self._settings.claim_for

    async def _commit(self, held: HeldClaim) -> str | None:
        """Write it all; the name of the payload that holds the messages, if they are too large for a row."""
        await self._check(self._messages)
        check_records(self._records)
        outcome, payload = encode_outcome(Outcome(tuple(self._messages))), None
        if len(outcome) > OUTCOME_BYTES:
            payload = f"inbox-{self._key.place.row}-{uuid.uuid4().hex}"
            keep_until = self._settings.clock.now() + self._settings.retention + _MARGIN
            await self._settings.backend.payloads.put(payload, outcome, keep_until=keep_until)
            outcome = encode_outcome(Outcome(payload=payload))
        await held.complete(outcome, self._records)
        return payload

    async def _check(self, messages: Sequence[KeptMessage]) -> None:
        """Refuse now what could not be dispatched later."""
        intake, now = self._settings.intake, self._settings.clock.now()
        accepted = [await intake.accept_unasked(_outgoing(kept, kept.at or now)) for kept in messages]
        for error in (await intake.missing(accepted)).values():
            raise error

    async def _unsettled(self, content: bytes) -> Sequence[KeptMessage]:
        """Dispatch what another one committed and may not have dispatched; the messages."""
        outcome = decode_outcome(content)
        if outcome.payload is not None:
            stored = await self._settings.backend.payloads.get(outcome.payload)
            # Gone: it was settled between our look at the row and this one.
            messages = () if stored is None else decode_outcome(stored).messages
        else:
            messages = outcome.messages
        if messages:
            await self._dispatch(messages, outcome.payload)
        return messages

    async def _dispatch(self, messages: Sequence[KeptMessage], payload: str | None) -> None:
        intake = self._settings.intake

        async def one(kept: KeptMessage) -> None:
            if kept.at is None:
                await intake.send_now(_outgoing(kept, None))
            else:
                await intake.schedule(_outgoing(kept, kept.at))

        await for_each(messages, _DISPATCHED_AT_ONCE, one)
        try:
            await self._store.settle(self._key)
            if payload is not None:
                await self._settings.backend.payloads.delete(payload)
        except PostdateError as error:
            # They are dispatched once more if the message comes again: the same ones.
            self._settings.events.emit(InboxCallFailed(self._key.consumer, "settling a message", str(error)))


def _outgoing(kept: KeptMessage, at: datetime | None) -> Outgoing:
    return Outgoing(
        kept.destination,
        kept.body,
        at=at,
        headers=kept.headers,
        message_id=kept.message_id,
        expires_after=expiry_of(kept),
    )
