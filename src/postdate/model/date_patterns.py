"""Date patterns of .NET as partition keys: an instant in UTC as text, whose order is time order.

Older endpoints file a timeout under its due time in such a pattern, `yyyyMMddHH` unless they were set
otherwise, and format it in the culture of their process. Here it is always invariant: Gregorian years, ASCII
digits. Only patterns whose text order is time order are taken, since due timeouts are found by a range of
keys (an older endpoint with another one misses some, too).
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from postdate.errors import ConfigurationError, shown

#: What older endpoints allow.
_CHARACTERS = re.compile(r"[A-Za-z0-9_-]{4,}")
#: A run of one of .NET's date specifiers, or any other character, which stands for itself.
_TOKEN = re.compile(r"([dfFghHKmMstyz])\1*|.")
_SPECIFIERS = frozenset("dfFghHKmMstyz")
#: From large to small, and zero-padded: so text order is time order.
_ORDER = ("yyyy", "MM", "dd", "HH", "mm", "ss")
#: .NET counts in ticks of 100 ns.
_FRACTION_DIGITS = 7


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """A pattern that was understood."""

    tokens: tuple[str, ...]

    def of(self, instant: datetime) -> str:
        """An aware instant in this pattern."""
        utc = instant.astimezone(UTC)
        values = {
            "yyyy": f"{utc.year:04d}",
            "MM": f"{utc.month:02d}",
            "dd": f"{utc.day:02d}",
            "HH": f"{utc.hour:02d}",
            "mm": f"{utc.minute:02d}",
            "ss": f"{utc.second:02d}",
        }
        fraction = f"{utc.microsecond:06d}0"
        return "".join(
            values.get(token, fraction[: len(token)] if token[0] == "f" else token) for token in self.tokens
        )


def partition_scope(pattern: str) -> PartitionScope:
    """Read a pattern.

    Raises:
        ConfigurationError: it is not one, or its text order is not time order.
    """
    tokens = tuple(match[0] for match in _TOKEN.finditer(pattern))
    fields = [token for token in tokens if token[0] in _SPECIFIERS]
    fraction = fields[len(_ORDER) :]
    known = (
        _CHARACTERS.fullmatch(pattern)
        and fields
        and tuple(fields[: len(_ORDER)]) == _ORDER[: len(fields)]
        and (not fraction or (len(fraction) == 1 and set(fraction[0]) == {"f"}))
        and all(len(token) <= _FRACTION_DIGITS for token in fraction)
    )
    if not known:
        raise ConfigurationError(
            f"the partition scope {shown(pattern)} can't be used: it takes yyyy, and as many of MM, dd, HH, "
            "mm, ss and f as are wanted, in this order, with digits, dashes and underscores between them, "
            "like yyyyMMddHH"
        )
    return PartitionScope(tokens)
