"""The only module that reads the environment, and it does so when asked, never at import."""

# ruff: noqa: TID251 - this is the place that may read it

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from postdate.errors import ConfigurationError

#: Names a TOML file of settings.
FILE_VARIABLE = "POSTDATE_SETTINGS_FILE"


def variable(name: str) -> str | None:
    """A variable's value; None where it is missing or empty."""
    return os.environ.get(name) or None


def names_with(prefix: str) -> list[str]:
    """Names of variables that begin so and are not empty, sorted."""
    return sorted(name for name, value in os.environ.items() if name.startswith(prefix) and value)


def settings_file(named: str | None = None) -> dict[str, Any]:
    """What a file of settings holds: TOML, or JSON where its name ends so. Nothing where none is named.

    Args:
        named: its path; default: what POSTDATE_SETTINGS_FILE names.

    Raises:
        ConfigurationError: it can't be read, or is not what its name says.
    """
    path = named or variable(FILE_VARIABLE)
    if not path:
        return {}
    shown = path if named else f"{FILE_VARIABLE}={path}"
    kind = "JSON" if path.endswith(".json") else "TOML"
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"{shown}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{shown} is not {kind}: {error}") from None
    if not isinstance(values, dict):
        raise ConfigurationError(f"{shown} is not an object of settings")
    return values


def cache_folder() -> Path:
    """Where downloads are kept: `postdate` in XDG_CACHE_HOME, or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "postdate"


def child_environment(**changes: str | None) -> dict[str, str]:
    """The environment for a process that we start: ours with `changes`; None leaves a variable out."""
    merged = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def set_default(name: str, value: str) -> None:
    """Set a variable of this process, and of what it starts, unless it has a value."""
    os.environ.setdefault(name, value)


def in_ci() -> bool:
    """True if the environment has a `CI` variable that is neither empty, 0 nor false."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}
