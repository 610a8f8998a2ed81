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
class UnreadableTimeout:
    """A timeout that can't be understood; it stays where it is."""

    id: str
    reason: str
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DueTimeout:
    """What a look finds: an id, and when it is due. The timeout itself may be gone already."""

    id: str
    due_at: datetime
    #: Where the row that told it stands: by its key an older endpoint may mean another time.
    partition: str = ""


@dataclass(frozen=True, slots=True)
class TimeoutPlaces:
    """Where an endpoint's timeouts are kept, and under whose name."""

    #: The endpoint's name, as its older instances have it.
    owner: str
    table: str = "TimeoutDataTableName"
    manager_table: str = "TimeoutManagerDataTable"
    container: str = "timeoutstate"
    #: A date pattern of .NET (`model.date_patterns`).
    partition_scope: str = "yyyyMMddHH"
