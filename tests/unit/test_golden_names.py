"""Names of tables, queues and addresses as .NET endpoints make them, by the golden file."""

import re

import pytest

from postdate.errors import ConfigurationError, InvalidDestination
from postdate.model.names import (
    check_queue,
    delays_table,
    legacy_queue_name,
    queue_for_endpoint,
    split_address,
)
from postdate.settings import Settings


def test_the_delays_table_is_named_after_the_endpoint_exactly_as_given(golden):
    for case in golden["table_names"]:
        assert case["endpoint_name"].encode().hex() == case["utf8_hex"]
        assert delays_table(case["endpoint_name"]) == case["table_and_container"] == f"delays{case['sha1']}"


def test_an_endpoint_whose_dots_were_replaced_has_another_table(golden):
    trap = golden["legacy_migration_to_asq"]["sqlp_escaped_name_trap"]
    assert delays_table(trap["real_endpoint"]) == trap["table_the_endpoint_uses"]
    assert delays_table(trap["name_listed_by_the_tool"]) == trap["table_the_tool_looks_for"]


def test_an_override_is_taken_in_lower_case_or_refused(golden):
    for case in golden["table_name_override"]:
        override = case["input"]
        if override is None:  # .NET refuses to be given none; for us it means that there is no override
            assert delays_table("Contoso.Orders", None) == delays_table("Contoso.Orders")
        elif case["accepted"]:
            assert delays_table("Contoso.Orders", override) == case["result"]
        else:
            with pytest.raises(ConfigurationError, match="table name"):
                delays_table("Contoso.Orders", override)


def test_an_override_may_not_end_in_a_newline_although_dotnet_lets_one_through():
    with pytest.raises(ConfigurationError):
        delays_table("Contoso.Orders", "MyEndpointDelays\n")


def test_our_own_queue_is_what_the_usual_sanitizer_of_version_8_makes(golden):
    for case in golden["queue_sanitising"]:
        sanitised = case["v8_plus_dot_to_dash_sanitizer"]
        if len(sanitised) <= 63:
            assert queue_for_endpoint(case["name"]) == sanitised
        else:  # the sanitizer makes a name that the service refuses; we refuse to make it
            with pytest.raises(ConfigurationError, match="POSTDATE_QUEUE"):
                queue_for_endpoint(case["name"])


def test_a_name_that_version_8_leaves_alone_is_refused_with_the_sanitised_one_as_hint(golden):
    for case in golden["queue_sanitising"]:
        with pytest.raises(InvalidDestination) as refused:
            check_queue(case["v8_plus_default"])
        if len(case["name"]) <= 63:
            assert f"did you mean {case['v8_plus_dot_to_dash_sanitizer']!r}?" in str(refused.value)


def test_queue_names_of_version_7_are_made_as_it_made_them(golden):
    for case in golden["queue_sanitising"]:
        name = case["name"]
        assert legacy_queue_name(name) == case["v7_md5"]
        assert legacy_queue_name(name, digest="sha1") == case["v7_sha1"]
        assert legacy_queue_name(name, sanitised_first=True) == case["documented_md5"]
        assert legacy_queue_name(name, digest="sha1", sanitised_first=True) == case["documented_sha1"]


def test_addresses_are_split_at_the_first_at_sign(golden):
    for case in golden["addresses"]:
        # A connection string is allowed for replies of old endpoints only, and we send none.
        if case.get("error") or case.get("error_unless_reply"):
            with pytest.raises(InvalidDestination):
                split_address(case["text"])
        else:
            address = split_address(case["text"])
            assert (address.queue, address.alias) == (case["queue"], case["alias"])
            assert str(address) == case.get("renders_as", case["text"])


def test_the_queues_of_the_timeout_manager_are_the_endpoints_with_a_suffix(golden):
    queues = golden["timeout_manager_headers"]
    assert queue_for_endpoint("Contoso.Orders-Timeouts") == queues["sent_to_queue"]
    assert queue_for_endpoint("Contoso.Orders-TimeoutsDispatcher") == queues["dispatch_request_queue"]


def test_failed_messages_go_to_the_queue_that_dotnet_uses_by_default(golden):
    assert Settings.model_fields["error_queue"].default == golden["error_forward"]["destination"]


def test_names_made_for_version_7_are_names_that_the_service_takes(golden):
    for case in golden["queue_sanitising"]:
        for made in (case["v7_md5"], case["v7_sha1"], case["documented_md5"], case["documented_sha1"]):
            assert re.fullmatch(r"[a-z0-9-]{3,63}", made)
            assert check_queue(made) == made
