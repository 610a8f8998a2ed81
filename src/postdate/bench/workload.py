"""The messages of the workloads: the same bodies and headers for every contender."""

import random
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from postdate.clock import EPOCH, Clock
from postdate.engine.acceptance import Acceptance, AcceptanceSettings, Outgoing
from postdate.model.delayed import DelayedMessage
from postdate.model.keys import RowKey
from postdate.model.rowcodec import encode_row
from postdate.settings import Settings

#: How far back the due times of overdue messages reach, so that they lie in as many partitions as in a
#: real outage of some minutes: one or two.
_OVERDUE_SECONDS = 600.0


def body_of(number: int) -> dict[str, Any]:
    """About 250 bytes of JSON, as orders have them."""
    order = uuid.uuid5(uuid.NAMESPACE_OID, str(number))
    return {
        "number": number,
        "order": str(order),
        "customer": "Contoso Ltd.",
        "lines": [{"article": f"A-{line}", "count": line, "price": 12.5 * line} for line in (1, 2, 3)],
        "total": 175.0,
    }


class Messages:
    """Makes delayed messages as the endpoint's intake would, also with due times that are past."""

    def __init__(self, settings: Settings, clock: Clock, queue: str) -> None:
        self._clock = clock
        self._queue = queue
        self._acceptance = Acceptance(
            AcceptanceSettings(
                endpoint=settings.endpoint,
                reply_to=settings.queue,
                claim_check=False,
                envelope_form=settings.envelope_form,
            )
        )

    def delayed(self, number: int, due_at: datetime) -> DelayedMessage:
        """One message."""
        outgoing = Outgoing(self._queue, body_of(number), at=due_at)
        parsed = self._acceptance.check(outgoing, self._clock, delayed=True)
        return self._acceptance.accept(parsed, self._clock, delayed=True).delayed

    def overdue(self, count: int) -> list[DelayedMessage]:
        """So many messages that were due within the last ten minutes, in due order."""
        now = self._clock.now() - timedelta(seconds=2)
        step = _OVERDUE_SECONDS / count
        return [self.delayed(n, now - timedelta(seconds=_OVERDUE_SECONDS - n * step)) for n in range(count)]

    def at(self, instants: Iterable[float]) -> list[DelayedMessage]:
        """A message for each due time, given in seconds since the epoch; numbers count from 0."""
        return [self.delayed(number, instant_of(due)) for number, due in enumerate(instants)]


def instant_of(seconds: float) -> datetime:
    """An instant as the engine has it, to the microsecond."""
    return EPOCH + timedelta(microseconds=round(seconds * 1e6))


def seconds_of(instant: datetime) -> float:
    """Seconds since the epoch."""
    return (instant - EPOCH).total_seconds()


def one_by_one(first: float, rate: float, count: int, chance: random.Random) -> list[float]:
    """Due times at a rate, each anywhere in its own slot, so that every part of a second is hit."""
    return [round(first + (number + chance.random()) / rate, 6) for number in range(count)]


def classic_entity(delayed: DelayedMessage) -> dict[str, Any]:
    """The row that a .NET endpoint writes (nservicebus-azure, 1.2): whole seconds, a random suffix."""
    key = classic_key(delayed.due_at)
    row = encode_row(delayed)
    kept = {name: row[name] for name in ("Destination", "Body", "MessageId", "Headers")}
    return {"PartitionKey": key.partition, "RowKey": key.row, **kept}


def classic_key(due_at: datetime) -> RowKey:
    """`yyyyMMddHHmmss_<32 hex>` in partition `yyyyMMddHH`."""
    second = classic_second(due_at)
    return RowKey(second[:10], f"{second}_{uuid.uuid4().hex}")


def classic_second(instant: datetime) -> str:
    """`yyyyMMddHHmmss` in UTC."""
    return f"{instant.astimezone(UTC):%Y%m%d%H%M%S}"


def burst(due: float, count: int) -> Sequence[float]:
    """Due times that are all the same."""
    return [round(due, 6)] * count
