"""Timeouts as the rows that older endpoints keep in a table, and back (nservicebus-azure, 5.1).

A timeout has three rows that hold the same columns, and a blob with its body:

    time row   PartitionKey = due time in the partition scope   RowKey = id
    saga row   PartitionKey = saga id; only where a saga asked  RowKey = id
    main row   PartitionKey = id                                RowKey = empty

    Destination           String
    SagaId                Guid      zeros where no saga asked
    StateAddress          String    name of the blob, the same as the id
    Time                  DateTime  when it is due, exact
    OwningTimeoutManager  String    the endpoint's name
    Headers               String    JSON as Newtonsoft writes it, compact

The main row is the timeout: it is written last, and whoever removes it has removed the timeout.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from postdate.errors import PoisonMessage, shown
from postdate.model.date_patterns import PartitionScope
from postdate.model.delayed import RowValue
from postdate.model.jsontext import write_newtonsoft_map
from postdate.model.keys import RowKey
from postdate.model.legacy_timeout import DueTimeout, LegacyTimeout, UnreadableTimeout
from postdate.model.limits import KEY_UNITS
from postdate.model.rowcodec import headers_in, instant_of, optional_text_in, text_in

DESTINATION = "Destination"
SAGA_ID = "SagaId"
STATE_ADDRESS = "StateAddress"
TIME = "Time"
OWNER = "OwningTimeoutManager"
HEADERS = "Headers"

#: Begins the owner of a timeout that a migration tool has hidden; then come chance, `__`, and the owner.
HIDDEN = "__hidden__"

#: No timeout is older: due times are looked for from here on, so that ids, which begin with any digit, are
#: not read along.
FIRST_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_NO_SAGA = UUID(int=0)
_NOT_IN_KEYS = re.compile("[/\\\\#?\x00-\x1f\x7f-\x9f]")

#: What a column of these rows may hold; a UUID is an Edm.Guid.
LegacyValue = RowValue | UUID
Properties = dict[str, LegacyValue]


@dataclass(frozen=True, slots=True)
class TimeoutRows:
    """The rows of one timeout, keys included."""

    main: Properties
    time: Properties
    saga: Properties | None


def encode_timeout(timeout: LegacyTimeout, scope: PartitionScope) -> TimeoutRows:
    """The rows of a timeout. Its body is not among them."""
    saga = _guid(timeout.saga_id)
    columns: Properties = {
        DESTINATION: timeout.destination,
        SAGA_ID: saga or _NO_SAGA,
        STATE_ADDRESS: timeout.id,
        TIME: timeout.due_at.astimezone(UTC),
        OWNER: timeout.owner,
        HEADERS: write_newtonsoft_map(timeout.headers),
    }
    return TimeoutRows(
        main=_row(main_key(timeout.id), columns),
        time=_row(time_key(timeout.id, timeout.due_at, scope), columns),
        saga=None if saga is None else _row(RowKey(str(saga), timeout.id), columns),
    )


def main_key(timeout_id: str) -> RowKey:
    """Where the main row of a timeout stands."""
    return RowKey(timeout_id, "")


def time_key(timeout_id: str, due_at: datetime, scope: PartitionScope) -> RowKey:
    """Where its time row stands."""
    return RowKey(scope.of(due_at), timeout_id)


def rest_keys(properties: Mapping[str, LegacyValue], scope: PartitionScope) -> list[RowKey]:
    """What goes after the main row, by any row of the timeout: saga row, time row."""
    timeout_id = timeout_id_of(properties)
    saga, due_at = _guid(properties.get(SAGA_ID)), instant_of(properties.get(TIME))
    keys = [] if saga is None else [RowKey(str(saga), timeout_id)]
    return keys if due_at is None else [*keys, time_key(timeout_id, due_at, scope)]


def timeout_id_of(properties: Mapping[str, LegacyValue]) -> str:
    """The id of a timeout, by any of its rows."""
    return str(properties["RowKey"] or properties["PartitionKey"])


def state_address(properties: Mapping[str, LegacyValue]) -> str | None:
    """The blob that holds the body; None: there is no body."""
    return optional_text_in(properties, STATE_ADDRESS)


def is_key(text: str) -> bool:
    """Whether a text can be a key of a row at all: an id that can't is the id of no timeout."""
    short = len(text.encode("utf-16-le", "replace")) <= 2 * KEY_UNITS
    return bool(text) and short and not _NOT_IN_KEYS.search(text)


def is_time_row(properties: Mapping[str, LegacyValue]) -> bool:
    """Whether this is a time row, whatever its partition's pattern: it is neither main row nor saga row."""
    saga = _guid(properties.get(SAGA_ID))
    of_saga = saga is not None and str(properties["PartitionKey"]).lower() == str(saga)
    return bool(properties["RowKey"]) and not of_saga


def due_of(properties: Mapping[str, LegacyValue]) -> DueTimeout | None:
    """What a time row announces; None: it is none, or tells no time."""
    due_at = instant_of(properties.get(TIME))
    if due_at is None or not is_time_row(properties):
        return None
    return DueTimeout(str(properties["RowKey"]), due_at, str(properties["PartitionKey"]))


def is_hidden(properties: Mapping[str, LegacyValue], owner: str) -> bool:
    """Whether this is a time row that a migration tool took away from this owner for the time being."""
    text = properties.get(OWNER)
    if not isinstance(text, str) or not text.startswith(HIDDEN) or not is_time_row(properties):
        return False
    return text.removeprefix(HIDDEN).partition("__")[2] == owner


def decode_timeout(properties: Mapping[str, LegacyValue]) -> LegacyTimeout:
    """Read a timeout out of any of its rows; its body lies elsewhere, and is empty here.

    Raises:
        PoisonMessage: a column that is needed is missing, or of another type.
    """
    due_at, owner = instant_of(properties.get(TIME)), properties.get(OWNER)
    saga = _guid(properties.get(SAGA_ID))
    if due_at is None:
        raise PoisonMessage(f"column {TIME} holds no time")
    return LegacyTimeout(
        id=timeout_id_of(properties),
        destination=text_in(properties, DESTINATION),
        due_at=due_at,
        headers=headers_in(properties.get(HEADERS)),
        body=b"",
        owner=owner if isinstance(owner, str) else "",
        saga_id=None if saga is None else str(saga),
    )


def decode_or_tell(properties: Mapping[str, LegacyValue]) -> LegacyTimeout | UnreadableTimeout:
    """Read a timeout without its body; never raises."""
    try:
        return decode_timeout(properties)
    except PoisonMessage as error:
        return UnreadableTimeout(timeout_id_of(properties), str(error), instant_of(properties.get(TIME)))


def saga_key(text: str | None) -> str:
    """A saga id as a partition key: lower-case and dashed, however it was written.

    Raises:
        PoisonMessage: it is missing, empty, or not a GUID.
    """
    saga = _guid(text)
    if saga is None:
        raise PoisonMessage(f"the saga id {shown(text)} is empty or not a GUID")
    return str(saga)


def _row(key: RowKey, columns: Properties) -> Properties:
    return {"PartitionKey": key.partition, "RowKey": key.row, **columns}


def _guid(value: LegacyValue) -> UUID | None:
    """The GUID; None: zeros, or not one."""
    if isinstance(value, str):
        try:
            value = UUID(value)
        except ValueError:
            return None
    return value if isinstance(value, UUID) and value != _NO_SAGA else None
