"""Rows for timeouts that are about to be moved."""

from collections.abc import Sequence

from postdate.concurrency import for_each
from postdate.errors import PostdateError, UsageError
from postdate.legacy.ground import AT_ONCE, Ground
from postdate.legacy.judge import Movable
from postdate.model.delayed import DelayedRow, Row
from postdate.model.legacy_move import fingerprint
from postdate.ports import AddResult, added_before


async def add_rows(ground: Ground, movable: Sequence[Movable]) -> list[AddResult | PostdateError | None]:
    """Make a row for each, and a blob where the body is large; why there is none, in the order given.

    Raises:
        StorageError: the same call again is harmless.
    """

    async def park(one: Movable) -> None:
        if one.payload is not None and one.delayed.payload_ref is not None:
            keep_until = one.delayed.due_at + ground.payload_retention
            await ground.backend.payloads.put(one.delayed.payload_ref, one.payload, keep_until=keep_until)

    await for_each(movable, AT_ONCE, park)
    try:
        return list(await ground.backend.store.add([one.delayed for one in movable]))
    except UsageError as error:
        return added_before(error, len(movable))


def is_row_of(row: Row, movable: Movable) -> bool:
    """Whether a row holds this very message, and not another with the same key."""
    return isinstance(row, DelayedRow) and fingerprint(row.delayed) == fingerprint(movable.delayed)


def other_message(movable: Movable) -> UsageError:
    """Why a timeout can't have a row: its key is another message's."""
    return UsageError(
        f"another message with id {movable.delayed.message.message_id!r} waits for the same destination "
        "and due time"
    )


async def place(ground: Ground, movable: Sequence[Movable]) -> dict[str, str]:
    """See that each has a row; ids of those that can't have one, and why.

    Raises:
        StorageError: the same call again is harmless.
    """
    refused: dict[str, str] = {}

    async def look(pair: tuple[Movable, AddResult | PostdateError | None]) -> None:
        one, outcome = pair
        if isinstance(outcome, AddResult):
            row = None if outcome.created else await ground.backend.store.get(outcome.key)
            if row is not None and not is_row_of(row, one):
                refused[one.timeout.id] = str(other_message(one))
        else:
            refused[one.timeout.id] = str(outcome)

    if movable:
        outcomes = await add_rows(ground, movable)
        await for_each(zip(movable, outcomes, strict=True), AT_ONCE, look)
    return refused
