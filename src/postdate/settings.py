"""Typed settings, from code, the environment (`POSTDATE_*`) or a TOML file, in this order.

This is the only module that reads the environment, and it does so when asked, never at import.
"""

# Longer than the limit: every setting stands here with its meaning, and nobody else reads the environment.

import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from postdate.errors import ConfigurationError, UsageError
from postdate.model import names
from postdate.model.durations import format_duration, parse_duration
from postdate.model.envelope import EnvelopeForm
from postdate.model.limits import BATCH_OPERATIONS, LEASE_SECONDS, RECEIVE_MESSAGES

PREFIX = "POSTDATE_"
FILE_VARIABLE = "POSTDATE_SETTINGS_FILE"


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


@dataclass(frozen=True, slots=True)
class Account:
    """How to reach one storage account: by connection string, or by URLs and an identity."""

    #: Which setting named it, for messages to people.
    source: str
    connection_string: SecretStr | None = None
    table_url: str | None = None
    queue_url: str | None = None
    blob_url: str | None = None
    #: Client id of a user-assigned identity; None: the default credential chain.
    client_id: str | None = None


def _check_account(name: str, source: str = "") -> None:
    # The name is not repeated: what is no name may be a connection string, put into the wrong setting.
    if not re.fullmatch("[a-z0-9]{3,24}", name):
        raise ConfigurationError(
            f"{source}not an account's name, which is 3 to 24 lower-case letters and digits; "
            "a connection string belongs into POSTDATE_CONNECTION"
        )


def _check_no_key(name: str) -> None:
    if "=" in name:
        raise ConfigurationError("not a name; a connection string belongs into POSTDATE_CONNECTION")


_NOT_PLAIN = "must end before the ?: what follows may be a key, and belongs into a connection string"
_TEN_YEARS = timedelta(days=3650)
_NAME_CHECKS: dict[str, Callable[[str], object]] = {
    "endpoint": names.delays_table,
    "queue": names.check_queue,
    "delays_table": lambda table: names.delays_table("", table),
    "error_queue": names.destination,
    "account_name": _check_account,
    "connection_name": _check_no_key,
    "client_id": _check_no_key,
}


