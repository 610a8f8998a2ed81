"""A storage service on this machine, for development and tests: `Azurite`."""

from postdate.local.azurite import Azurite
from postdate.local.errors import AzuriteError

__all__ = ["Azurite", "AzuriteError"]
