"""A timeout of the legacy timeout manager: what it keeps until a message is due."""

from dataclasses import dataclass
from datetime import datetime

from postdate.model.headers import Headers


@dataclass(frozen=True, slots=True)
class LegacyTimeout:
    """One timeout (nservicebus-azure, 5.1)."""

    #: Lower-case dashed GUID in stores that .NET wrote; any text without `/ \\ # ?` is kept as it is.
    id: str
    destination: str
    due_at: datetime
    #: As they came to the timeouts queue, `NServiceBus.Timeout.*` included.
    headers: Headers
    body: bytes
    #: The endpoint that owns it.
    owner: str
    #: Lower-case dashed GUID; None where no saga asked.
    saga_id: str | None = None


@dataclass(frozen=True, slots=True)
class DueTimeout:
    """What a poll finds: an id, and when it is due. The timeout itself may be gone already."""

    id: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class DueTimeouts:
    """One poll of a timeout store."""

    due: tuple[DueTimeout, ...]
    #: When to ask next, at the latest; None: the store knows of nothing more.
    next_at: datetime | None
