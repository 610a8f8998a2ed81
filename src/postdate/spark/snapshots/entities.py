"""`format("postdate.entities")`: waiting rows with all that is needed to write them again as they were.

Beside the columns of `postdate`: `entity`, the service's JSON of the row, types and all, and `payload`, the
body out of its blob. Of the entity its body is left out where column `body` has it.
"""

import base64
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from postdate.endpoint import Endpoint
from postdate.errors import PoisonMessage
from postdate.spark.ranges import KeyRange
from postdate.spark.schema import DELAYS
from postdate.spark.source.columns import COLUMNS, column_array, due_of
from postdate.spark.source.delays import DelaysReader, DelaysSource
from postdate.spark.tasks import azure_backend, opened

if TYPE_CHECKING:
    from postdate.backends.azure_storage.scan import Scanned

ENTITY, PAYLOAD = "entity", "payload"
ENTITIES = StructType(
    [
        *DELAYS.fields,
        StructField(
            ENTITY, StringType(), metadata={"comment": "the row as the service's JSON, less its body"}
        ),
        StructField(
            PAYLOAD, BinaryType(), metadata={"comment": "bytes of body_blob; null: none, or it is gone"}
        ),
    ]
)
#: Bytes of payloads after which a batch is handed on.
_BATCH_BYTES = 8_000_000
_BODY, _BODY_TYPE = "Body", "Body@odata.type"


class EntitiesSource(DelaysSource):
    """Waiting rows as they are stored; options as those of `postdate`."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "postdate.entities"

    def schema(self) -> StructType:
        """The columns."""
        return ENTITIES

    def reader(self, schema: StructType) -> "EntitiesReader":
        """Reads; payloads are fetched only where column `payload` is asked for."""
        reference, rows = self.asked()
        return EntitiesReader(reference, schema, rows)


class EntitiesReader(DelaysReader):
    """Reads rows whole, range by range."""

    async def _batches(self, keys: KeyRange) -> AsyncGenerator[pa.RecordBatch, None]:
        fetches = PAYLOAD in self._schema.names
        async with opened(self._reference) as endpoint:
            async for page in azure_backend(endpoint).scan().pages(keys.filter()):
                rows: list[Scanned] = []
                payloads: list[bytes | None] = []
                held = 0
                for row in page:
                    if not self._window.holds(due_of(row)):
                        continue
                    rows.append(row)
                    payload = await _payload(endpoint, row) if fetches else None
                    payloads.append(payload)
                    held += len(payload or b"")
                    if held > _BATCH_BYTES:
                        yield self._batch(rows, payloads)
                        rows, payloads, held = [], [], 0
                yield self._batch(rows, payloads)

    def _batch(self, rows: "list[Scanned]", payloads: list[bytes | None]) -> pa.RecordBatch:
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        arrays = []
        for column in arrow:
            values: list[Any] = payloads
            if column.name != PAYLOAD:
                read = entity_text if column.name == ENTITY else COLUMNS[column.name]
                values = [read(row) for row in rows]
            arrays.append(column_array(values, column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)


async def _payload(endpoint: Endpoint, row: "Scanned") -> bytes | None:
    name = COLUMNS["body_blob"](row)
    if name is None:
        return None
    try:
        return await endpoint.parts.backend.payloads.get(name)
    except PoisonMessage:
        return None


def entity_text(row: "Scanned") -> str:
    """A row as JSON that can be inserted; its body only where it is no bytes."""
    entity = {
        name: value
        for name, value in row.entry.items()
        if not name.startswith(("odata.", "Timestamp@")) and name != "Timestamp"
    }
    if isinstance(row.properties.get(_BODY), bytes):
        del entity[_BODY]
    return json.dumps(entity, separators=(",", ":"))


def entity_json(text: str, body: bytes | None) -> bytes:
    """Back: the row as it is inserted."""
    entity = json.loads(text)
    if _BODY_TYPE in entity and _BODY not in entity:
        entity[_BODY] = base64.b64encode(body or b"").decode()
    return json.dumps(entity, separators=(",", ":")).encode()


__all__ = ["ENTITIES", "ENTITY", "PAYLOAD", "EntitiesSource", "entity_json", "entity_text"]
