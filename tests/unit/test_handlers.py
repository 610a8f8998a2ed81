"""Registering handlers, finding the one for a message, and turning its body into what it takes."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from postdate import MessageContext
from postdate.engine.handlers import Handlers
from postdate.errors import ConfigurationError, NoHandler, UnreadableBody
from postdate.model import headers as h
from postdate.model.typed_body import decode_body, enclosed_types, simple_name


@dataclass
class Place:
    number: int


class Ship(pydantic.BaseModel):
    number: int


class Pay(msgspec.Struct):
    number: int


def handlers_of(*functions, timeouts=()):
    handlers = Handlers()
    for function in functions:
        handlers.add(function, None, (), timeouts=False)
    for function in timeouts:
        handlers.add(function, None, (), timeouts=True)
    return handlers


async def on_place(order: Place): ...
async def on_ship(order: Ship, context): ...
async def on_bytes(body: bytes): ...
def on_untyped(body): ...
async def on_state(state: Pay): ...


OURS = f"{Place.__module__}.Place"


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (OURS, on_place),
        (
            "Contoso.Orders.Place, Contoso.Orders, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",
            on_place,
        ),
        ("Contoso.Orders+Ship", on_ship),
        ("Contoso.Special;Contoso.Ship", on_ship),
        ("Contoso.Other", on_bytes),
        (None, on_bytes),
        ("", on_bytes),
    ],
)
def test_a_message_finds_its_handler(types, expected):
    found = handlers_of(on_place, on_ship, on_bytes).find({h.ENCLOSED_TYPES: types})
    assert found.function is expected


def test_a_message_without_a_type_goes_to_the_only_handler():
    assert handlers_of(on_place).find({}).function is on_place
    with pytest.raises(NoHandler, match="none given"):
        handlers_of(on_place, on_ship).find({})


def test_a_type_that_nobody_takes_names_those_that_are_taken():
    with pytest.raises(NoHandler, match=r"Contoso\.Other.*Place"):
        handlers_of(on_place).find({h.ENCLOSED_TYPES: "Contoso.Other"})


def test_a_class_name_of_two_handlers_decides_nothing():
    handlers = Handlers()
    handlers.add(on_bytes, int, ["A.Place"], timeouts=False)
    handlers.add(on_untyped, float, ["B.Place"], timeouts=False)
    assert handlers.find({h.ENCLOSED_TYPES: "B.Place"}).function is on_untyped
    with pytest.raises(NoHandler):
        handlers.find({h.ENCLOSED_TYPES: "C.Place"})


def test_timeouts_go_to_timeout_handlers_alone():
    handlers = handlers_of(on_bytes, timeouts=[on_state])
    assert handlers.find({h.IS_SAGA_TIMEOUT: "True"}).function is on_state
    assert handlers.find({}).function is on_bytes
    with pytest.raises(NoHandler, match="timeout handler"):
        handlers_of(on_bytes).find({h.IS_SAGA_TIMEOUT: "True"})


@pytest.mark.parametrize(
    ("one", "two"),
    [(on_place, on_place), (on_bytes, on_untyped)],
)
def test_a_message_has_one_handler(one, two):
    with pytest.raises(ConfigurationError, match="a message has one handler"):
        handlers_of(one, two)


def no_arguments(): ...
def three_arguments(a, b, c): ...
def only_keywords(*, body): ...


@pytest.mark.parametrize("function", [no_arguments, three_arguments, only_keywords])
def test_a_function_that_can_not_be_called_is_refused(function):
    with pytest.raises(ConfigurationError, match=r"\(message\) or \(message, context\)"):
        handlers_of(function)


def test_a_type_that_can_not_be_found_is_refused():
    def unknown(order: "Missing"): ...  # noqa: F821 - that is the point

    with pytest.raises(ConfigurationError, match=r"@endpoint\.handler\(PlaceOrder\)"):
        handlers_of(unknown)


@pytest.mark.parametrize(
    ("body", "wanted", "expected"),
    [
        (b"\x00\xff", bytes, b"\x00\xff"),
        ("grün".encode(), str, "grün"),
        (b'{"number": 7}', Place, Place(7)),
        (b'{"number": 7}', Ship, Ship(number=7)),
        (b'{"number": 7}', Pay, Pay(7)),
        (b'{"number": 7}', dict, {"number": 7}),
        (b"[1, 2]", Any, [1, 2]),
        (b"[1, 2]", object, [1, 2]),
        (b"[1, 2]", list[int], [1, 2]),
        (b'\xef\xbb\xbf{"number": 7}', Place, Place(7)),
        (b'\xef\xbb\xbf{"number": 7}', Ship, Ship(number=7)),
    ],
)
def test_a_body_becomes_what_its_handler_takes(body, wanted, expected):
    assert decode_body(body, wanted) == expected


@pytest.mark.parametrize("wanted", [Place, Ship, Pay, dict, list[int], int])
@pytest.mark.parametrize("body", [b"", b"{", b'"text"', b'{"number": "x"}', b"\xff"])
def test_a_body_of_another_type_is_told_in_one_line(body, wanted):
    if wanted is dict and body == b'{"number": "x"}':
        assert decode_body(body, wanted) == {"number": "x"}
        return
    with pytest.raises(UnreadableBody) as caught:
        decode_body(body, wanted)
    assert "\n" not in str(caught.value)
    assert f"{len(body)} bytes" in str(caught.value)


def test_text_that_is_none_is_told():
    with pytest.raises(UnreadableBody, match="str"):
        decode_body(b"\xff", str)


def test_type_names_lose_what_only_dotnet_needs():
    assert enclosed_types("A.B, Assembly, Version=1;C.D+E") == ["A.B", "C.D+E"]
    assert enclosed_types(None) == enclosed_types(" ; ") == []
    assert [simple_name(name) for name in ("A.B.C", "A+B", "C")] == ["C", "B", "C"]


async def context_first(context: MessageContext, order: Place): ...


def test_a_context_in_the_place_of_the_message_is_refused():
    with pytest.raises(ConfigurationError, match=r"context_first has its context first"):
        handlers_of(context_first)


@pytest.mark.parametrize(
    ("wanted", "names"), [(None, "Contoso.Place"), ("Contoso.Place", ()), (Place, "Contoso.Place")]
)
def test_a_text_in_the_place_of_names_is_refused(wanted, names):
    with pytest.raises(ConfigurationError, match=r"names=\['Contoso\.Place'\]"):
        Handlers().add(on_place, wanted, names, timeouts=False)
