"""Accounts and their secrets: found in the order promised, and never shown, not even when they are wrong."""

import pytest

from postdate.errors import ConfigurationError
from postdate.settings import Account, Settings, explain_settings, load_settings

KEY = "c2VjcmV0LWtleQ=="
STRING = f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={KEY}"
SAS = "https://acme.queue.core.windows.net/?sv=2025-01-05&sig=c2VjcmV0LWtleQ%3D%3D"
URLS = {service: f"https://acme.{service}.storage.azure.net" for service in ("table", "queue", "blob")}


@pytest.fixture(autouse=True)
def environ(monkeypatch):
    """An environment of our own."""
    variables: dict[str, str] = {}
    monkeypatch.setattr("os.environ", variables)
    return variables


def by_string(account: Account) -> str:
    assert account.connection_string is not None
    assert (account.table_url, account.queue_url, account.blob_url) == (None, None, None)
    return account.connection_string.get_secret_value()


def by_identity(account: Account) -> tuple[str | None, str | None, str | None]:
    assert account.connection_string is None
    return account.table_url, account.queue_url, account.blob_url


def usual(name: str) -> tuple[str, str, str]:
    return (
        f"https://{name}.table.core.windows.net",
        f"https://{name}.queue.core.windows.net",
        f"https://{name}.blob.core.windows.net",
    )


def test_a_connection_string_wins_over_everything_else(environ):
    environ["POSTDATE_CONNECTION"] = STRING
    environ["POSTDATE_ACCOUNT_NAME"] = "other"
    environ["AzureWebJobsStorage"] = "UseDevelopmentStorage=true"
    account = load_settings().account()
    assert by_string(account) == STRING
    assert account.source == "POSTDATE_CONNECTION"


def test_an_account_name_is_reached_by_identity_at_the_usual_urls(environ):
    environ["POSTDATE_ACCOUNT_NAME"] = "acme"
    environ["POSTDATE_CLIENT_ID"] = "client-1"
    environ["AzureWebJobsStorage"] = STRING
    account = load_settings().account()
    assert by_identity(account) == usual("acme")
    assert (account.source, account.client_id) == ("POSTDATE_ACCOUNT_NAME", "client-1")


def test_a_url_wins_over_the_usual_one():
    account = load_settings(account_name="acme", queue_url=URLS["queue"]).account()
    assert by_identity(account) == (usual("acme")[0], URLS["queue"], usual("acme")[2])


def test_three_urls_need_no_account_name():
    account = load_settings(table_url=URLS["table"], queue_url=URLS["queue"], blob_url=URLS["blob"]).account()
    assert by_identity(account) == (URLS["table"], URLS["queue"], URLS["blob"])
    assert account.source == "POSTDATE_TABLE_URL"


def test_urls_that_are_not_complete_never_lead_to_another_account(environ):
    environ["AzureWebJobsStorage"] = STRING
    account = load_settings(queue_url=URLS["queue"]).account()
    # Whoever opens it refuses what is missing, by the source's name.
    assert by_identity(account) == (None, URLS["queue"], None)


def test_the_storage_setting_of_azure_functions_is_the_fallback(environ):
    environ["AzureWebJobsStorage"] = STRING
    account = load_settings().account()
    assert (by_string(account), account.source) == (STRING, "AzureWebJobsStorage")


@pytest.mark.parametrize("separator", ["__", ":"])
def test_identity_style_settings_of_azure_functions_are_read_in_both_forms(environ, separator):
    environ[f"AzureWebJobsStorage{separator}accountName"] = "acme"
    environ[f"AzureWebJobsStorage{separator}clientId"] = "client-2"
    account = load_settings().account()
    assert by_identity(account) == usual("acme")
    assert (account.source, account.client_id) == ("AzureWebJobsStorage__accountName", "client-2")


@pytest.mark.parametrize("separator", ["__", ":"])
def test_service_uris_of_azure_functions_are_read(environ, separator):
    for service, url in URLS.items():
        environ[f"AzureWebJobsStorage{separator}{service}ServiceUri"] = url
    account = load_settings(client_id="client-3").account()
    assert by_identity(account) == (URLS["table"], URLS["queue"], URLS["blob"])
    assert (account.source, account.client_id) == ("AzureWebJobsStorage__tableServiceUri", "client-3")


