"""Bodies: what users pass becomes bytes, or is refused in one line; never quietly something else."""

import array
import dataclasses
import enum
import json
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_cases import examples, texts

from postdate.errors import InvalidBody
from postdate.model.message import BYTES_TYPE, JSON_TYPE, TEXT_TYPE, EncodedBody, encode_body

NAN = float("nan")
RECURSIVE: list[object] = []
RECURSIVE.append(RECURSIVE)


@dataclasses.dataclass
class Invoice:
    number: int
    scan: bytes = b""
    total: float = 0.0


class Order(pydantic.BaseModel):
    number: int
    note: str | None = None


class Parcel(msgspec.Struct):
    number: int
    weight: float | None = None


class Colour(str, enum.Enum):  # noqa: UP042 - the older kind, which formats as its member's name
    RED = "red"


@given(st.binary())
@examples(20)
def test_bytes_are_taken_as_they_are(body):
    for kind in (bytes, bytearray, memoryview):
        assert encode_body(kind(body)) == EncodedBody(body, BYTES_TYPE)


@given(texts)
@examples(20)
def test_text_becomes_utf_8(body):
    assert encode_body(body) == EncodedBody(body.encode(), TEXT_TYPE)


def test_a_member_of_a_text_enum_is_its_text():
    assert encode_body(Colour.RED) == EncodedBody(b"red", TEXT_TYPE)
    assert encode_body({Colour.RED: Colour.RED}).content == b'{"red":"red"}'


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
).filter(lambda value: not isinstance(value, str))


@given(json_values)
@examples(40)
def test_json_values_become_json(body):
    encoded = encode_body(body)
    assert json.loads(encoded.content) == body
    assert (encoded.content_type, encoded.type_name) == (JSON_TYPE, None)


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (Invoice(1, b"\x00\xff", 2.5), {"number": 1, "scan": "AP8=", "total": 2.5}),
        (Order(number=1), {"number": 1, "note": None}),
        (Parcel(1), {"number": 1, "weight": None}),
    ],
)
def test_typed_bodies_become_json_under_their_type_name(body, content):
    encoded = encode_body(body)
    assert json.loads(encoded.content) == content
    assert encoded.content_type == JSON_TYPE
    assert encoded.type_name == f"{__name__}.{type(body).__name__}"


@pytest.mark.parametrize(
    ("body", "content"),
    [
        ({1}, [1]),
        (frozenset({"a"}), ["a"]),
        ((1, 2), [1, 2]),
        ({1: 2}, {"1": 2}),
        (datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00Z"),
        (timedelta(seconds=90), "PT90S"),
        (uuid.UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (Decimal("1.50"), "1.50"),
        ([b"\x00"], ["AA=="]),
        (2**80, 2**80),
        (None, None),
        ("null", "null"),
    ],
)
def test_other_usual_values_become_their_usual_json(body, content):
    expected = content if not isinstance(body, str) else body
    text = encode_body(body).content.decode()
    assert (text if isinstance(body, str) else json.loads(text)) == expected


@pytest.mark.parametrize(
    "body",
    [
        NAN,
        float("inf"),
        -float("inf"),
        [1, NAN],
        {"a": {"b": (NAN,)}},
        {"null": None, "x": [None, {"y": float("inf")}]},
        Invoice(1, total=NAN),
        [Invoice(1, total=float("inf"))],
        Parcel(1, weight=NAN),
        {NAN},
    ],
    ids=repr,
)
def test_a_number_that_json_does_not_have_is_refused_rather_than_nulled(body):
    refused(body, "JSON has no (nan|-?inf)")


def test_a_null_that_was_meant_is_no_number_that_is_missing():
    assert encode_body({"a": None, "b": ["null", 1.5]}).content == b'{"a":null,"b":["null",1.5]}'


def released():
    view = memoryview(b"x")
    view.release()
    return view


class Failing(pydantic.BaseModel):
    anything: object = None


@pytest.mark.parametrize(
    "body",
    [
        object(),
        1j,
        {(1, 2): 3},
        {object(): 1},
        RECURSIVE,
        [[], {"a": RECURSIVE}],
        "half \ud800",
        {"a": "\ud800"},
        Invoice,
        Order,
        Failing(anything=object()),
        array.array("b", [1]),
        range(3),
        iter([]),
        lambda: None,
        released(),
        Exception("a\nb"),
    ],
    ids=lambda body: type(body).__name__,
)
def test_what_cannot_become_bytes_is_refused(body):
    refused(body, "pass bytes, str, a JSON-able value, a dataclass or a pydantic model")


def test_a_large_body_is_taken():
    ten_million = b"x" * 10_000_000
    assert encode_body(ten_million).content == ten_million
    assert len(encode_body({"a": "x" * 10_000_000}).content) == 10_000_008


def refused(body, why):
    with pytest.raises(InvalidBody, match=why) as error:
        encode_body(body)
    assert "\n" not in str(error.value)
    assert f"a body of type {type(body).__name__} can't be encoded" in str(error.value)
