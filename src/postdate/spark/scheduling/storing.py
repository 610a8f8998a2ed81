"""What a task does: messages of a frame are accepted as `endpoint.schedule` would, and become rows.

Always rows, also for what is due soon: a row has one key however often a task runs, a message that is put
into a queue twice is there twice. What is due within the leader's rest may so be late by its idle interval.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from postdate.endpoint import Endpoint
from postdate.engine.acceptance import Accepted, Outgoing
from postdate.engine.intake import place_of
from postdate.errors import InvalidBody, InvalidDueTime, PostdateError, StorageError
from postdate.model import headers as h
from postdate.model.durations import parse_instant_text
from postdate.model.keys import EPOCH
from postdate.model.message import JSON_TYPE
from postdate.spark.scheduling.messages import BYTES, JSON, TEXT

#: Messages accepted and stored together: 20 full transactions.
CHUNK = 2_000
#: Refused rows whose id and reason are kept; all are counted.
EXAMPLES = 5
#: Messages accepted before answers of the service get a turn.
_TURN = 50
_INSTANTS = pa.timestamp("us", tz="UTC")
_MODULUS = 1 << 128

Fields = dict[str, Any]


@dataclass(slots=True)
class Stored:
    """What became of the rows of a bucket, or of all. A sum of two depends on no order."""

    #: Messages that have a row now.
    stored: int = 0
    #: Of those, how many had it before: scheduled earlier, or by a task that ran twice.
    already_there: int = 0
    refused: int = 0
    #: The same message (id, destination, due time) again.
    repeated: int = 0
    #: Of the row keys; see `key_sum`.
    checksum: str = "0" * 32
    #: Refused rows by reason, as far as `EXAMPLES` go: message id and reason.
    examples: list[tuple[str, str]] = field(default_factory=list)

    def __add__(self, other: "Stored") -> "Stored":
        return Stored(
            self.stored + other.stored,
            self.already_there + other.already_there,
            self.refused + other.refused,
            self.repeated + other.repeated,
            f"{(int(self.checksum, 16) + int(other.checksum, 16)) % _MODULUS:032x}",
            (self.examples + other.examples)[:EXAMPLES],
        )

    def json(self) -> bytes:
        """As it travels from task to driver, and into a document."""
        return msgspec.json.encode(asdict(self))

    @classmethod
    def read(cls, text: bytes) -> "Stored":
        """Back from `json`."""
        return msgspec.json.decode(text, type=cls)


def key_sum(keys: Iterable[str]) -> str:
    """The sum of the hashes of row keys, which depends on no order: modulo 2**128, as 32 hex digits."""
    total = sum(int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest()) for key in keys)
    return f"{total % _MODULUS:032x}"


def rows_of(batch: pa.RecordBatch) -> Iterator[Fields]:
    """The rows of a batch as Python has them."""
    columns = [_values(column) for column in batch.columns]
    names = batch.schema.names
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _values(column: pa.Array) -> Sequence[Any]:
    if column.null_count == len(column):
        return [None] * len(column)
    if column.type == _INSTANTS:
        # Arrow's own way goes through the names of time zones, row by row.
        micros = column.cast(pa.int64()).to_pylist()
        return [None if value is None else EPOCH + timedelta(microseconds=value) for value in micros]
    values: Sequence[Any] = column.to_pylist(maps_as_pydicts="strict")
    return values


def outgoing_of(row: Fields) -> Outgoing:
    """The message of a row of `message_column`, or of a frame that was written as it is.

    Raises:
        PostdateError: its due time can't be read, or it has no body.
    """
    due_text = row.get("due_text")
    at = row.get("due_time") if due_text is None else parse_instant_text(due_text)
    body, kind = row["body"], row.get("body_kind", BYTES)
    if body is None:
        raise InvalidBody("column body is null; write an empty text where nothing is to be said")
    if at is None:
        raise InvalidDueTime("column due_time or delay is null; write an instant, or seconds")
    headers = dict(row.get("headers") or {})
    if kind == TEXT:
        body = body.decode()
    elif kind == JSON:
        headers = {h.CONTENT_TYPE: JSON_TYPE, **headers}
    return Outgoing(
        row["destination"],
        body,
        None,
        at,
        headers,
        row["message_id"],
        row.get("expires_after"),
    )


async def judged(endpoint: Endpoint, rows: Sequence[Fields]) -> list[Accepted | PostdateError]:
    """For each row the message as it will be stored, or why it can't be.

    Raises:
        StorageError: the service could not be asked.
    """
    intake = endpoint.parts.intake
    verdicts: list[Accepted | PostdateError] = []
    for number, row in enumerate(rows):
        if number % _TURN == 0:
            await asyncio.sleep(0)
        try:
            verdicts.append(await intake.accept_unasked(outgoing_of(row)))
        except StorageError:
            raise
        except PostdateError as error:
            verdicts.append(error)
    missing = await intake.missing([one for one in verdicts if isinstance(one, Accepted)])
    return [
        missing.get(one.delayed.destination, one) if isinstance(one, Accepted) else one for one in verdicts
    ]


async def store(endpoint: Endpoint, batches: Iterator[pa.RecordBatch]) -> Stored:
    """Make rows of all messages; what became of them.

    Raises:
        StorageError: the service failed; what was stored stays, and the same again is harmless.
    """
    total = Stored()
    last: object = None
    before: asyncio.Task[Stored] | None = None
    try:
        for chunk in _chunks(batches):
            # While the chunk before is stored.
            verdicts = await judged(endpoint, chunk)
            accepted: list[Accepted] = []
            for row, verdict in zip(chunk, verdicts, strict=True):
                if isinstance(verdict, PostdateError):
                    total += _refused(row, verdict)
                    continue
                place = place_of(verdict.delayed)
                # Rows come in order of these, so that the same again follows at once.
                if place == last:
                    total.repeated += 1
                else:
                    accepted.append(verdict)
                last = place
            if before is not None:
                total += await before
            before = asyncio.create_task(_stored(endpoint, accepted))
        return total if before is None else total + await before
    finally:
        if before is not None:
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)


async def _stored(endpoint: Endpoint, accepted: Sequence[Accepted]) -> Stored:
    total, keys = Stored(), list[str]()
    for message, outcome in zip(accepted, await endpoint.parts.intake.store_rows(accepted), strict=True):
        if isinstance(outcome, StorageError):
            raise outcome
        if isinstance(outcome, PostdateError):
            total += _refused({"message_id": message.delayed.message.message_id}, outcome)
            continue
        total.stored += 1
        total.already_there += not outcome.created
        keys.append(outcome.key.row)
    total.checksum = key_sum(keys)
    return total


def _refused(row: Fields, error: PostdateError) -> Stored:
    return Stored(refused=1, examples=[(str(row["message_id"]), str(error))])


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[list[Fields]]:
    rows = (row for batch in batches for row in rows_of(batch))
    while chunk := list(islice(rows, CHUNK)):
        yield chunk