class Settings(BaseSettings):
    """All settings of an endpoint. Durations take seconds, `1m30s`, `PT90S` or `00:01:30`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, hide_input_in_errors=True
    )

    endpoint: str = Field("", description="The endpoint's name; names its table, lease and queue.")
    queue: str | None = Field(None, description="The endpoint's own queue; default: made of its name.")
    backend: BackendName = Field(
        BackendName.AZURE_STORAGE, description="Where messages are kept: azure_storage or memory."
    )
    connection: SecretStr | None = Field(
        None, description="Connection string of the storage account, or UseDevelopmentStorage=true."
    )
    connection_name: str = Field(
        "AzureWebJobsStorage",
        description="Prefix of the identity-style settings to fall back to (NAME, NAME__accountName, ...).",
    )
    account_name: str | None = Field(None, description="Storage account to reach by identity.")
    table_url: str | None = Field(None, description="Table service URL, where it is not the usual one.")
    queue_url: str | None = Field(None, description="Queue service URL, where it is not the usual one.")
    blob_url: str | None = Field(None, description="Blob service URL, where it is not the usual one.")
    client_id: str | None = Field(None, description="Client id of a user-assigned managed identity.")
    aliases: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Further accounts for queue@alias: JSON of alias to connection string or account name.",
    )
    delays_table: str | None = Field(
        None, description="Name of the delays table and lease container, instead of delays<sha1(endpoint)>."
    )
    disable_delayed_delivery: bool = Field(
        False, description="No table, no polling, no lease; scheduling raises DelayedDeliveryDisabled."
    )
    disable_timeout_manager: bool = Field(
        False, description="Switches off the legacy timeout manager (accepted; has no effect yet)."
    )
    error_queue: str = Field("error", description="Where messages go that can't be delivered.")
    lookahead: Duration = Field(
        timedelta(seconds=30),
        description="How long before its due time a message is handed over, hidden in its queue; 0: classic.",
    )
    lease_duration: Duration = Field(
        timedelta(seconds=15), description="Lease of the leader, 15 to 60 s; .NET endpoints use 15 s."
    )
    lease_target: LeaseTarget = Field(
        LeaseTarget.CONTAINER, description="container (as .NET does) or blob (leader.json inside it)."
    )
    guarantee: Guarantee = Field(
        Guarantee.AT_LEAST_ONCE,
        description="at_least_once (dispatch, then remove) or at_most_once (remove, then dispatch).",
    )
    idle_interval: Duration = Field(
        timedelta(seconds=10), description="Longest sleep of the leader between two looks at the table."
    )
    probe_interval: Duration = Field(
        timedelta(seconds=3), description="How often a follower tries to take the lease."
    )
    number_of_retries: int = Field(
        5, ge=0, description="Dispatches after the first failed one, before the error queue."
    )
    retry_base: Duration = Field(timedelta(seconds=1), description="First wait between two attempts.")
    retry_maximum: Duration = Field(timedelta(minutes=1), description="Longest wait between two attempts.")
    send_concurrency: int = Field(32, ge=1, le=256, description="Sends that run at once.")
    unremoved_limit: int = Field(
        BATCH_OPERATIONS,
        ge=2,
        le=1000,
        description="Handed-over messages whose rows are not removed yet: the most that a crash can double.",
    )
    large_bodies: LargeBodies = Field(
        LargeBodies.CLAIM_CHECK, description="claim-check (body goes to a blob) or refuse."
    )
    payload_retention: Duration = Field(
        timedelta(days=30), description="How long after its due time an unclaimed large body is kept."
    )
    envelopes: dict[str, EnvelopeForm] = Field(
        default_factory=dict,
        description="Form by destination, as JSON: nservicebus (default), raw (base64) or raw-text.",
    )
    check_destinations: bool = Field(
        True, description="Ask at scheduling time whether the destination queue exists."
    )
    visibility_timeout: Duration = Field(
        timedelta(seconds=30), description="How long a received message stays hidden from others."
    )
    receive_batch: int = Field(
        RECEIVE_MESSAGES, ge=1, le=RECEIVE_MESSAGES, description="Messages in one receive."
    )

    @field_validator("lease_duration")
    @classmethod
    def _lease_range(cls, value: timedelta) -> timedelta:
        low, high = LEASE_SECONDS
        if not low <= value.total_seconds() <= high or value.microseconds:
            raise ValueError(f"must be whole seconds, {low} to {high}; it is {format_duration(value)}")
        return value

    @field_validator("idle_interval", "probe_interval", "retry_base", "retry_maximum")
    @classmethod
    def _positive(cls, value: timedelta) -> timedelta:
        if not timedelta(0) < value <= _TEN_YEARS:
            raise ValueError(f"must be more than zero, at most 3650 days; it is {format_duration(value)}")
        return value

    @field_validator("payload_retention")
    @classmethod
    def _not_negative(cls, value: timedelta) -> timedelta:
        if not timedelta(0) <= value <= _TEN_YEARS:
            raise ValueError(f"must be from 0 to 3650 days; it is {format_duration(value)}")
        return value

    @field_validator("lookahead")
    @classmethod
    def _within_visibility(cls, value: timedelta) -> timedelta:
        if not timedelta(0) <= value <= timedelta(days=6):
            raise ValueError(
                f"must be from 0 to 6 days (a queue hides for 7); it is {format_duration(value)}"
            )
        return value

    @field_validator("visibility_timeout")
    @classmethod
    def _visibility_range(cls, value: timedelta) -> timedelta:
        if not timedelta(seconds=1) <= value <= timedelta(days=7):
            raise ValueError(f"must be from 1 second to 7 days; it is {format_duration(value)}")
        return value

    @field_validator(*_NAME_CHECKS)
    @classmethod
    def _named(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or (info.field_name == "endpoint" and not value):
            return value
        try:
            _NAME_CHECKS[info.field_name or ""](value)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("table_url", "queue_url", "blob_url")
    @classmethod
    def _plain_url(cls, value: str | None) -> str | None:
        if value is not None and "?" in value:
            raise ValueError(_NOT_PLAIN)
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Code, then environment, then the file that POSTDATE_SETTINGS_FILE names."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, _from_file())

    @property
    def table_name(self) -> str:
        """The delays table, and the container that carries the lease."""
        return names.delays_table(self.endpoint, self.delays_table)

    @property
    def own_queue(self) -> str:
        """The endpoint's queue."""
        return self.queue or names.queue_for_endpoint(self.endpoint)

    def envelope_form(self, destination: str) -> EnvelopeForm:
        """The form that a destination wants."""
        return self.envelopes.get(destination, EnvelopeForm.NSERVICEBUS)

    def account(self) -> Account:
        """Our own storage account.

        Raises:
            ConfigurationError: none is configured, or not all of it.
        """
        if self.connection is not None:
            return Account("POSTDATE_CONNECTION", connection_string=self.connection)
        if self.account_name or self.table_url or self.queue_url or self.blob_url:
            return _by_identity(
                "POSTDATE_ACCOUNT_NAME" if self.account_name else "POSTDATE_TABLE_URL",
                self.account_name,
                (self.table_url, self.queue_url, self.blob_url),
                self.client_id,
            )
        found = _identity_style(self.connection_name, self.client_id)
        if found is None:
            raise ConfigurationError(
                "no storage account is configured; set POSTDATE_CONNECTION to a connection string "
                "(UseDevelopmentStorage=true with `postdate azurite`), or POSTDATE_ACCOUNT_NAME to use "
                "an identity"
            )
        return found

    def alias_accounts(self) -> dict[str, Account]:
        """Further accounts, by alias in lower case (addresses ignore case)."""
        accounts: dict[str, Account] = {}
        for alias, secret in self.aliases.items():
            value = secret.get_secret_value()
            source = f"alias {alias!r}"
            accounts[alias.lower()] = (
                Account(source, connection_string=secret)
                if "=" in value
                else _by_identity(source, value, (None, None, None), self.client_id)
            )
        return accounts


