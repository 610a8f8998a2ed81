"""What consumers remember, in a table. Keys: `model.inbox`.

    of the message   Consumer, MessageId, Token, Attempt, Until, WrittenAt; once done with: DoneAt,
                     Outcome (its first piece), Pieces (of the outcome); once settled: Settled
    of a piece       Value, WrittenAt
    of a record      Value, WrittenAt

Each write of a message's row is conditional on the version that was read or written last, so of several
consumers one is let through. Where an answer is lost the row is read: its token tells whose write it was.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.data.tables import UpdateMode

from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, may_be_applied, refusal
from postdate.backends.azure_storage.inbox_rows import PIECE, RECORD, InboxRows
from postdate.backends.azure_storage.rows import (
    Entity,
    check_transaction,
    chunks,
    json_of,
    key_of,
    properties_of,
    quoted,
    wire_bytes,
)
from postdate.backends.azure_storage.table_creation import create_table
from postdate.clock import EPOCH
from postdate.errors import ServiceBusy
from postdate.model.inbox import InboxKey, old_partitions, pieces, shown_id
from postdate.model.keys import RowKey
from postdate.ports.inbox import Busy, Done, Fresh, InboxAnswer, InboxClaim, claim_lost

#: How often a claim is tried anew when others wrote meanwhile.
TRIES = 5

_OTHERS_WROTE = (Refusal.CHANGED, Refusal.GONE)


class InboxTable(InboxRows):
    """`ports.InboxStore`: the writing half."""

    async def create(self) -> bool:
        """Create the table where it is missing."""
        return await create_table(self._client, self._place)

    async def close(self) -> None:
        """Close the client. Safe to call twice."""
        await self._client.close()

    # --- claims -----------------------------------------------------------------------------------

    async def claim(self, key: InboxKey, token: str, until: datetime) -> InboxAnswer:
        """Insert a claim, or take over one that is past its time.

        Raises:
            ServiceBusy: others wrote the row each time that this call was about to.
        """
        first = InboxClaim(key, token, 1, "")
        for _ in range(TRIES):
            etag = await self._insert(self._claimed(first, until))
            if etag is not None:
                return Fresh(replace(first, etag=etag))
            found = await self._read(key.place)
            if found is None:
                continue  # dropped by age meanwhile, or the insert never arrived
            if found.done:
                return Done(await self._outcome(key.place, found))
            if found.token == token:
                return Fresh(InboxClaim(key, token, found.attempt, found.etag))
            if found.until > self._clock.now():
                return Busy(found.until)
            taken = InboxClaim(key, token, found.attempt + 1, found.etag)
            etag = await self._update(taken, self._claimed(taken, until), UpdateMode.REPLACE)
            if etag is not None:
                return Fresh(replace(taken, etag=etag))
        raise ServiceBusy(
            f"claiming message {key.message_id!r} in {self._table}: its row changed {TRIES} times meanwhile"
        )

    async def prolong(self, claim: InboxClaim, until: datetime) -> InboxClaim | None:
        """Write a later end into the version that we wrote last."""
        etag = await self._update(claim, self._written(claim.key.place, {"Until": until}), UpdateMode.MERGE)
        return None if etag is None else replace(claim, etag=etag)

    async def release(self, claim: InboxClaim) -> bool:
        """End the claim now."""
        ended = self._written(claim.key.place, {"Until": EPOCH})
        return await self._update(claim, ended, UpdateMode.MERGE) is not None

    async def complete(self, claim: InboxClaim, outcome: bytes, records: Mapping[str, bytes]) -> None:
        """Write row, pieces and records in one transaction."""
        row, beside = self._completed(claim, outcome, records)
        for last_try in (False, True):
            try:
                await self._write_all(row, claim.etag, beside)
            except CALL_ERRORS as error:
                told = self._translated(error, "completing a message in")
                if refusal(error) not in _OTHERS_WROTE and not may_be_applied(error):
                    raise told from error
                found = await self._read(claim.key.place)
                if found is not None and found.done and found.is_of(claim):
                    return
                if found is None or found.etag != claim.etag:
                    raise claim_lost(claim) from error
                if last_try:
                    raise told from error
            else:
                return

    async def settle(self, key: InboxKey) -> None:
        """Mark the row; what it left to dispatch goes with it, by age."""
        try:
            await self._client.update_entity(self._written(key.place, {"Settled": True}), UpdateMode.MERGE)
        except CALL_ERRORS as error:
            if refusal(error) is not Refusal.GONE:
                raise self._translated(error, "settling a message in") from error

    # --- age --------------------------------------------------------------------------------------

    async def forget(self, consumer: str, before: datetime) -> int:
        """Drop old rows of old partitions, page by page, in transactions of one partition each."""
        first, end = old_partitions(consumer, before)
        matching = (
            f"PartitionKey ge {quoted(first)} and PartitionKey lt {quoted(end)} "
            f"and WrittenAt lt datetime'{before.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}'"
        )
        dropped = 0
        async for page in self._pages(matching, "dropping old rows of"):
            found = ((key_of(entry), properties_of(entry)[1]) for entry in page.rows)
            for chunk in chunks(((key, etag), key.partition, wire_bytes()) for key, etag in found):
                dropped += await self._drop(dict(chunk))
        return dropped

    async def _drop(self, rows: dict[RowKey, str]) -> int:
        check_transaction(list(rows), sum(wire_bytes() for _ in rows))
        try:
            await self._hot.delete(rows)
        except CALL_ERRORS as error:
            if refusal(error) in _OTHERS_WROTE:
                return 0  # another one is dropping them; whatever is left is dropped next time
            raise self._translated(error, "dropping old rows of") from error
        return sum(PIECE not in key.row and RECORD not in key.row for key in rows)

    # --- requests ---------------------------------------------------------------------------------

    async def _insert(self, entity: Entity) -> str | None:
        """Its etag; None: there is a row, perhaps that of this very call."""
        try:
            answer = await self._client.create_entity(entity, headers={"Prefer": "return-no-content"})
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.EXISTS or may_be_applied(error):
                return None
            raise self._translated(error, "claiming a message in") from error
        return str(answer["etag"])

    async def _update(self, claim: InboxClaim, entity: Entity, mode: UpdateMode) -> str | None:
        """Write the version that `claim` names; the new etag, or None: it is another by now."""
        condition: dict[str, Any] = {"etag": claim.etag, "match_condition": MatchConditions.IfNotModified}
        try:
            answer = await self._client.update_entity(entity, mode, **condition)
        except CALL_ERRORS as error:
            # The SDK repeats a request whose answer was lost: then it is our own write that is in the way.
            if refusal(error) not in _OTHERS_WROTE and not may_be_applied(error):
                raise self._translated(error, "claiming a message in") from error
            found = await self._read(claim.key.place)
            return found.etag if found is not None and not found.done and found.is_of(claim) else None
        return str(answer["etag"])

    async def _write_all(self, row: Entity, etag: str, beside: list[Entity]) -> None:
        """Replace a message's row, if it is still this version, and write what stands beside it."""
        condition: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        if not beside:
            await self._client.update_entity(row, UpdateMode.REPLACE, **condition)
            return
        entities = [row, *beside]
        check_transaction(
            [key_of(one) for one in entities], sum(wire_bytes(json_of(one)) for one in entities)
        )
        replacing: dict[str, Any] = {"mode": UpdateMode.REPLACE}
        operations: list[Any] = [("update", row, replacing | condition)]
        operations += [("upsert", one, replacing) for one in beside]
        await self._client.submit_transaction(operations)

    # --- rows -------------------------------------------------------------------------------------

    def _claimed(self, claim: InboxClaim, until: datetime) -> Entity:
        return self._written(claim.key.place, _of_message(claim) | {"Until": until})

    def _completed(
        self, claim: InboxClaim, outcome: bytes, records: Mapping[str, bytes]
    ) -> tuple[Entity, list[Entity]]:
        """The message's row, and those beside it."""
        place = claim.key.place
        first, *more = pieces(outcome)
        done: Entity = {
            "Until": EPOCH,
            "DoneAt": self._clock.now(),
            "Outcome": first,
            "Pieces": 1 + len(more),
        }
        values = {f"{PIECE}{number:04d}": piece for number, piece in enumerate(more)}
        values |= {RECORD + name: value for name, value in records.items()}
        beside = [
            self._written(RowKey(place.partition, place.row + end), {"Value": value})
            for end, value in values.items()
        ]
        return self._written(place, _of_message(claim) | done), beside

    def _written(self, place: RowKey, columns: Entity) -> Entity:
        return {
            "PartitionKey": place.partition,
            "RowKey": place.row,
            **columns,
            "WrittenAt": self._clock.now(),
        }


def _of_message(claim: InboxClaim) -> Entity:
    return {
        "Consumer": claim.key.consumer,
        "MessageId": shown_id(claim.key.message_id),
        "Token": claim.token,
        "Attempt": claim.attempt,
    }
