"""Which legacy timeouts can be rows of ours, and why the others can't."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from postdate.engine.acceptance import Acceptance
from postdate.engine.destinations import Destinations
from postdate.errors import PoisonMessage, PostdateError, StorageError, UsageError
from postdate.model.delayed import DelayedMessage
from postdate.model.legacy_move import delayed_of, message_of, payload_name, shown_address
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.model.message import check_headers_size
from postdate.model.names import dispatch_address


@dataclass(frozen=True, slots=True)
class Movable:
    """A timeout, and the delayed message that takes its place."""

    timeout: LegacyTimeout
    delayed: DelayedMessage
    #: The body, where it goes to a blob.
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A timeout that stays where it is."""

    id: str
    #: Without the connection string that may stand in it.
    destination: str
    #: None where that can't be read either.
    due_at: datetime | None
    reason: str


def refused(timeout: LegacyTimeout, error: PostdateError) -> Refused:
    """A timeout that stays because of this."""
    return Refused(timeout.id, shown_address(timeout.destination), timeout.due_at, str(error))


class Judge:
    """Asks of each timeout what intake asks of a new message: could it be delivered later?"""

    def __init__(self, acceptance: Acceptance, destinations: Destinations | None) -> None:
        """Without `destinations` nobody asks whether queues are there."""
        self._acceptance = acceptance
        self._destinations = destinations

    async def judge(self, timeouts: Sequence[LegacyTimeout]) -> list[Movable | Refused]:
        """A verdict for each, in the order given.

        Raises:
            StorageError: the service did not tell which queues are there.
        """
        verdicts = [self.weigh(timeout) for timeout in timeouts]
        if self._destinations is None:
            return verdicts
        addresses = {
            verdict.timeout.destination: dispatch_address(verdict.timeout.destination)
            for verdict in verdicts
            if isinstance(verdict, Movable)
        }
        missing = await self._destinations.refused(set(addresses.values()))
        for failure in missing.values():
            if isinstance(failure, StorageError):
                raise failure
        return [
            refused(verdict.timeout, error)
            if isinstance(verdict, Movable)
            and (error := missing.get(addresses[verdict.timeout.destination])) is not None
            else verdict
            for verdict in verdicts
        ]

    def weigh(self, timeout: LegacyTimeout) -> Movable | Refused:
        """The verdict by what needs no storage."""
        try:
            dispatch_address(timeout.destination)
            message = message_of(timeout)
            name = payload_name(timeout, message)
            message, payload = self._acceptance.sized(message, timeout.destination, payload_name=name)
            check_headers_size(message.headers)
            delayed = delayed_of(timeout, message, payload_ref=None if payload is None else name)
        except (UsageError, PoisonMessage) as error:
            return refused(timeout, error)
        return Movable(timeout, delayed, payload)
