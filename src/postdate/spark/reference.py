"""Where tasks find their settings: a name that travels in plans, never the settings themselves.

Plans and event logs show every option of a data source and everything that a task closes over. So a task is
told where to look, and looks there itself: its environment, a file that it can read, or a function of yours
(which asks a vault, for example).
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from postdate.errors import ConfigurationError, UsageError
from postdate.settings import BackendName, Settings, load_settings, settings_file

#: Options of our data sources, as Spark spells them, by field.
_OPTIONS = {
    "endpoint": "endpoint",
    "table": "delaysTable",
    "file": "settingsFile",
    "factory": "settingsFactory",
}
_SECRET = ("connection", "key", "secret", "password", "sas", "token", "credential")


@dataclass(frozen=True, slots=True)
class SettingsReference:
    """Where to find an endpoint's settings. All empty: in the environment (`POSTDATE_*`) of each task."""

    #: The endpoint's name, in place of POSTDATE_ENDPOINT.
    endpoint: str | None = None
    #: The delays table, in place of POSTDATE_DELAYS_TABLE.
    table: str | None = None
    #: A file of settings (TOML or JSON) that the driver and each executor can read; it wins over the
    #: environment.
    file: str | None = None
    #: `module:function` that executors can import; called without arguments, it returns `Settings`.
    factory: str | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str], *, others: frozenset[str] = frozenset()) -> Self:
        """From the options of a data source; names are compared without case.

        Args:
            options: as Spark hands them over.
            others: options that mean something else there, in lower case.

        Raises:
            UsageError: an option is unknown, or would carry a secret into the plan.
        """
        known = {spelled.lower(): field for field, spelled in _OPTIONS.items()}
        values: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() in known:
                values[known[name.lower()]] = value
            elif any(part in name.lower() for part in _SECRET):
                raise UsageError(
                    f"option {name}: secrets don't travel in plans and event logs; set POSTDATE_CONNECTION "
                    "where executors run, or name a file that they can read with option settingsFile"
                )
            elif name.lower() not in others:
                listed = ", ".join(sorted((*_OPTIONS.values(), *others)))
                raise UsageError(f"there is no option {name!r}; there are {listed}")
        return cls(**values)

    def options(self) -> dict[str, str]:
        """The same as options of a data source."""
        return {
            spelled: value
            for field, spelled in _OPTIONS.items()
            if (value := getattr(self, field)) is not None
        }

    def load(self) -> Settings:
        """The settings, found from where this process runs.

        Raises:
            ConfigurationError: they are not there, are wrong, or name a backend that other processes can't
                reach.
        """
        settings = self._made() if self.factory else self._loaded()
        if settings.backend is BackendName.MEMORY:
            raise ConfigurationError(
                "the memory backend lives in one process, and Spark's tasks are others; use a storage "
                "account (`postdate azurite` starts one for local work)"
            )
        return settings

    def _loaded(self) -> Settings:
        values: dict[str, Any] = settings_file(self.file) if self.file else {}
        named = {"endpoint": self.endpoint, "delays_table": self.table}
        return load_settings(
            **{**values, **{name: value for name, value in named.items() if value is not None}}
        )

    def _made(self) -> Settings:
        assert self.factory is not None
        module, colon, name = self.factory.partition(":")
        try:
            made = getattr(import_module(module), name)() if colon else None
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(f"settingsFactory {self.factory!r}: {error}") from None
        if not isinstance(made, Settings):
            raise ConfigurationError(
                f"settingsFactory {self.factory!r} must be module:function that returns postdate.Settings; "
                f"it gave {type(made).__name__}"
            )
        named = {"endpoint": self.endpoint, "delays_table": self.table}
        return made.model_copy(update={name: value for name, value in named.items() if value is not None})


@contextmanager
def shared_with_tasks(settings: Settings) -> Iterator[SettingsReference]:
    """Settings of this process for tasks on the same machine: a file that only this user can read.

    It is deleted at the end. Where tasks run on other machines, give those their settings yourself.
    """
    descriptor, name = tempfile.mkstemp(prefix="postdate-", suffix=".json")  # mode 600
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(
                {field: _plain(getattr(settings, field)) for field in type(settings).model_fields}, file
            )
        yield SettingsReference(file=str(path))
    finally:
        path.unlink(missing_ok=True)


def _plain(value: object) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    return value
