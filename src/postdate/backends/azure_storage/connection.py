"""Where an account is and how to get in: connection strings and URLs, made alike and checked at once.

The three SDK clients read connection strings differently (fact sheet 4.5: `UseDevelopmentStorage=true` in
any case but without a trailing `;` for tables, in exact case for the others). So we read them here, and
clients get a URL and a credential.
"""

import base64
import binascii
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from postdate.errors import ConfigurationError
from postdate.settings import Account

#: The emulator's account and key are public: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
DEVELOPMENT_ACCOUNT = "devstoreaccount1"
DEVELOPMENT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_DEVELOPMENT_PORTS = {"blob": 10000, "queue": 10001, "table": 10002}
_LOCAL_HOSTS = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True)
class Place:
    """One service of one account, for messages to people; never holds a secret."""

    service: str
    #: Scheme, host, port and path; no query.
    url: str
    account: str
    #: The setting that named it.
    source: str
    #: Whether a key or signature opens it; an identity otherwise.
    by_key: bool

    @property
    def address(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, so an emulator."""
        return urlsplit(self.url).hostname in _LOCAL_HOSTS


@dataclass(frozen=True, slots=True)
class Endpoints:
    """One account: its three services, and what opens them. One of key, sas and identity."""

    account: str
    source: str
    table: Place
    queue: Place
    blob: Place
    key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)
    client_id: str | None = None


def endpoints_of(account: Account) -> Endpoints:
    """Read an account's setting.

    Raises:
        ConfigurationError: what is wrong with it, without repeating it.
    """
    if account.connection_string is not None:
        return _from_string(account.connection_string.get_secret_value(), account.source)
    urls = {"table": account.table_url, "queue": account.queue_url, "blob": account.blob_url}
    places = {}
    for service, url in urls.items():
        if not url:
            raise ConfigurationError(f"{account.source}: the {service} service's URL is missing")
        _check_url(url, account.source)
        if urlsplit(url).scheme != "https":
            raise ConfigurationError(
                f"{account.source}: {url} must be https, since an identity's token goes there; "
                "use a connection string for an emulator"
            )
        places[service] = Place(service, _no_query(url), _account_in(url), account.source, by_key=False)
    return _endpoints(account.source, places, client_id=account.client_id)


def _from_string(text: str, source: str) -> Endpoints:
    parts = _split(text, source)
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        parts = _development(parts)
    name, key = parts.get("accountname", ""), parts.get("accountkey") or None
    sas = parts.get("sharedaccesssignature", "").lstrip("?") or None
    if key is None and sas is None:
        raise ConfigurationError(
            f"{source} holds neither AccountKey nor SharedAccessSignature; to use an identity set "
            "POSTDATE_ACCOUNT_NAME instead"
        )
    if key is not None:
        sas = None
        if not name:
            raise ConfigurationError(f"{source} holds an AccountKey and no AccountName")
        _check_key(key, source)
    places = {}
    for service in ("table", "queue", "blob"):
        url = _service_url(parts, service, name, source)
        places[service] = Place(service, url, name or _account_in(url), source, by_key=True)
    return _endpoints(source, places, key=key, sas=sas)


def _endpoints(
    source: str,
    places: dict[str, Place],
    *,
    key: str | None = None,
    sas: str | None = None,
    client_id: str | None = None,
) -> Endpoints:
    table, queue, blob = (places[service] for service in ("table", "queue", "blob"))
    return Endpoints(table.account, source, table, queue, blob, key, sas, client_id)


def _split(text: str, source: str) -> dict[str, str]:
    parts = {}
    for part in text.strip().strip(";").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(
                f"{source} is not a connection string: it takes Name=value pairs with ; between them, "
                "like AccountName=…;AccountKey=…, or it is UseDevelopmentStorage=true"
            )
        parts[name.strip().lower()] = value.strip()
    return parts


def _development(parts: dict[str, str]) -> dict[str, str]:
    base = parts.get("developmentstorageproxyuri", "http://127.0.0.1").rstrip("/")
    return {
        "accountname": DEVELOPMENT_ACCOUNT,
        "accountkey": DEVELOPMENT_KEY,
        **{
            f"{service}endpoint": f"{base}:{port}/{DEVELOPMENT_ACCOUNT}"
            for service, port in _DEVELOPMENT_PORTS.items()
        },
    }


def _service_url(parts: dict[str, str], service: str, name: str, source: str) -> str:
    given = parts.get(f"{service}endpoint")
    if given:
        _check_url(given, source)
        return _not_cosmos(_no_query(given)) if service == "table" else _no_query(given)
    if not name:
        raise ConfigurationError(f"{source} names no account: AccountName or {service.title()}Endpoint")
    protocol = parts.get("defaultendpointsprotocol", "https")
    suffix = parts.get("endpointsuffix", "core.windows.net")
    url = f"{protocol}://{name}.{service}.{suffix}"
    _check_url(url, source)
    return url


def _check_url(url: str, source: str) -> None:
    try:
        parts = urlsplit(url)
        # A user name and password in a URL would be shown in messages.
        broken = parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc
        broken = broken or parts.port == 0
    except ValueError:
        broken = True
    if broken:
        raise ConfigurationError(f"{source}: a service's URL is not one; it takes http(s)://host")


def _check_key(key: str, source: str) -> None:
    try:
        base64.b64decode(key, validate=True)
    except binascii.Error:
        raise ConfigurationError(f"{source}: AccountKey is not base64, so it was cut or changed") from None


def _no_query(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def _not_cosmos(url: str) -> str:
    """On `localhost` and a table port other than 10002 the SDK talks Cosmos DB's dialect (fact 12)."""
    parts = urlsplit(url)
    if parts.hostname != "localhost" or parts.port == _DEVELOPMENT_PORTS["table"]:
        return url
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://127.0.0.1{port}{parts.path}"


def _account_in(url: str) -> str:
    """The account in a URL: the path's first part for an emulator, else the host's."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in _LOCAL_HOSTS or host.replace(".", "").isdigit():
        return parts.path.strip("/").partition("/")[0]
    return host.partition(".")[0]
