"""The endpoint's rows in its table: what is durable, and what this process removed.

Writes are entity-group transactions, all or nothing. Where an answer is lost, an insert is repeated, since
its key is deterministic; a delete is looked into, since a repeat could not tell who removed the row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from azure.core import MatchConditions
from azure.data.tables import UpdateMode

from postdate.backends.azure_storage.failures import (
    CALL_ERRORS,
    Refusal,
    failing_index,
    outcome_unknown,
    refusal,
    refused_row,
)
from postdate.backends.azure_storage.rows import (
    Entity,
    check_transaction,
    chunks,
    entity_of,
    json_of,
    wire_bytes,
)
from postdate.backends.azure_storage.table_creation import create_table
from postdate.backends.azure_storage.table_queries import KEYS, TableQueries
from postdate.backends.azure_storage.transport import calling
from postdate.concurrency import for_each
from postdate.errors import (
    MessageRefused,
    OutcomeUnknown,
    PostdateError,
    ServiceBusy,
    StorageUnreachable,
    UsageError,
)
from postdate.model.added import AddOutcome
from postdate.model.delayed import DelayedMessage, Row, UnreadableRow
from postdate.model.keys import RowKey
from postdate.model.rowcodec import FAILURE_COUNT, NEXT_ATTEMPT_TIME
from postdate.ports import AddResult, Guard, all_added, note_removed

#: Transactions under way at once in one call.
TRANSACTIONS = 8
#: Point reads under way at once, where a transaction failed and its rows are looked into.
LOOKUPS = 16
#: How often one transaction is submitted anew with the rows in question left out.
ROUNDS = 10

_ONCE: dict[str, Any] = {"retry_total": 0}


class _Insert(NamedTuple):
    """A row to insert: as the SDK takes it for one row, and as it goes into a transaction."""

    #: None: as it was read from a table, and only its JSON is written.
    entity: Entity | None
    json: bytes


class DelayedTable(TableQueries):
    """`ports.DelayedStore` on one table: the writing half."""

    async def create(self) -> bool:
        """Create the table where it is missing.

        Raises:
            ServiceBusy: a table of this name is being deleted; that takes 40 s or more (fact 11).
        """
        return await create_table(self._client, self._place)

    async def add(self, messages: Sequence[DelayedMessage]) -> list[AddResult]:
        """Make each message durable; the same key twice in a call is one row.

        `created=False` can also be our own row: an answer was lost, the repeat found what the first try
        had written. Which of the two it was can't be told.
        """
        keys = [message.key for message in messages]
        unique: dict[RowKey, DelayedMessage] = {}
        for key, message in zip(keys, messages, strict=True):
            unique.setdefault(key, message)
        return await self._add(keys, _written(unique))

    async def add_entities(self, entities: Mapping[RowKey, bytes]) -> list[AddResult]:
        """Insert rows as they once were, given as the service's JSON; a row that is there is left alone.

        The repeat of a call that was cut off is harmless. Raises as `add`.
        """
        rows = (
            ((key, _Insert(None, text)), key.partition, wire_bytes(text)) for key, text in entities.items()
        )
        return await self._add(list(entities), rows)

    async def _add(
        self, keys: Sequence[RowKey], rows: Iterable[tuple[tuple[RowKey, _Insert], str, int]]
    ) -> list[AddResult]:
        """Insert rows, given as `chunks` takes them; an answer for each of the keys."""
        outcomes: dict[RowKey, AddOutcome] = {}
        silent = False

        async def insert(chunk: list[tuple[RowKey, _Insert]]) -> None:
            nonlocal silent
            if silent:
                return
            try:
                await self._insert(chunk, outcomes)
            except PostdateError as error:
                # Each of the others would wait as long for an answer.
                silent = isinstance(error, StorageUnreachable | OutcomeUnknown)
                for key, _ in chunk:
                    outcomes.setdefault(key, error)

        await for_each(chunks(rows), TRANSACTIONS, insert)
        told: set[RowKey] = set()
        answers = []
        for key in keys:
            outcome = outcomes.get(key)
            if isinstance(outcome, AddResult) and key in told:
                outcome = replace(outcome, created=False)  # only the first of the same message made the row
            answers.append(outcome)
            told.add(key)
        return all_added(answers)

    async def _insert(self, chunk: list[tuple[RowKey, _Insert]], outcomes: dict[RowKey, AddOutcome]) -> None:
        """Insert rows of one partition; what became of each goes to `outcomes`."""
        pending, conflicts, repeated = dict(chunk), 0, False
        while pending:
            keys = list(pending)
            try:
                etags = await self._submit_inserts(pending)
            except CALL_ERRORS as error:
                if outcome_unknown(error) and not repeated:
                    repeated = True
                    continue
                if await self._left_out(error, pending, outcomes):
                    continue
                if refusal(error) is not Refusal.EXISTS:
                    raise self._translated(error, "adding rows to") from error
                conflicts += 1
                # One conflict is somebody's second schedule of one message. Two are a repeat of the whole.
                suspects = keys if conflicts > 1 else [keys[failing_index(error)]]
                for key, etag in (await self._etags(suspects)).items():
                    outcomes[key] = AddResult(key, etag, created=False)
                    del pending[key]
                self._check_rounds(conflicts, error)
            else:
                for key, etag in zip(pending, etags, strict=True):
                    outcomes[key] = AddResult(key, etag, created=True)
                return

    async def _left_out(
        self, error: BaseException, pending: dict[RowKey, _Insert], outcomes: dict[RowKey, AddOutcome]
    ) -> bool:
        """Take out of `pending` what the service refuses for what it holds; False: it failed otherwise."""
        refused = refused_row(error, len(pending))
        if refused is None:
            return False
        if refused < 0:
            for row in pending.items():
                await self._insert([row], outcomes)
            pending.clear()
        else:
            key = list(pending)[refused]
            outcomes[key] = self._refused(error)
            del pending[key]
        return True

    async def _submit_inserts(self, rows: dict[RowKey, _Insert]) -> list[str]:
        """Insert all rows or none; their etags."""
        check_transaction(list(rows), sum(wire_bytes(row.json) for row in rows.values()))
        [row, *others] = rows.values()
        if row.entity is not None and not others:
            # The service needn't send back what we sent: 10 % less time.
            answer = await self._client.create_entity(row.entity, headers={"Prefer": "return-no-content"})
            return [str(answer["etag"])]
        return await self._hot.insert([row.json for row in rows.values()])

    async def remove(self, rows: Sequence[Row], guard: Guard | None = None) -> list[bool]:
        """Delete rows; for each, whether this call removed it. See `ports.DelayedStore.remove`.

        Rows of one partition, up to 100 of them, go all or nothing.
        """
        positions: dict[RowKey, int] = {}
        for position, row in enumerate(rows):
            positions.setdefault(row.key, position)
        answers: list[bool | None] = [None if positions[r.key] == i else False for i, r in enumerate(rows)]

        async def delete(chunk: list[Row]) -> None:
            removed = await self._delete(chunk, guard)
            for row in chunk:
                answers[positions[row.key]] = row.key in removed

        sized = ((rows[i], key.partition, wire_bytes()) for key, i in positions.items())
        try:
            await for_each(chunks(sized), TRANSACTIONS, delete)
        except Exception as error:
            note_removed(error, answers)
            raise
        return [bool(answer) for answer in answers]

    async def _delete(self, chunk: list[Row], guard: Guard | None) -> set[RowKey]:
        """Delete those of a partition's rows that are there unchanged, in one transaction; which."""
        pending = {row.key: row.etag for row in chunk}
        conflicts, unsure = 0, False
        while pending:
            try:
                await self._submit_deletes(pending, guard)
            except CALL_ERRORS as error:
                kind = refusal(error)
                if outcome_unknown(error) and not unsure:
                    # All or nothing: one row there, unchanged, tells that nothing was deleted.
                    unsure = True
                    if await self._unchanged(pending):
                        continue
                if kind is Refusal.GONE and unsure:
                    # It may have been our own first try, applied late.
                    raise self._unsure() from error
                if kind not in (Refusal.GONE, Refusal.CHANGED):
                    raise self._translated(error, "removing rows from") from error
                conflicts += 1
                keys = list(pending)
                suspects = keys if conflicts > 1 else [keys[failing_index(error)]]
                still = await self._unchanged({key: pending[key] for key in suspects})
                for key in set(suspects) - still:
                    del pending[key]
                self._check_rounds(conflicts, error)
            else:
                return set(pending)
        return set()

    async def _submit_deletes(self, rows: dict[RowKey, str], guard: Guard | None) -> None:
        """Delete all rows or none.

        Always a transaction, of one row too: `delete_entity` says nothing where the row, or even the
        table, is missing (fact 10). Never repeated below here: a repeat could not tell who deleted.
        """
        check_transaction(list(rows), sum(wire_bytes() for _ in rows))
        with calling(guard=guard, once=True):
            await self._hot.delete(rows)

    async def update(self, row: Row, *, failure_count: int, next_attempt_at: datetime | None) -> str | None:
        """Write attempts and next-try time of this version of the row; its new etag, or None.

        A lost answer is looked into, and where nothing was written, the write is repeated.

        Raises:
            OutcomeUnknown: the row now holds these very figures, and somebody else may have written them.
        """
        for last_try in (False, True):
            try:
                return await self._write_attempts(row, failure_count, next_attempt_at)
            except CALL_ERRORS as error:
                if refusal(error) in (Refusal.GONE, Refusal.CHANGED):
                    return None
                if last_try or not outcome_unknown(error):
                    raise self._translated(error, "updating a row of") from error
                now = await self.get(row.key)
                if now is None:
                    return None
                if now.etag != row.etag:
                    if _attempts(now) != (failure_count, next_attempt_at):
                        return None
                    raise self._translated(error, "updating a row of") from error
        raise AssertionError("unreachable")

    async def _write_attempts(self, row: Row, failure_count: int, next_attempt_at: datetime | None) -> str:
        entity: dict[str, Any] = {"PartitionKey": row.key.partition, "RowKey": row.key.row}
        mode = UpdateMode.MERGE
        if next_attempt_at is None and _attempts(row)[1] is not None:
            # A merge can't take a column away.
            entity = dict(await self._client.get_entity(row.key.partition, row.key.row))
            entity.pop(NEXT_ATTEMPT_TIME, None)
            mode = UpdateMode.REPLACE
        entity[FAILURE_COUNT] = failure_count
        if next_attempt_at is not None:
            entity[NEXT_ATTEMPT_TIME] = next_attempt_at
        with calling(once=True):
            answer = await self._client.update_entity(
                entity, mode, etag=row.etag, match_condition=MatchConditions.IfNotModified, **_ONCE
            )
        return str(answer["etag"])

    async def _etags(self, keys: Iterable[RowKey]) -> dict[RowKey, str]:
        """The current etags of those rows that are there."""
        found: dict[RowKey, str] = {}

        async def look(key: RowKey) -> None:
            try:
                entity = await self._client.get_entity(key.partition, key.row, select=KEYS)
                found[key] = str(entity.metadata.get("etag"))
            except CALL_ERRORS as error:
                if refusal(error) is not Refusal.GONE:
                    raise self._translated(error, "reading a row of", changes=False) from error

        await for_each(keys, LOOKUPS, look)
        return found

    async def _unchanged(self, rows: dict[RowKey, str]) -> set[RowKey]:
        """Which of the rows are there with the etag given."""
        return {key for key, etag in (await self._etags(rows)).items() if rows[key] == etag}

    def _refused(self, error: BaseException) -> PostdateError:
        told = self._translated(error, "adding a row to")
        if not isinstance(told, UsageError):
            told = MessageRefused(str(told))
        told.__cause__ = error
        return told

    def _unsure(self) -> PostdateError:
        return OutcomeUnknown(
            f"removing rows from table {self._name}: an answer was lost, and the rows are gone; whether "
            "this call removed them can't be told"
        )

    def _check_rounds(self, conflicts: int, error: BaseException) -> None:
        if conflicts >= ROUNDS:
            raise ServiceBusy(
                f"table {self._name}: rows come and go faster than {ROUNDS} transactions could be sent"
            ) from error


def _attempts(row: Row) -> tuple[int, datetime | None]:
    part = row if isinstance(row, UnreadableRow) else row.delayed
    return part.failure_count, part.next_attempt_at


def _written(messages: Mapping[RowKey, DelayedMessage]) -> Iterator[tuple[tuple[RowKey, _Insert], str, int]]:
    """The messages as `chunks` takes them, each encoded when its turn comes."""
    for key, message in messages.items():
        entity = entity_of(message, key)
        row = _Insert(entity, json_of(entity))
        yield (key, row), key.partition, wire_bytes(row.json)
