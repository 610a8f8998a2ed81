"""Headers that callers pass: text to text or None, copied, whole; everything else is refused by name."""

import enum
from collections import ChainMap, UserDict
from types import MappingProxyType

import pytest
from hypothesis import given
from unit_cases import examples, header_maps

from postdate.errors import InvalidHeader, MessageTooLarge
from postdate.model.jsontext import write_map
from postdate.model.limits import STRING_PROPERTY_UNITS
from postdate.model.message import check_headers, check_headers_size


class Colour(str, enum.Enum):  # noqa: UP042 - the older kind, which formats as its member's name
    RED = "red"


class Loud(str):
    """A str that shows itself in another way."""

    __slots__ = ()

    def __str__(self):
        return "LOUD"


@given(header_maps)
@examples(25)
def test_headers_are_copied_as_they_are(headers):
    checked = check_headers(headers)
    assert checked == headers
    assert list(checked) == list(headers)
    assert checked is not headers


@pytest.mark.parametrize("kind", [MappingProxyType, UserDict, ChainMap])
def test_any_mapping_will_do(kind):
    assert check_headers(kind({"a": "b", "n": None})) == {"a": "b", "n": None}


def test_no_headers_are_none():
    assert check_headers(None) == check_headers({}) == {}


def test_the_text_of_a_str_subclass_counts_not_how_it_shows_itself():
    checked = check_headers({Loud("name"): Loud("value"), Colour.RED: Colour.RED})
    assert checked == {"name": "value", "red": "red"}
    assert {type(text) for pair in checked.items() for text in pair} == {str}
    assert write_map(checked) == '{"name":"value","red":"red"}'


@pytest.mark.parametrize("headers", [["a"], "a=b", 5, [("a", "b")], Ellipsis], ids=repr)
def test_what_is_no_mapping_is_refused(headers):
    refused(headers, "headers must be a mapping of text to text, not")


@pytest.mark.parametrize("name", ["", None, 5, b"a", ("a",), "x" * 0], ids=repr)
def test_a_name_that_is_no_text_is_refused(name):
    refused({name: "v"}, "is not text; use a non-empty str")


@pytest.mark.parametrize("value", [5, 1.5, True, b"v", ["v"], {"a": "b"}, Ellipsis], ids=repr)
def test_a_value_that_is_no_text_is_refused_by_name_without_showing_it(value):
    refused({"Order": value}, f"header 'Order' is not text but {type(value).__name__}; pass a str or None")


@pytest.mark.parametrize("headers", [{"a": "x\ud800"}, {"\udc00": "x"}, {"\udc00": None}], ids=ascii)
def test_half_a_surrogate_pair_is_refused(headers):
    refused(headers, "holds half of a surrogate pair")


def test_a_refusal_is_one_short_line_whatever_the_name():
    for name in ("a\nb\u2028c", "x" * 10_000_000):
        with pytest.raises(InvalidHeader) as error:
            check_headers({name: 5})
        assert len(str(error.value).splitlines()) == 1
        assert len(str(error.value)) < 250


def test_headers_fit_a_row_to_the_character():
    frame = len('{"a":""}')
    check_headers_size({"a": "x" * (STRING_PROPERTY_UNITS - frame)})
    with pytest.raises(MessageTooLarge, match="32,769 characters as JSON; a row holds 32,768"):
        check_headers_size({"a": "x" * (STRING_PROPERTY_UNITS - frame + 1)})


def test_headers_are_measured_as_they_are_escaped():
    with pytest.raises(MessageTooLarge):
        check_headers_size({"a": "é" * (STRING_PROPERTY_UNITS // 6)})


def refused(headers, why):
    with pytest.raises(InvalidHeader, match=why) as error:
        check_headers(headers)
    assert len(str(error.value).splitlines()) == 1
