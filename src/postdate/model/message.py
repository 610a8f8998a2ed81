"""A message: an id, headers and a body of bytes; and how a body that users pass becomes bytes."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from postdate.errors import InvalidBody, InvalidHeader, MessageTooLarge, shown
from postdate.model.headers import Headers
from postdate.model.jsontext import longest_map, write_map
from postdate.model.limits import STRING_PROPERTY_UNITS

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain"
BYTES_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Message:
    """What travels. `message_id` is stable across deliveries: consumers de-duplicate on it."""

    message_id: str
    headers: Headers
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class EncodedBody:
    """Bytes, their content type, and the type name of a typed body."""

    content: bytes
    content_type: str
    type_name: str | None = None


def encode_body(body: Any) -> EncodedBody:
    """Turn what the caller passed into bytes.

    bytes as they are; str as UTF-8; pydantic models, dataclasses and JSON-able values as JSON. In JSON,
    bytes become base64 text and sets become lists.

    Raises:
        InvalidBody: none of these, or a number that JSON does not have (NaN, infinity).
    """
    try:
        if isinstance(body, bytes | bytearray | memoryview):
            return EncodedBody(bytes(body), BYTES_TYPE)
        if isinstance(body, str):
            return EncodedBody(body.encode(), TEXT_TYPE)
        if hasattr(body, "model_dump_json"):
            return EncodedBody(body.model_dump_json().encode(), JSON_TYPE, _type_name(body))
        typed = dataclasses.is_dataclass(body) or isinstance(body, msgspec.Struct)
        content = msgspec.json.encode(body)
        if b"null" in content:  # which msgspec writes for NaN and infinity too
            _refuse_unwritable_numbers(msgspec.to_builtins(body))
        return EncodedBody(content, JSON_TYPE, _type_name(body) if typed else None)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidBody(
            f"a body of type {type(body).__name__} can't be encoded ({error}); pass bytes, str, "
            "a JSON-able value, a dataclass or a pydantic model"
        ) from None


def _refuse_unwritable_numbers(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no {value}")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set | frozenset):
        return
    for member in value:
        _refuse_unwritable_numbers(member)


def _type_name(body: object) -> str:
    kind = type(body)
    return f"{kind.__module__}.{kind.__qualname__}"


def check_headers(headers: Mapping[str, str | None] | None) -> Headers:
    """A copy of the caller's headers.

    Raises:
        InvalidHeader: a name or value is not text, or can't be encoded.
    """
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise InvalidHeader(f"headers must be a mapping of text to text, not {type(headers).__name__}")
    checked: Headers = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not name:
            raise InvalidHeader(f"header name {shown(name)} is not text; use a non-empty str")
        if value is not None and not isinstance(value, str):
            raise InvalidHeader(
                f"header {shown(name)} is not text but {type(value).__name__}; pass a str or None"
            )
        for text in (name, value or ""):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidHeader(
                    f"header {shown(name)} holds half of a surrogate pair; it must be valid Unicode"
                ) from None
        # The text itself: str() of a str enum's member is the member's name.
        checked[str.__str__(name)] = None if value is None else str.__str__(value)
    return checked


def check_headers_size(headers: Headers) -> None:
    """Refuse headers whose JSON would not fit into a row.

    Raises:
        MessageTooLarge: they are longer than a string property (32,768 characters).
    """
    if longest_map(headers) <= STRING_PROPERTY_UNITS:
        return
    units = len(write_map(headers))  # ASCII, so characters are UTF-16 units
    if units > STRING_PROPERTY_UNITS:
        raise MessageTooLarge(
            f"the headers take {units:,} characters as JSON; a row holds {STRING_PROPERTY_UNITS:,}. "
            "Move what is large into the body"
        )
