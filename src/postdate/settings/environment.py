"""The only module that reads the environment, and it does so when asked, never at import."""

# ruff: noqa: TID251 - this is the place that may read it

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


def settings_file() -> dict[str, Any]:
    """What the file of settings holds; nothing where none is named.

    Raises:
        ConfigurationError: it can't be read, or is not TOML.
    """
    path = variable(FILE_VARIABLE)
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{FILE_VARIABLE}={path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{FILE_VARIABLE}={path} is not TOML: {error}") from None


def cache_folder() -> Path:
    """Where downloads are kept: `postdate` in XDG_CACHE_HOME, or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "postdate"


def child_environment(**changes: str | None) -> dict[str, str]:
    """The environment for a process that we start: ours with `changes`; None leaves a variable out."""
    merged = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def in_ci() -> bool:
    """True if the environment has a `CI` variable that is neither empty, 0 nor false."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}
