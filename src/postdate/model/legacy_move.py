"""A timeout of the legacy timeout manager as a delayed message of ours, and what tells two messages apart.

The message is what the manager would have released: its own id, its headers without those that were for the
manager, the body, and the due time to the microsecond. `scheduled_at` stays empty, as in rows of .NET
endpoints, so that a leader sends it exactly as it is.
"""

import hashlib

from postdate.model import headers as h
from postdate.model.delayed import DelayedMessage
from postdate.model.durations import check_due_time
from postdate.model.jsontext import write_map
from postdate.model.keys import EPOCH, identity
from postdate.model.legacy_timeout import LegacyTimeout
from postdate.model.message import Message, check_headers

#: Headers that are the manager's own: `NServiceBus.Timeout.Expire` and `.RouteExpiredTimeoutTo`.
_MANAGERS = "NServiceBus.Timeout."
_DIGEST_BYTES = 16


def message_of(timeout: LegacyTimeout) -> Message:
    """The message that a timeout keeps, without what was for the timeout manager.

    Raises:
        InvalidHeader: a header is not text.
    """
    headers = {
        name: value
        for name, value in check_headers(timeout.headers).items()
        if not name.startswith(_MANAGERS)
    }
    return Message(headers.get(h.MESSAGE_ID) or timeout.id, headers, timeout.body)


def delayed_of(timeout: LegacyTimeout, message: Message, *, payload_ref: str | None = None) -> DelayedMessage:
    """The delayed message of a timeout, whose key depends on nothing but the timeout.

    Raises:
        InvalidDueTime: it can't be stored.
    """
    return DelayedMessage(
        message=message,
        destination=timeout.destination,
        due_at=check_due_time(timeout.due_at),
        payload_ref=payload_ref,
    )


def payload_name(timeout: LegacyTimeout, message: Message) -> str:
    """The blob for a body that needs a claim check: the same in every run."""
    return f"{hashlib.sha256(timeout.body).hexdigest()}-{identity(message.message_id, timeout.destination)}"


def fingerprint(delayed: DelayedMessage) -> int:
    """128 bits of all that makes a delayed message what it is; attempts don't count.

    Added up modulo 2**128 they are a checksum of many that depends on no order.
    """
    message = delayed.message
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    parts = (
        delayed.destination.encode("utf-8", "surrogatepass"),
        message.message_id.encode("utf-8", "surrogatepass"),
        str((delayed.due_at - EPOCH) // (EPOCH.resolution)).encode(),
        write_map(message.headers).encode(),
        (delayed.payload_ref or "").encode(),
        message.body,
    )
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return int.from_bytes(digest.digest())


class Checksum:
    """The sum of fingerprints, and how many they are."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, part: int) -> None:
        """Add one fingerprint."""
        self.count += 1
        self._sum = (self._sum + part) % (1 << (8 * _DIGEST_BYTES))

    @property
    def text(self) -> str:
        """32 hex digits."""
        return f"{self._sum:0{2 * _DIGEST_BYTES}x}"


def shown_address(text: str) -> str:
    """A destination as people may see it: older endpoints wrote connection strings behind the `@`."""
    if "=" not in text and ";" not in text:
        return text
    queue = text.partition("@")[0]
    return "…" if "=" in queue or ";" in queue else f"{queue}@…"
