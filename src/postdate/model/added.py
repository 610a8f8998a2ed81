"""What became of messages that were added to a store together."""

from collections.abc import Sequence
from dataclasses import dataclass

from postdate.errors import PostdateError, StorageError
from postdate.model.keys import RowKey

_ADDED = "_postdate_added"


@dataclass(frozen=True, slots=True)
class AddResult:
    """One message's way into the store: its row, and whether this call made it (False: it was there)."""

    key: RowKey
    etag: str
    created: bool


#: Of one message: its row, why it has none, or None: it was not tried.
AddOutcome = AddResult | PostdateError | None


def all_added(outcomes: Sequence[AddOutcome]) -> list[AddResult]:
    """The results of `DelayedStore.add`, where every message got its row.

    Raises:
        PostdateError: the first failure of the service, else the first refusal; it tells `added_before`
            the rest.
    """
    results = [outcome for outcome in outcomes if isinstance(outcome, AddResult)]
    if len(results) == len(outcomes):
        return results
    errors = [outcome for outcome in outcomes if isinstance(outcome, PostdateError)]
    error = next((error for error in errors if isinstance(error, StorageError)), errors[0])
    setattr(error, _ADDED, list(outcomes))
    raise error


def added_before(error: BaseException, count: int) -> list[AddOutcome]:
    """What `DelayedStore.add` had done with each of `count` messages when it failed.

    An error that tells nothing stands for all of them.
    """
    outcomes: list[AddOutcome] | None = getattr(error, _ADDED, None)
    return [error if isinstance(error, PostdateError) else None] * count if outcomes is None else outcomes
