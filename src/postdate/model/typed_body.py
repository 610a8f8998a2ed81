"""A received body as the type that a handler asks for."""

from typing import Any

import msgspec

from postdate.errors import UnreadableBody
from postdate.model.jsontext import read

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def decode_body(body: bytes, wanted: Any) -> Any:
    """Turn bytes into what the handler takes.

    Args:
        body: as received.
        wanted: bytes (as they are), str (UTF-8), a pydantic model, a dataclass or another type that msgspec
            reads from JSON; Any, object and dict take what the JSON holds.

    Raises:
        UnreadableBody: the bytes are not of that type.
    """
    if wanted is bytes:
        return body
    text = body.removeprefix(_BYTE_ORDER_MARK)
    try:
        if wanted is str:
            return text.decode()
        if hasattr(wanted, "model_validate_json"):
            return wanted.model_validate_json(text)
        if wanted is Any or wanted is object:
            return read(text)
        return msgspec.json.decode(text, type=wanted)
    except Exception as error:
        # pydantic's errors quote the body over many lines; bodies don't belong into one-line errors.
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise UnreadableBody(
            f"a body of {len(body):,} bytes can't be read as {type_name(wanted)} ({reason})"
        ) from error


def type_name(wanted: Any) -> str:
    """The name under which a type travels in `NServiceBus.EnclosedMessageTypes`."""
    module, name = getattr(wanted, "__module__", ""), getattr(wanted, "__qualname__", str(wanted))
    return f"{module}.{name}" if module and module != "builtins" else name


def enclosed_types(header: str | None) -> list[str]:
    """The type names of a message, most concrete first, without .NET's assembly names."""
    return [name for entry in (header or "").split(";") if (name := entry.partition(",")[0].strip())]


def simple_name(name: str) -> str:
    """The last part of a type's name: `PlaceOrder` of `Contoso.PlaceOrder` and `Outer+PlaceOrder`."""
    return name.replace("+", ".").rpartition(".")[2]
