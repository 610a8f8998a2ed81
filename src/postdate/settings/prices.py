"""The table of list prices: ours, or a file of the same form that POSTDATE_PRICES names."""

import functools
from importlib.resources import files
from math import inf
from pathlib import Path

import msgspec

from postdate.errors import ConfigurationError
from postdate.model.prices import FREE, PriceTable
from postdate.model.requests import RequestKind

_OURS = "list_prices.toml"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    about: str
    currency: str
    price: dict[str, float]
    meter: dict[str, dict[str, str]]


def load_prices(path: str | None) -> PriceTable:
    """The prices in a file; None: those that come with Postdate.

    Raises:
        ConfigurationError: the file can't be read, or is not such a table; one line says where.
    """
    ours = _list_prices()
    if path is None:
        return ours
    try:
        return _checked(_table(Path(path).read_text(encoding="utf-8")), ours)
    except OSError as error:
        raise ConfigurationError(f"POSTDATE_PRICES={path}: {error.strerror}") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"POSTDATE_PRICES={path} is not a table of prices: {error}") from None


def list_prices() -> str:
    """The table that comes with Postdate, as text to start one's own from."""
    return files(__package__).joinpath(_OURS).read_text(encoding="utf-8")


@functools.cache
def _list_prices() -> PriceTable:
    return _table(list_prices())


def _table(text: str) -> PriceTable:
    file = msgspec.toml.decode(text, type=_File)
    return PriceTable(file.about, file.currency, file.price, _kinds_of(file))


def _checked(table: PriceTable, ours: PriceTable) -> PriceTable:
    for meter, price in table.prices.items():
        if not 0 <= price < inf:
            raise ValueError(f"[price] {meter!r} is {price}; write what 10,000 requests cost")
    for kind, meter in table.meters.items():
        if kind not in ours.meters:
            raise ValueError(f"[meter.{kind.service}] has {kind.operation!r}, which is no operation of ours")
        if meter != FREE and meter not in table.prices:
            raise ValueError(f"[meter.{kind.service}] {kind.operation!r} is {meter!r}, which [price] lacks")
    return table


def _kinds_of(file: _File) -> dict[RequestKind, str]:
    return {
        RequestKind(service, operation): meter
        for service, operations in file.meter.items()
        for operation, meter in operations.items()
    }


__all__ = ["list_prices", "load_prices"]
