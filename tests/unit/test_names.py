"""Names that users give: taken as they are or refused with the way out, and never echoed where secret."""

import enum
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples, names, queue_names, texts

from postdate.errors import ConfigurationError, InvalidDestination
from postdate.model.names import (
    Address,
    check_queue,
    delays_table,
    destination,
    legacy_queue_name,
    queue_for_endpoint,
    split_address,
)

KEY = "c2VjcmV0LWtleQ=="
STRING = f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={KEY};EndpointSuffix=core.windows.net"
SAS = "https://acme.queue.core.windows.net/orders?sv=2025-01-05&sig=c2VjcmV0LWtleQ%3D%3D"


class Queue(str, enum.Enum):  # noqa: UP042 - the older kind, which formats as its member's name
    ORDERS = "orders"


@given(queue_names)
@examples(25)
def test_a_valid_queue_name_is_taken_as_it_is(name):
    assert check_queue(name) == name
    assert destination(name) == Address(name)
    assert queue_for_endpoint(name) == name
    assert legacy_queue_name(name) == name


@given(queue_names, names)
@examples(25)
def test_an_address_is_read_back_as_it_is_written(queue, alias):
    address = Address(queue, re.sub("[=;]", "", alias))
    assert split_address(str(address)) == address


@given(texts | st.text(alphabet="ab-.@A", max_size=8))
@examples(75)
def test_any_text_is_a_valid_destination_or_refused_in_one_line(text):
    try:
        queue = destination(text).queue
    except InvalidDestination as error:
        refusal = str(error)
    else:
        assert re.fullmatch("[a-z0-9-]{3,63}", queue)
        assert not re.search("^-|-$|--", queue)
        return
    assert len(refusal.splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["", "ab", "a" * 64, "a" * 10_000_000], ids=lambda name: f"{len(name)} characters"
)
def test_a_queue_name_of_the_wrong_length_is_refused_with_the_limits(name):
    with pytest.raises(InvalidDestination, match="it takes 3 to 63") as error:
        check_queue(name)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("Orders", "orders"),
        ("contoso.orders", "contoso-orders"),
        ("a--b", "a-b"),
        ("-orders-", "orders"),
        (" orders", "orders"),
        ("orders\n", "orders"),
    ],
)
def test_a_queue_name_that_is_nearly_right_is_refused_with_the_right_one(name, better):
    with pytest.raises(InvalidDestination, match=f"did you mean '{better}'"):
        check_queue(name)


@pytest.mark.parametrize("name", ["...", "äöü", "-a-"])
def test_a_queue_name_that_is_far_off_is_refused_without_a_guess(name):
    with pytest.raises(InvalidDestination, match=r"single inner dashes$"):
        check_queue(name)


@pytest.mark.parametrize(
    "text", [STRING, SAS, f"@{STRING}", f"orders@{STRING}", f"{STRING}@orders", f"{KEY}@a", f"orders@{KEY}"]
)
def test_a_key_in_an_address_is_refused_and_never_echoed(text):
    with pytest.raises(InvalidDestination, match="connection string; register it as an alias") as error:
        destination(text)
    assert "secret" not in str(error.value)
    assert "c2Vj" not in str(error.value)


@pytest.mark.parametrize("name", [STRING, SAS, KEY])
def test_a_key_in_the_place_of_a_name_is_never_echoed(name):
    for check in (check_queue, lambda text: delays_table("", text)):
        with pytest.raises((InvalidDestination, ConfigurationError)) as error:
            check(name)
        assert "c2Vj" not in str(error.value)


@pytest.mark.parametrize("text", [None, 5, b"orders", ["orders"], Ellipsis], ids=repr)
def test_a_destination_that_is_no_text_is_refused(text):
    with pytest.raises(InvalidDestination, match="is not text but"):
        destination(text)


def test_a_member_of_a_text_enum_is_the_queue_it_names():
    assert str(destination(Queue.ORDERS)) == "orders"
    assert type(destination(Queue.ORDERS).queue) is str


@given(names)
@examples(30)
def test_any_endpoint_name_has_a_table_that_the_service_takes(endpoint):
    assert re.fullmatch("delays[0-9a-f]{40}", delays_table(endpoint))


def test_names_of_endpoints_are_not_trimmed_or_lower_cased():
    tables = {delays_table(name) for name in ("Orders", "orders", " orders", "orders ", "ORDERS")}
    assert len(tables) == 5


def test_an_endpoint_without_a_name_is_refused():
    with pytest.raises(ConfigurationError, match="POSTDATE_ENDPOINT"):
        delays_table("")


def test_an_endpoint_name_that_is_no_unicode_is_refused():
    with pytest.raises(ConfigurationError, match="half of a surrogate pair"):
        delays_table("\ud800")


@pytest.mark.parametrize("override", ["tables", "Tables"])
def test_the_one_table_name_that_the_service_keeps_for_itself_is_refused(override):
    with pytest.raises(ConfigurationError, match="not a table name"):
        delays_table("Orders", override)


@pytest.mark.parametrize("endpoint", ["", "x", "...", "日本語", "Zürich", "a b", "a" * 64, "\n"])
def test_an_endpoint_that_gives_no_queue_name_is_refused_with_the_way_out(endpoint):
    with pytest.raises(ConfigurationError, match="set POSTDATE_QUEUE"):
        queue_for_endpoint(endpoint)


@given(texts)
@examples(30)
def test_a_name_of_version_7_is_never_too_long(text):
    for digest in ("md5", "sha1"):
        for sanitised_first in (False, True):
            made = legacy_queue_name(text * 6, digest=digest, sanitised_first=sanitised_first)
            assert len(made) <= 63
            assert re.fullmatch("[a-z0-9-]*", made)
            assert "--" not in made
