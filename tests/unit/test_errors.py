"""Errors are one line, say what to do, and survive the way to another process."""

import pickle

import pytest

from postdate import errors
from postdate.errors import DestinationNotFound, PostdateError, shown

ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PostdateError)]


@pytest.mark.parametrize("text", ["plain", "a\nb", "a\r\nb\n", "a\u2028b\x85c\x0bd"], ids=ascii)
def test_an_error_is_one_line_whatever_it_quotes(text):
    for kind in ALL:
        assert len(str(kind(text)).splitlines()) == 1
        assert "  " not in str(kind(text))


def test_an_error_without_text_has_none():
    assert str(PostdateError()) == ""


def test_an_error_is_the_same_in_another_process():
    for kind in ALL:
        error = kind("orders")
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert type(again) is kind
        assert str(again) == str(error)


def test_a_missing_destination_names_near_ones_and_how_to_create_it():
    error = DestinationNotFound("order", ["orders", "border"])
    assert str(error) == (
        "destination queue 'order' does not exist. Did you mean 'orders', 'border'? "
        "Create it with `postdate setup --queue order`."
    )
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (again.destination, again.near) == ("order", ("orders", "border"))
    assert "Did you mean" not in str(DestinationNotFound("order"))


def test_a_value_is_shown_in_a_line_of_bounded_length():
    assert shown("a\nb") == r"'a\nb'"
    assert shown("x" * 78) == "'" + "x" * 78 + "'"
    assert len(shown("x" * 10_000)) == 80
    assert shown("x" * 10_000).endswith("…")


def test_a_text_that_may_hold_a_key_is_not_shown():
    for secret in (
        "AccountKey=c2VjcmV0",
        "https://acme.queue.core.windows.net/?sig=c2VjcmV0",
        "c2VjcmV0LWtleQ==",
    ):
        assert shown(secret) == "…"
    assert shown({"a": 1}) == "{'a': 1}"
