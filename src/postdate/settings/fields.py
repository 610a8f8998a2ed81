"""What settings are made of: durations, and the values that some of them take."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator

from postdate.errors import UsageError
from postdate.model.durations import parse_duration

PREFIX = "POSTDATE_"


def _duration(value: object) -> timedelta:
    try:
        return parse_duration(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


Duration = Annotated[timedelta, BeforeValidator(_duration)]


class Guarantee(StrEnum):
    """The order of dispatch and row removal."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class LeaseTarget(StrEnum):
    """What carries the lease."""

    CONTAINER = "container"
    BLOB = "blob"


class LargeBodies(StrEnum):
    """What to do with a body whose dispatched form is too large for a queue."""

    CLAIM_CHECK = "claim-check"
    REFUSE = "refuse"


class BackendName(StrEnum):
    """Where messages are kept."""

    AZURE_STORAGE = "azure_storage"
    MEMORY = "memory"
