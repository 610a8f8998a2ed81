"""Which messages of the error queue are meant."""

from dataclasses import dataclass
from datetime import datetime

from postdate.errors import PoisonMessage
from postdate.model.envelope import unwrap
from postdate.model.failed import FailedMessage


@dataclass(frozen=True, slots=True)
class Selection:
    """What is given must fit; nothing given: all."""

    #: Message ids and native ids.
    ids: frozenset[str] = frozenset()
    #: An exception's type, whole or its last names: `TimeoutError`, `asyncio.TimeoutError`.
    exception_type: str | None = None
    failed_queue: str | None = None
    #: A group's key, or its beginning.
    group: str | None = None
    #: `since <= failed < until`; where no time of failure is told, it counts when the message came.
    since: datetime | None = None
    until: datetime | None = None
    #: Anywhere in headers and body, in any case; bodies that lie in a blob are not searched.
    text: str | None = None

    def takes(self, message: FailedMessage, text: str) -> bool:
        """Whether it is meant.

        Args:
            message: as it is seen.
            text: of the queue message.
        """
        return (
            (not self.ids or message.message_id in self.ids or message.native_id in self.ids)
            and (self.exception_type is None or _ends_with(message.cause.exception_type, self.exception_type))
            and (self.failed_queue is None or _same(message.failed_queue or "", self.failed_queue))
            and (self.group is None or message.group.startswith(self.group.lower()))
            and (self.since is None or message.at >= self.since)
            and (self.until is None or message.at < self.until)
            and (self.text is None or _holds(text, message.native_id, self.text))
        )


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _ends_with(name: str, end: str) -> bool:
    return _same(name, end) or name.lower().endswith(f".{end.lower()}")


def _holds(text: str, native_id: str, wanted: str) -> bool:
    wanted = wanted.lower()
    try:
        message = unwrap(text, native_id).message
    except PoisonMessage:
        return wanted in text.lower()
    if wanted in message.message_id.lower():
        return True
    if any(
        wanted in name.lower() or wanted in (value or "").lower() for name, value in message.headers.items()
    ):
        return True
    return wanted in message.body.decode("utf-8", "replace").lower()
