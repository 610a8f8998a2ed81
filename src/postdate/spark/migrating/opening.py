"""A source as it is opened: by the driver to plan ranges, by tasks to work on one."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime

from postdate.endpoint import Endpoint
from postdate.model.keys import RowKey
from postdate.spark.migrating.azure_timeouts import AzureOldTimeouts
from postdate.spark.migrating.documents import Documents
from postdate.spark.migrating.fence import Fence
from postdate.spark.migrating.sources import AzureRange, Range, Source, SqlSource
from postdate.spark.migrating.sql_timeouts import SqlOldTimeouts
from postdate.spark.migrating.taking import OldTimeouts
from postdate.spark.ranges import cut
from postdate.spark.reference import SettingsReference
from postdate.spark.tasks import azure_backend, iterate, opened


@asynccontextmanager
async def old_timeouts(
    endpoint: Endpoint, source: Source, documents: Documents, fence: Fence | None = None
) -> AsyncIterator[OldTimeouts]:
    """The old timeouts of an endpoint that is open.

    Raises:
        UsageError: the source can't be opened as it is described.
        StorageUnreachable: nobody answers there.
    """
    old: OldTimeouts
    if isinstance(source, SqlSource):
        old = SqlOldTimeouts(source, endpoint.settings.endpoint, documents.run, fence)
    else:
        old = AzureOldTimeouts(source, azure_backend(endpoint).timeouts, documents)
    try:
        yield old
    finally:
        old.close()


def ranges(
    reference: SettingsReference, source: Source, due_from: datetime | None, rows: int
) -> Iterator[Range]:
    """Ranges of about so many timeouts that hold all; each timeout lies in one of them at most.

    Nothing but their boundaries is kept, however many timeouts there are.
    """
    if isinstance(source, SqlSource):
        old = SqlOldTimeouts(source, reference.load().endpoint, "")
        try:
            yield from old.ranges(due_from, rows)
        finally:
            old.close()
        return

    async def keys() -> AsyncGenerator[RowKey, None]:
        async with opened(reference) as endpoint:
            async for key in azure_backend(endpoint).timeouts.time_keys(due_from):
                yield key

    for found in cut(iterate(keys), rows):
        yield AzureRange(found.first, found.last, found.row_from, found.row_until)
