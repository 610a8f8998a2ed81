"""A storage service on this machine, for development and tests: `Azurite`."""

from postdate.errors import AzuriteError
from postdate.local.azurite import Azurite

__all__ = ["Azurite", "AzuriteError"]
