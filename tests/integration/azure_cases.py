"""What the tests of the Azure Storage backend share."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.data.tables.aio import TableClient

from postdate.backends.azure_storage import AzureStorageBackend, open_backend
from postdate.clock import StorageClock, SystemClock
from postdate.model.delayed import DelayedMessage, Row
from postdate.model.message import Message
from postdate.settings import Settings
from postdate.testing.faults import Faults

#: In the middle of an hour, so that some seconds more are the same partition.
DUE = datetime(2026, 3, 1, 12, 30, 0, 250_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@dataclass
class Rig:
    """A backend with a script of faults below it, and a plain client beside it."""

    backend: AzureStorageBackend
    faults: Faults
    clock: StorageClock
    settings: Settings
    #: The endpoint's table, as any other program would use it.
    plain: TableClient

    async def add(self, count: int, *, step: timedelta = SECOND) -> list[Row]:
        """So many rows, `step` apart, read back in due order."""
        await self.backend.store.add([delayed(n, DUE + n * step) for n in range(count)])
        return await self.rows()

    async def rows(self) -> list[Row]:
        return [row async for row in self.backend.store.upcoming()]


@asynccontextmanager
async def rig_for(settings: Settings, *, provisioned: bool = True) -> AsyncIterator[Rig]:
    clock = StorageClock(SystemClock())
    async with Faults() as faults:
        backend = await open_backend(settings, clock, wrap_transport=faults.wrap)
        plain = TableClient.from_connection_string(connection_of(settings), settings.table_name)
        try:
            if provisioned:
                await backend.store.create()
                await backend.lease.create()
            faults.calls.clear()
            yield Rig(backend, faults, clock, settings, plain)
        finally:
            await plain.close()
            await backend.close()


def connection_of(settings: Settings) -> str:
    assert settings.connection is not None
    return settings.connection.get_secret_value()


def delayed(number: int = 1, due_at: datetime = DUE, *, body: bytes = b"{}") -> DelayedMessage:
    return DelayedMessage(Message(f"m{number:05d}", {"Note": None}, body), "orders", due_at)


def ids(rows: Sequence[Row]) -> list[Any]:
    return [row.delayed.message.message_id if hasattr(row, "delayed") else row.reason for row in rows]
