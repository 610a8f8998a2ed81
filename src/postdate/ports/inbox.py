"""What consumers remember of messages that they are done with."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from postdate.errors import ClaimLost
from postdate.model.inbox import InboxKey


@dataclass(frozen=True, slots=True)
class InboxClaim:
    """One consumer's claim on one message. `etag` names the version of the row that it wrote last."""

    key: InboxKey
    token: str
    #: Grows with each claim of the message: a fencing number for whoever is asked to do something.
    attempt: int
    etag: str


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nobody is done with the message, and the claim is the caller's."""

    claim: InboxClaim


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else has claimed the message."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Done:
    """Somebody is done with the message; what it left to dispatch, empty once that was settled."""

    outcome: bytes


InboxAnswer = Fresh | Busy | Done


class InboxStore(Protocol):
    """The messages that the consumers of one endpoint have claimed or are done with.

    Methods raise `NotProvisioned` where the table is missing, except `forget` and `consumers`, which then
    find nothing.
    """

    async def create(self) -> bool:
        """Create the table where it is missing; True if this call did. Safe in many processes at once."""
        ...

    async def claim(self, key: InboxKey, token: str, until: datetime) -> InboxAnswer:
        """Claim a message until an instant, unless somebody is done with it or has a claim that lasts.

        Of many callers at once exactly one hears `Fresh`. Whether a claim lasts is judged by the service's
        clock. The same token twice is the same claim, so a repeat after a lost answer is harmless.
        """
        ...

    async def prolong(self, claim: InboxClaim, until: datetime) -> InboxClaim | None:
        """Let the claim last longer; the claim from now on, or None: it is somebody else's by now."""
        ...

    async def complete(self, claim: InboxClaim, outcome: bytes, records: Mapping[str, bytes]) -> None:
        """Write that the message is done with, the outcome and the records: all of it or nothing.

        A repeat of a call that was applied is harmless.

        Raises:
            ClaimLost: somebody else has claimed the message since; nothing was written.
            OutcomeUnknown: it may have been written.
        """
        ...

    async def release(self, claim: InboxClaim) -> bool:
        """Give the claim back, so that the next `claim` of anybody succeeds; False: it was not ours."""
        ...

    async def settle(self, key: InboxKey) -> None:
        """What `complete` left to dispatch is dispatched: `claim` needn't answer it any more."""
        ...

    async def records(self, key: InboxKey) -> dict[str, bytes]:
        """The records of a message that is done with, by name; none where it is not."""
        ...

    async def forget(self, consumer: str, before: datetime) -> int:
        """Drop what lies in days before an instant, and was written before it; how many messages.

        Reads little more than what it drops. What others drop meanwhile is not counted.
        """
        ...

    async def consumers(self) -> list[str]:
        """Whose messages are remembered here, in order."""
        ...


def claim_lost(claim: InboxClaim) -> ClaimLost:
    """The error of `InboxStore.complete` where somebody else has taken the claim over."""
    return ClaimLost(
        f"consumer {claim.key.consumer!r}: attempt {claim.attempt} at message {claim.key.message_id!r} took "
        "longer than its claim lasted, and another one took it over; nothing of it was kept"
    )
