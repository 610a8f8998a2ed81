"""Postdate delivers messages when they are due, on nothing but an Azure Storage account.

The public names, loaded when they are first used: importing the package costs nothing but this file.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postdate.endpoint import Endpoint
    from postdate.engine.acceptance import Outgoing
    from postdate.engine.changes import CancelOutcome
    from postdate.engine.context import MessageContext
    from postdate.engine.lookup import ScheduledMessage
    from postdate.engine.reception import Delivery
    from postdate.engine.verdicts import Recoverability
    from postdate.errors import (
        DelayedDeliveryDisabled,
        DestinationNotFound,
        PostdateError,
        StorageError,
        TryLater,
        UsageError,
    )
    from postdate.settings import Settings, load_settings

_HOMES = {
    "CancelOutcome": "postdate.engine.changes",
    "DelayedDeliveryDisabled": "postdate.errors",
    "Delivery": "postdate.engine.reception",
    "DestinationNotFound": "postdate.errors",
    "Endpoint": "postdate.endpoint",
    "MessageContext": "postdate.engine.context",
    "Outgoing": "postdate.engine.acceptance",
    "PostdateError": "postdate.errors",
    "Recoverability": "postdate.engine.verdicts",
    "ScheduledMessage": "postdate.engine.lookup",
    "Settings": "postdate.settings",
    "StorageError": "postdate.errors",
    "TryLater": "postdate.errors",
    "UsageError": "postdate.errors",
    "load_settings": "postdate.settings",
}

__all__ = [
    "CancelOutcome",
    "DelayedDeliveryDisabled",
    "Delivery",
    "DestinationNotFound",
    "Endpoint",
    "MessageContext",
    "Outgoing",
    "PostdateError",
    "Recoverability",
    "ScheduledMessage",
    "Settings",
    "StorageError",
    "TryLater",
    "UsageError",
    "load_settings",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'postdate' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
