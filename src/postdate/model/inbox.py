"""What an inbox remembers: under which key, and in which form the messages of a handler are kept.

A row is found by consumer, message id and *first instant*. The row's partition is the day of that instant,
so that what is old is deleted partition by partition; hence the instant must be the same for every delivery
of a message. docs/explain/inbox.md has the argument for the order in which `first_instant` looks.

    PartitionKey   <consumer>_<yyyy-MM-dd>_<one hex digit of chance>
    RowKey         <32 hex digits of the message id>                the message
                   <32 hex digits>_p<number>                        a further piece of a large outcome
                   <32 hex digits>_r_<name>                         a record
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from postdate.errors import ConfigurationError, InvalidBody, PoisonMessage, UsageError, shown
from postdate.model import headers as h
from postdate.model.durations import check_due_time, parse_duration
from postdate.model.headers import Headers
from postdate.model.keys import RowKey, identity
from postdate.model.message import check_headers, encode_body

#: Bytes of an outcome that are kept in the table; a larger one goes to a blob. With the records it stays
#: within one transaction of 1 MB, in base64.
OUTCOME_BYTES = 262_144
#: Bytes of all records of one message together.
RECORDS_BYTES = 262_144
#: Bytes of one record, and of one piece of an outcome: below those of a binary property.
PIECE_BYTES = 60_000
#: Records of one message. With the pieces they stay below the 100 operations of a transaction.
RECORDS = 50

#: Characters of a message id that are written beside its digits, for people.
_SHOWN_ID = 1_024
# No underscore: it ends the name in a partition key, so no name is the beginning of another one's range.
_CONSUMER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
_RECORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
#: Sorts right behind the underscore.
_BEHIND = chr(ord("_") + 1)


@dataclass(frozen=True, slots=True)
class InboxKey:
    """One message for one consumer."""

    consumer: str
    message_id: str
    #: Aware; the same for every delivery of the message.
    at: datetime

    @property
    def place(self) -> RowKey:
        """Where its row stands."""
        digits = identity(self.message_id, "")
        return RowKey(f"{self.consumer}_{_day(self.at)}_{digits[0]}", digits)


def shown_id(message_id: str) -> str:
    """A message id for people who look at the table: the begin of a long one, without control characters."""
    return "".join(one if one.isprintable() else "?" for one in message_id[:_SHOWN_ID])


def check_consumer(name: object) -> str:
    """A consumer's name.

    Raises:
        ConfigurationError: it would not fit a partition key.
    """
    if not isinstance(name, str) or not _CONSUMER.fullmatch(name):
        raise ConfigurationError(
            f"consumer {shown(name)} is not a name; use 1 to 63 letters, digits, dashes and dots"
        )
    return str.__str__(name)


def check_record_name(name: object) -> str:
    """A record's name.

    Raises:
        UsageError: it would not fit a row key.
    """
    if not isinstance(name, str) or not _RECORD.fullmatch(name):
        raise UsageError(
            f"record {shown(name)} is not a name; use 1 to 63 letters, digits, dashes, dots and underscores"
        )
    return str.__str__(name)


def old_partitions(consumer: str, before: datetime) -> tuple[str, str]:
    """The range of a consumer's partitions of days before an instant: from here, and up to but not there."""
    return f"{consumer}_", f"{consumer}_{_day(before)}"


def consumer_of(partition: str) -> str:
    """The consumer whose partition it is."""
    return partition.rsplit("_", 2)[0]


def behind(consumer: str) -> str:
    """The first partition key that can be another consumer's, behind all of this one's."""
    return consumer + _BEHIND


def _day(instant: datetime) -> str:
    return instant.astimezone(UTC).date().isoformat()


# --- the instant ----------------------------------------------------------------------------------


def first_instant(headers: Mapping[str, str | None], inserted_at: datetime) -> datetime:
    """The instant that every delivery of a message has in common.

    In this order: the one that a retry of ours kept, the due time, the time when it was sent, the time
    when it came into its queue. A due time is passed over where somebody else's delayed retry has put
    another one in its place.
    """
    for name in (h.FIRST_INSTANT, h.DELIVER_AT, h.TIME_SENT):
        if name == h.DELIVER_AT and headers.get(h.RETRIES) is not None:
            continue
        text = headers.get(name)
        if text is not None:
            try:
                return h.parse_instant(text)
            except UsageError:
                continue
    return inserted_at


