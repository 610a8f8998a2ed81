"""Messages of the error queue by their cause."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from postdate.model.causes import Cause
from postdate.model.failed import FailedMessage, FailedState


@dataclass(slots=True)
class Group:
    """All messages of one cause."""

    key: str
    cause: Cause
    state: FailedState
    #: The message id of the first one seen.
    example: str
    first_at: datetime
    last_at: datetime
    count: int = 0

    def add(self, message: FailedMessage) -> None:
        """Count one more."""
        self.count += 1
        self.first_at = min(self.first_at, message.at)
        self.last_at = max(self.last_at, message.at)


def grouped(messages: Iterable[FailedMessage]) -> list[Group]:
    """The largest group first."""
    groups: dict[str, Group] = {}
    for one in messages:
        if one.group not in groups:
            groups[one.group] = Group(one.group, one.cause, one.state, one.message_id, one.at, one.at)
        groups[one.group].add(one)
    return sorted(groups.values(), key=lambda group: (-group.count, group.key))
