"""Every setting, with its meaning and its limits."""

from collections.abc import Callable
from datetime import timedelta

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from postdate.errors import ConfigurationError, UsageError
from postdate.model import names
from postdate.model.durations import format_duration
from postdate.model.envelope import EnvelopeForm
from postdate.model.legacy_timeout import TimeoutPlaces
from postdate.model.limits import BATCH_OPERATIONS, LEASE_SECONDS
from postdate.settings.accounts import (
    NOT_PLAIN,
    Account,
    by_identity,
    check_account,
    check_no_key,
    identity_style,
)
from postdate.settings.breakers import BreakerSettings
from postdate.settings.delivery_log import DeliveryLogSettings
from postdate.settings.environment import settings_file
from postdate.settings.fields import PREFIX, BackendName, Duration, Guarantee, LargeBodies, LeaseTarget
from postdate.settings.inbox import InboxSettings
from postdate.settings.legacy import LegacySettings
from postdate.settings.own_store import StoreSettings
from postdate.settings.receiving import ReceivingSettings

_TEN_YEARS = timedelta(days=3650)
_NAME_CHECKS: dict[str, Callable[[str], object]] = {
    "endpoint": names.delays_table,
    "queue": names.check_queue,
    "delays_table": lambda table: names.delays_table("", table),
    "inbox_table": lambda table: names.inbox_table("", table),
    "error_queue": names.destination,
    "account_name": check_account,
    "connection_name": check_no_key,
    "client_id": check_no_key,
}


class Settings(
    ReceivingSettings,
    InboxSettings,
    DeliveryLogSettings,
    BreakerSettings,
    LegacySettings,
    StoreSettings,
    BaseSettings,
):
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
    error_queue: str = Field("error", description="Where messages go that can't be delivered.")
    lookahead: Duration = Field(
        timedelta(seconds=30),
        description="How long before its due time a message is handed over, hidden in its queue; 0: classic.",
    )
    direct_within: Duration = Field(
        timedelta(seconds=90),
        description="A delay of at most this goes straight to its queue, hidden there, without a row; never "
        "less than the lookahead, and 0 without one. From 68 s on, a leader with nothing to do rests.",
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
        timedelta(minutes=1), description="Longest sleep of the leader between two looks at the table."
    )
    probe_interval: Duration = Field(
        timedelta(seconds=3), description="How often a follower tries to take the lease."
    )
    clock_uncertainty_limit: Duration = Field(
        timedelta(seconds=5),
        description="A process that knows the service's clock less well than this does not lead.",
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
    prices: str | None = Field(
        None, description="File with what requests cost, in place of the list prices that come with us."
    )

    @field_validator("lease_duration")
    @classmethod
    def _lease_range(cls, value: timedelta) -> timedelta:
        low, high = LEASE_SECONDS
        if not low <= value.total_seconds() <= high or value.microseconds:
            raise ValueError(f"must be whole seconds, {low} to {high}; it is {format_duration(value)}")
        return value

    @field_validator(
        "idle_interval", "probe_interval", "retry_base", "retry_maximum", "clock_uncertainty_limit"
    )
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

    @field_validator("lookahead", "direct_within")
    @classmethod
    def _within_visibility(cls, value: timedelta) -> timedelta:
        if not timedelta(0) <= value <= timedelta(days=6):
            raise ValueError(
                f"must be from 0 to 6 days (a queue hides for 7); it is {format_duration(value)}"
            )
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
            raise ValueError(NOT_PLAIN)
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
        return init_settings, env_settings, InitSettingsSource(settings_cls, settings_file())

    @property
    def table_name(self) -> str:
        """The delays table, and the container that carries the lease."""
        return names.delays_table(self.endpoint, self.delays_table)

    @property
    def inbox_table_name(self) -> str:
        """The table where the endpoint's consumers remember messages."""
        return names.inbox_table(self.endpoint or self.table_name, self.inbox_table)

    @property
    def direct_limit(self) -> timedelta:
        """The longest delay that goes straight to its queue."""
        return max(self.lookahead, self.direct_within) if self.lookahead else timedelta(0)

    @property
    def own_queue(self) -> str:
        """The endpoint's queue."""
        return self.queue or names.queue_for_endpoint(self.endpoint)

    @property
    def timeout_places(self) -> TimeoutPlaces:
        """Where the endpoint's legacy timeouts are."""
        return TimeoutPlaces(
            owner=self.endpoint,
            table=self.timeout_table,
            manager_table=self.timeout_manager_table,
            container=self.timeout_state_container,
            partition_scope=self.timeout_partition_scope,
        )

    @property
    def timeout_queues(self) -> tuple[str, str]:
        """The queues of the legacy timeout manager: of what shall be kept, and of what is due."""
        kept, due = (
            names.satellite_queue(self.queue or self.endpoint, qualifier)
            for qualifier in ("timeouts", "timeoutsdispatcher")
        )
        return kept, due

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
            return by_identity(
                "POSTDATE_ACCOUNT_NAME" if self.account_name else "POSTDATE_TABLE_URL",
                self.account_name,
                (self.table_url, self.queue_url, self.blob_url),
                self.client_id,
            )
        found = identity_style(self.connection_name, self.client_id)
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
                else by_identity(source, value, (None, None, None), self.client_id)
            )
        return accounts