def _by_identity(
    source: str,
    account_name: str | None,
    urls: tuple[str | None, str | None, str | None],
    client_id: str | None,
) -> Account:
    if account_name:
        _check_account(account_name, f"{source}: ")
    if any("?" in url for url in urls if url):
        raise ConfigurationError(f"{source}: a service's URL {_NOT_PLAIN}")
    table, queue, blob = (
        url or (f"https://{account_name}.{service}.core.windows.net" if account_name else None)
        for url, service in zip(urls, ("table", "queue", "blob"), strict=True)
    )
    return Account(source, table_url=table, queue_url=queue, blob_url=blob, client_id=client_id)


def _identity_style(name: str, client_id: str | None) -> Account | None:
    """The settings that Azure Functions use: NAME, or NAME__accountName and friends (any of `__` or `:`)."""

    def value(suffix: str) -> str | None:
        for form in (f"{name}__{suffix}", f"{name}:{suffix}"):
            if os.environ.get(form):  # noqa: TID251 - this module is the one place that may read it
                return os.environ[form]  # noqa: TID251 - see above
        return None

    whole = os.environ.get(name)  # noqa: TID251 - see above
    if whole:
        return Account(name, connection_string=SecretStr(whole))
    account_name = value("accountName")
    urls = value("tableServiceUri"), value("queueServiceUri"), value("blobServiceUri")
    if not account_name and not any(urls):
        return None
    source = f"{name}__accountName" if account_name else f"{name}__tableServiceUri"
    return _by_identity(source, account_name, urls, value("clientId") or client_id)


def _from_file() -> dict[str, Any]:
    path = os.environ.get(FILE_VARIABLE)  # noqa: TID251 - this module is the one place that may read it
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{FILE_VARIABLE}={path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{FILE_VARIABLE}={path} is not TOML: {error}") from None


def load_settings(**overrides: object) -> Settings:
    """Settings from code (`overrides`, None left out), environment and file.

    Raises:
        ConfigurationError: one line that names the setting, what is wrong and the way out.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type] # pydantic checks and converts each value
    except ValidationError as error:
        raise ConfigurationError(_one_line(error, given)) from None
    except SettingsError as error:
        field = str(error).partition('field "')[2].partition('"')[0]
        raise ConfigurationError(
            f'{PREFIX}{field.upper()} is not valid JSON; write an object like {{"name": "value"}}'
        ) from None


def _one_line(error: ValidationError, given: dict[str, object]) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = str(first["loc"][0])
    text = first["msg"].removeprefix("Value error, ")
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
    file = _from_file()
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


def cache_folder() -> Path:
    """Where downloads are kept: `postdate` in XDG_CACHE_HOME, or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")  # noqa: TID251 - this module is the one place that may read it
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "postdate"


def child_environment(**changes: str | None) -> dict[str, str]:
    """The environment for a process that we start: ours with `changes`; None leaves a variable out."""
    merged = {**os.environ, **changes}  # noqa: TID251 - this module is the one place that may read it
    return {name: value for name, value in merged.items() if value is not None}


def in_ci() -> bool:
    """True if the environment has a `CI` variable that is neither empty, 0 nor false."""
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}  # noqa: TID251 - see above
