"""How to reach a storage account: from settings of ours, or from those that Azure Functions use."""

import re
from dataclasses import dataclass

from pydantic import SecretStr

from postdate.errors import ConfigurationError
from postdate.settings.environment import variable

NOT_PLAIN = "must end before the ?: what follows may be a key, and belongs into a connection string"


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


def check_account(name: str, source: str = "") -> None:
    """Refuse what is not an account's name."""
    # The name is not repeated: what is no name may be a connection string, put into the wrong setting.
    if not re.fullmatch("[a-z0-9]{3,24}", name):
        raise ConfigurationError(
            f"{source}not an account's name, which is 3 to 24 lower-case letters and digits; "
            "a connection string belongs into POSTDATE_CONNECTION"
        )


def check_no_key(name: str) -> None:
    """Refuse a connection string where a name belongs."""
    if "=" in name:
        raise ConfigurationError("not a name; a connection string belongs into POSTDATE_CONNECTION")


def by_identity(
    source: str,
    account_name: str | None,
    urls: tuple[str | None, str | None, str | None],
    client_id: str | None,
) -> Account:
    """An account by its name, or by URLs of its services (table, queue, blob), or both."""
    if account_name:
        check_account(account_name, f"{source}: ")
    if any("?" in url for url in urls if url):
        raise ConfigurationError(f"{source}: a service's URL {NOT_PLAIN}")
    table, queue, blob = (
        url or (f"https://{account_name}.{service}.core.windows.net" if account_name else None)
        for url, service in zip(urls, ("table", "queue", "blob"), strict=True)
    )
    return Account(source, table_url=table, queue_url=queue, blob_url=blob, client_id=client_id)


def identity_style(name: str, client_id: str | None) -> Account | None:
    """The settings that Azure Functions use: NAME, or NAME__accountName and friends (any of `__` or `:`)."""

    def value(suffix: str) -> str | None:
        for form in (f"{name}__{suffix}", f"{name}:{suffix}"):
            if found := variable(form):
                return found
        return None

    whole = variable(name)
    if whole:
        return Account(name, connection_string=SecretStr(whole))
    account_name = value("accountName")
    urls = value("tableServiceUri"), value("queueServiceUri"), value("blobServiceUri")
    if not account_name and not any(urls):
        return None
    source = f"{name}__accountName" if account_name else f"{name}__tableServiceUri"
    return by_identity(source, account_name, urls, value("clientId") or client_id)