def test_a_service_uri_that_is_missing_is_left_for_its_opener_to_name(environ):
    # The Functions host itself needs queues and blobs only.
    environ["AzureWebJobsStorage__queueServiceUri"] = URLS["queue"]
    environ["AzureWebJobsStorage__blobServiceUri"] = URLS["blob"]
    assert by_identity(load_settings().account()) == (None, URLS["queue"], URLS["blob"])


def test_the_fallback_can_have_another_name(environ):
    environ["AzureWebJobsStorage"] = "UseDevelopmentStorage=true"
    environ["Orders__accountName"] = "acmeorders"
    environ["POSTDATE_CONNECTION_NAME"] = "Orders"
    assert by_identity(load_settings().account()) == usual("acmeorders")


def test_without_any_account_the_way_out_is_named(environ):
    environ["AzureWebJobsStorage"] = ""
    with pytest.raises(
        ConfigurationError, match=r"set POSTDATE_CONNECTION .*`postdate azurite`.*POSTDATE_ACCOUNT_NAME"
    ):
        load_settings().account()


def test_aliases_are_connection_strings_or_account_names_in_lower_case(environ):
    environ["POSTDATE_ALIASES"] = f'{{"Other": "{STRING}", "third": "acmethird"}}'
    environ["POSTDATE_CLIENT_ID"] = "client-1"
    accounts = load_settings().alias_accounts()
    assert list(accounts) == ["other", "third"]
    assert by_string(accounts["other"]) == STRING
    assert by_identity(accounts["third"]) == usual("acmethird")
    assert accounts["third"].client_id == "client-1"
    assert accounts["other"].source == "alias 'Other'"


def test_secrets_are_masked_wherever_settings_are_shown():
    settings = load_settings(connection=STRING, aliases={"other": STRING, "third": "acmethird"})
    shown = [repr(settings), str(settings), repr(settings.account()), repr(settings.alias_accounts())]
    shown += [str(explain_settings(settings)), str(settings.model_dump()), settings.model_dump_json()]
    for text in shown:
        assert KEY not in text
        assert "AccountKey" not in text
    lines = {line.name: line.value for line in explain_settings(settings)}
    assert lines["connection"] == "********"
    assert lines["aliases"] == "other=********, third=********"


WRONG_PLACES = [
    *("endpoint", "queue", "error_queue", "delays_table", "account_name", "connection_name", "client_id"),
    *(
        "table_url",
        "queue_url",
        "blob_url",
        "aliases",
        "envelopes",
        "lookahead",
        "number_of_retries",
        "guarantee",
    ),
    "disable_delayed_delivery",
]


@pytest.mark.parametrize("name", WRONG_PLACES)
def test_a_secret_that_was_put_into_the_wrong_setting_is_never_echoed(environ, name):
    for secret in (STRING, SAS, f'{{"other": "{STRING}"', f'{{"other": ["{STRING}"]}}', f'["{STRING}"]'):
        environ[f"POSTDATE_{name.upper()}"] = secret
        try:
            seen = str(explain_settings(load_settings()))
        except ConfigurationError as error:
            seen = f"{error} {error!r}"
        assert "c2Vj" not in seen


@pytest.mark.parametrize(
    "name", ["queue", "error_queue", "delays_table", "account_name", "table_url", "lookahead", "guarantee"]
)
def test_pydantics_own_error_does_not_echo_it_either(name):
    with pytest.raises(ValueError, match=name) as refused:
        Settings(**{name: SAS})
    assert "c2Vj" not in f"{refused.value} {refused.value!r}"


def test_a_connection_string_in_place_of_an_account_name_is_refused_with_the_way_out(environ):
    environ["POSTDATE_ACCOUNT_NAME"] = STRING
    with pytest.raises(ConfigurationError, match="a connection string belongs into POSTDATE_CONNECTION"):
        load_settings()
    for name, value in (
        ("AzureWebJobsStorage__accountName", STRING),
        ("AzureWebJobsStorage__queueServiceUri", SAS),
    ):
        environ.clear()
        environ[name] = value
        with pytest.raises(ConfigurationError, match="belongs into") as refused:
            load_settings().account()
        assert str(refused.value).startswith("AzureWebJobsStorage__")
        assert "c2Vj" not in str(refused.value)


def test_an_alias_that_is_neither_is_refused_without_showing_it():
    with pytest.raises(ConfigurationError, match="alias 'other': not an account's name") as refused:
        load_settings(aliases={"other": "Some-Secret"}).alias_accounts()
    assert "Some-Secret" not in str(refused.value)
