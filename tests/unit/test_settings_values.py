"""Settings: each value is checked when it is loaded, and a refusal names the setting, what is wrong and why."""

from datetime import timedelta

import pytest

from postdate.errors import ConfigurationError
from postdate.model.names import delays_table
from postdate.settings import BackendName, Guarantee, LargeBodies, LeaseTarget, Settings, load_settings


@pytest.fixture(autouse=True)
def environ(monkeypatch):
    """An environment of our own."""
    variables: dict[str, str] = {}
    monkeypatch.setattr("os.environ", variables)
    return variables


DURATIONS = [name for name, field in Settings.model_fields.items() if field.annotation is timedelta]


def test_there_are_durations_to_test():
    assert len(DURATIONS) >= 8


@pytest.mark.parametrize("text", ["30", "30s", "PT30S", "00:00:30", "0.5m"])
def test_every_duration_takes_every_form(environ, text):
    environ |= {f"POSTDATE_{name.upper()}": text for name in DURATIONS}
    settings = load_settings()
    assert {getattr(settings, name) for name in DURATIONS} == {timedelta(seconds=30)}


@pytest.mark.parametrize("name", DURATIONS)
def test_every_duration_refuses_what_would_break_later(environ, name):
    for text in ("soon", "-1s", "nan", "inf", "999999999d", "1e300", "5 s\n6"):
        environ[f"POSTDATE_{name.upper()}"] = text
        assert refusal().startswith(f"POSTDATE_{name.upper()}: ")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("lease_duration", "14s", "must be whole seconds, 15 to 60; it is 14s"),
        ("lease_duration", "61", "must be whole seconds, 15 to 60; it is 1m1s"),
        ("lease_duration", "15.5", "must be whole seconds, 15 to 60; it is 15.5s"),
        ("lookahead", "6d1s", "must be from 0 to 6 days (a queue hides for 7); it is 6d1s"),
        ("idle_interval", "0", "must be more than zero, at most 3650 days; it is 0s"),
        ("retry_maximum", "3651d", "must be more than zero, at most 3650 days; it is 3651d"),
        ("payload_retention", "3651d", "must be from 0 to 3650 days; it is 3651d"),
        ("visibility_timeout", "0.5", "must be from 1 second to 7 days; it is 0.5s"),
        ("visibility_timeout", "8d", "must be from 1 second to 7 days; it is 8d"),
        ("number_of_retries", "-1", "must be greater than or equal to 0; it is '-1'"),
        (
            "number_of_retries",
            "many",
            "must be a valid integer, unable to parse string as an integer; it is 'many'",
        ),
        ("send_concurrency", "0", "must be greater than or equal to 1; it is '0'"),
        ("receive_batch", "33", "must be less than or equal to 32; it is '33'"),
        ("unremoved_limit", "1", "must be greater than or equal to 2; it is '1'"),
        ("guarantee", "exactly_once", "must be 'at_least_once' or 'at_most_once'; it is 'exactly_once'"),
        ("lease_target", "table", "must be 'container' or 'blob'; it is 'table'"),
        ("backend", "azure", "must be 'azure_storage' or 'memory'; it is 'azure'"),
        ("large_bodies", "cut", "must be 'claim-check' or 'refuse'; it is 'cut'"),
        (
            "queue",
            "Orders",
            "queue name 'Orders' is not valid: lower-case letters, digits, single inner dashes; did you mean 'orders'?",
        ),
        ("error_queue", "e@@", "queue name 'e' has 1 characters; it takes 3 to 63"),
        (
            "delays_table",
            "has-dash",
            "the delays table 'has-dash' is not a table name: it takes 3 to 63 letters and digits, the first a letter",
        ),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(environ, name, text, why):
    environ[f"POSTDATE_{name.upper()}"] = text
    assert refusal() == f"POSTDATE_{name.upper()}: {why}"


def test_a_value_that_code_passed_is_refused_under_its_name_in_code():
    assert refusal(lease_duration=5) == "lease_duration: must be whole seconds, 15 to 60; it is 5s"
    assert refusal(queue="") == "queue: queue name '' has 0 characters; it takes 3 to 63"
    assert refusal(delays_table="").startswith("delays_table: the delays table ''")
    assert refusal(error_queue=None, endpoint="\ud800").startswith("endpoint: ")


def test_limits_are_inclusive():
    settings = load_settings(
        lease_duration=60, lookahead="6d", receive_batch=32, unremoved_limit=2, visibility_timeout="7d"
    )
    assert settings.lease_duration == timedelta(minutes=1)
    assert settings.lookahead == timedelta(days=6)
    assert load_settings(lookahead=0, payload_retention=0).lookahead == timedelta(0)


def test_choices_are_taken_by_their_text():
    settings = load_settings(
        guarantee="at_most_once", lease_target="blob", backend="memory", large_bodies="refuse"
    )
    assert settings.guarantee is Guarantee.AT_MOST_ONCE
    assert settings.lease_target is LeaseTarget.BLOB
    assert settings.backend is BackendName.MEMORY
    assert settings.large_bodies is LargeBodies.REFUSE


def test_table_and_queue_are_made_of_the_endpoint_unless_named():
    settings = load_settings(endpoint="Contoso.Orders")
    assert settings.table_name == delays_table("Contoso.Orders")
    assert settings.own_queue == "contoso-orders"
    named = load_settings(endpoint="Contoso.Orders", queue="mine", delays_table="MyDelays")
    assert (named.table_name, named.own_queue) == ("mydelays", "mine")


def test_an_endpoint_is_needed_only_for_what_is_made_of_it():
    settings = load_settings()
    with pytest.raises(ConfigurationError, match="POSTDATE_ENDPOINT"):
        _ = settings.table_name
    with pytest.raises(ConfigurationError, match="POSTDATE_QUEUE"):
        _ = settings.own_queue
    assert load_settings(delays_table="delays").table_name == "delays"


def test_an_error_queue_may_be_in_another_account():
    assert load_settings(error_queue="error@central").error_queue == "error@central"


def test_the_defaults_are_those_of_dotnet_where_it_has_them():
    settings = load_settings()
    assert settings.lease_duration == timedelta(seconds=15)
    assert settings.lease_target is LeaseTarget.CONTAINER
    assert settings.guarantee is Guarantee.AT_LEAST_ONCE
    assert settings.error_queue == "error"
    assert settings.visibility_timeout == timedelta(seconds=30)
    assert settings.receive_batch == 32


def refusal(**given: object) -> str:
    with pytest.raises(ConfigurationError) as error:
        load_settings(**given)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


@pytest.mark.parametrize("name", ["guarantee", "immediate_retries", "classify_errors"])
def test_a_key_in_the_place_of_a_plain_value_is_not_repeated(environ, name):
    environ[f"POSTDATE_{name.upper()}"] = "AccountName=a;AccountKey=c2VjcmV0"
    assert "c2VjcmV0" not in refusal()
