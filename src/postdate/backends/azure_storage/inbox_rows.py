"""Reading what consumers remember: rows, what stands beside them, and whole ranges. Keys: `model.inbox`."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from azure.data.tables.aio import TableClient

from postdate.backends.azure_storage.connection import Place
from postdate.backends.azure_storage.failures import CALL_ERRORS, Refusal, refusal, translate
from postdate.backends.azure_storage.hot_calls import HotTable, Page, Token
from postdate.backends.azure_storage.rows import key_of, plain_value, properties_of, quoted
from postdate.backends.azure_storage.table_queries import KEYS
from postdate.clock import StorageClock
from postdate.errors import NotProvisioned, PoisonMessage, PostdateError
from postdate.model.inbox import InboxKey, behind, consumer_of
from postdate.model.keys import RowKey
from postdate.model.limits import PAGE_ROWS
from postdate.ports.inbox import InboxClaim

#: Behind a row's key: a further piece of its outcome, and a record.
PIECE, RECORD = "_p", "_r_"
#: Sorts behind whatever a row key of ours may hold.
_LAST = "~"


@dataclass(frozen=True, slots=True)
class InboxRow:
    """A message's row as it stands in the table."""

    etag: str
    token: str
    attempt: int
    until: datetime
    done: bool
    settled: bool
    outcome: bytes
    pieces: int

    def is_of(self, claim: InboxClaim) -> bool:
        """Whether it was written last under this claim."""
        return (self.token, self.attempt) == (claim.token, claim.attempt)


class InboxRows:
    """The reading half of `ports.InboxStore`."""

    def __init__(self, client: TableClient, hot: HotTable, place: Place, clock: StorageClock) -> None:
        self._client = client
        self._hot = hot
        self._place = place
        self._clock = clock

    async def records(self, key: InboxKey) -> dict[str, bytes]:
        """What stands beside the row under `_r_`."""
        return {end.removeprefix(RECORD): value async for end, value in self._beside(key.place, RECORD)}

    async def consumers(self) -> list[str]:
        """One look behind each consumer's last partition."""
        found: list[str] = []
        matching = ""
        while True:
            async for page in self._pages(matching, "looking for consumers in", top=1):
                if page.rows:
                    found.append(consumer_of(key_of(page.rows[0]).partition))
                    break
            else:
                return sorted(found)
            matching = f"PartitionKey ge {quoted(behind(found[-1]))}"

    async def _read(self, place: RowKey) -> InboxRow | None:
        try:
            entity = await self._client.get_entity(place.partition, place.row)
        except CALL_ERRORS as error:
            if refusal(error) is Refusal.GONE:
                return None
            raise self._translated(error, "reading a message's row of", changes=False) from error
        columns: dict[str, Any] = {name: plain_value(value) for name, value in entity.items()}
        return InboxRow(
            etag=str(entity.metadata.get("etag")),
            token=columns["Token"],
            attempt=columns["Attempt"],
            until=columns["Until"],
            done="DoneAt" in columns,
            settled=columns.get("Settled", False),
            outcome=columns.get("Outcome", b""),
            pieces=columns.get("Pieces", 1),
        )

    async def _outcome(self, place: RowKey, row: InboxRow) -> bytes:
        if row.settled or row.pieces == 1:
            return b"" if row.settled else row.outcome
        more = [piece async for _, piece in self._beside(place, PIECE)]
        if len(more) != row.pieces - 1:
            raise PoisonMessage(
                f"{self._table}: of row {place.row} in {place.partition} there are {1 + len(more)} of "
                f"{row.pieces} pieces; somebody else has changed the table"
            )
        return row.outcome + b"".join(more)

    async def _beside(self, place: RowKey, kind: str) -> AsyncIterator[tuple[str, bytes]]:
        """What stands beside a message's row, by the end of its row key, in order."""
        start = place.row + kind
        matching = (
            f"PartitionKey eq {quoted(place.partition)} and RowKey ge {quoted(start)} "
            f"and RowKey lt {quoted(start + _LAST)}"
        )
        async for page in self._pages(matching, "reading from", select=[*KEYS, "Value"]):
            for entry in page.rows:
                columns, _ = properties_of(entry)
                value = columns["Value"]
                assert isinstance(value, bytes)
                yield key_of(columns).row.removeprefix(place.row), value

    async def _pages(
        self, matching: str, doing: str, *, top: int = PAGE_ROWS, select: list[str] | None = None
    ) -> AsyncIterator[Page]:
        """Pages of a query; an empty one is not the end (fact 16). A missing table has none."""
        token: Token | None = None
        while True:
            try:
                page = await self._hot.page(matching, top=top, select=select or KEYS, token=token)
            except CALL_ERRORS as error:
                if refusal(error) is Refusal.NOT_PROVISIONED:
                    return
                raise self._translated(error, doing, changes=False) from error
            yield page
            token = page.token
            if token is None:
                return

    @property
    def _table(self) -> str:
        return f"table {self._client.table_name}"

    def _translated(self, error: BaseException, doing: str, *, changes: bool = True) -> PostdateError:
        if refusal(error) is Refusal.NOT_PROVISIONED:
            return NotProvisioned(
                f"{doing} {self._table}: it is missing; create it with `postdate setup --inbox`"
            )
        return translate(error, f"{doing} {self._table}", self._place, changes=changes)