def with_first_instant(headers: Mapping[str, str | None], inserted_at: datetime) -> Headers:
    """Headers of a copy that is inserted anew: its first instant is still that of the original."""
    return {**headers, h.FIRST_INSTANT: h.format_instant(first_instant(headers, inserted_at))}


def turn_of(message_id: str, headers: Mapping[str, str | None]) -> str:
    """What a consumer is done with once: the message, or its next turn after a handler has put it off."""
    turn = headers.get(h.TURN)
    return message_id if turn is None else f"{message_id}#{turn}"


def next_turn(headers: Mapping[str, str | None]) -> str:
    """The turn behind that of a message with these headers."""
    turn = headers.get(h.TURN)
    return str(int(turn) + 1) if turn is not None and turn.isdecimal() else "1"


# --- what is kept ---------------------------------------------------------------------------------


class KeptMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that a handler sent, as it is dispatched each time: the same id, headers and instant."""

    destination: str
    message_id: str
    body: bytes
    headers: dict[str, str | None]
    #: When it is due; None: at once.
    at: datetime | None = None
    #: Seconds.
    expires_after: float | None = None


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The messages of a handler, or the name of the payload that holds them."""

    messages: tuple[KeptMessage, ...] = ()
    payload: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A message as a handler asks for it."""

    destination: str
    body: Any
    at: datetime | None = None
    headers: Mapping[str, str | None] | None = None
    expires_after: object = None


def keep_message(asked: Asked, message_id: str, defaults: Headers, now: datetime) -> KeptMessage:
    """The form in which a message is kept. Whatever a dispatch would make anew is decided here, once.

    Args:
        asked: what the handler asked for.
        message_id: the same in every dispatch.
        defaults: headers that the handler's win over.
        now: when it is sent.

    Raises:
        UsageError: body, headers, due time or expiry are wrong.
    """
    body = encode_body(asked.body)
    headers: Headers = {h.CONTENT_TYPE: body.content_type, h.TIME_SENT: h.format_instant(now), **defaults}
    if body.type_name is not None:
        headers[h.ENCLOSED_TYPES] = body.type_name
    at = None if asked.at is None else check_due_time(asked.at)
    if at is not None and at > now:
        # Kept: a dispatch that comes late would leave it out, and with it the message's first instant.
        headers[h.DELIVER_AT] = h.format_instant(at)
    headers |= check_headers(asked.headers)
    expires = None if asked.expires_after is None else parse_duration(asked.expires_after).total_seconds()
    return KeptMessage(asked.destination, message_id, body.content, headers, at, expires)


def expiry_of(kept: KeptMessage) -> timedelta | None:
    """How long after its due time a message is worth something; None: for ever."""
    return None if kept.expires_after is None else timedelta(seconds=kept.expires_after)


def encode_outcome(outcome: Outcome) -> bytes:
    """As JSON; nothing at all for an outcome without messages."""
    return msgspec.json.encode(outcome) if outcome != Outcome() else b""


def decode_outcome(content: bytes) -> Outcome:
    """Read `encode_outcome`'s form.

    Raises:
        PoisonMessage: it is not of that form.
    """
    if not content:
        return Outcome()
    try:
        return msgspec.json.decode(content, type=Outcome)
    except msgspec.MsgspecError as error:
        raise PoisonMessage(f"what an inbox kept of a message can't be read: {error}") from None


def encode_record(name: str, value: object) -> bytes:
    """A record as JSON.

    Raises:
        InvalidBody: it is not JSON-able, or too large.
    """
    try:
        content = msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidBody(f"record {name!r} can't be encoded ({error}); pass a JSON-able value") from None
    if len(content) > PIECE_BYTES:
        raise InvalidBody(f"record {name!r} has {len(content):,} bytes as JSON; it takes {PIECE_BYTES:,}")
    return content


def check_records(records: Mapping[str, bytes]) -> None:
    """Refuse what would not fit one transaction.

    Raises:
        UsageError: they are too many, or too large together.
    """
    if len(records) > RECORDS:
        raise UsageError(f"{len(records)} records for one message; it takes {RECORDS}")
    total = sum(map(len, records.values()))
    if total > RECORDS_BYTES:
        raise UsageError(f"the records of one message have {total:,} bytes as JSON; {RECORDS_BYTES:,} fit")


def pieces(outcome: bytes) -> list[bytes]:
    """An outcome in pieces that each fit one property; at least one, which may be empty."""
    return [outcome[start : start + PIECE_BYTES] for start in range(0, len(outcome), PIECE_BYTES)] or [b""]
