"""Settings from code, environment and file; and what they are, for people."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from postdate.errors import ConfigurationError, shown
from postdate.model.durations import format_duration
from postdate.settings.environment import settings_file
from postdate.settings.fields import PREFIX
from postdate.settings.model import Settings

#: Pydantic's refusals of numbers, choices and flags: they don't say what was given.
_WITHOUT_VALUE = {
    "int_parsing",
    "float_parsing",
    "bool_parsing",
    "enum",
    "greater_than_equal",
    "less_than_equal",
}


def load_settings(**overrides: Any) -> Settings:
    """Settings from code (`overrides`, None left out), environment and file.

    Raises:
        ConfigurationError: one line that names the setting, what is wrong and the way out.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)  # pydantic checks and converts each value
    except ValidationError as error:
        raise ConfigurationError(_one_line(error, given)) from None
    except SettingsError as error:
        field = str(error).partition('field "')[2].partition('"')[0]
        raise ConfigurationError(
            f'{PREFIX}{field.upper()} is not valid JSON; write an object like {{"name": "value"}}'
        ) from None


def _one_line(error: ValidationError, given: dict[str, object]) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = str(first["loc"][0])
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] in _WITHOUT_VALUE:
        text = text.replace("Input should be", "must be")
        if isinstance(first["input"], str | int | float):  # what holds others may hold a key
            text += f"; it is {shown(first['input'])}"
    if first["type"] == "extra_forbidden":
        return f"there is no setting {field!r}; `postdate config` lists them"
    where = field if field in given else PREFIX + field.upper()
    return f"{where}: {text}"


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting, for `postdate config`: secrets masked."""

    name: str
    variable: str
    value: str
    source: str
    meaning: str


def explain_settings(settings: Settings, given: dict[str, object] | None = None) -> list[SettingLine]:
    """Each setting's effective value, where it came from, and what it means."""
    try:
        environment = EnvSettingsSource(Settings, env_prefix=PREFIX, env_ignore_empty=True)()
    except SettingsError:
        environment = {}
    file = settings_file()
    lines = []
    for name, field in Settings.model_fields.items():
        if given and given.get(name) is not None:
            source = "code"
        elif name in environment:
            source = "environment"
        elif name in file:
            source = "file"
        else:
            source = "default"
        lines.append(
            SettingLine(
                name,
                PREFIX + name.upper(),
                show_value(getattr(settings, name)),
                source,
                field.description or "",
            )
        )
    return lines


def show_value(value: object) -> str:
    """A setting's value for people; a secret is masked, and what may be one in the wrong place."""
    if value is None:
        return ""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, SecretStr) or (isinstance(value, str) and "=" in value):
        return "********"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{k}={show_value(v)}" for k, v in value.items())
    return str(value)
