"""Our asynchronous parts inside Spark's synchronous tasks.

A task has an event loop of its own, made when it begins and closed when it ends: workers are used again for
other tasks, and nothing may be left open in them.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark import TaskContext

from postdate.endpoint import Endpoint
from postdate.spark.reference import SettingsReference

if TYPE_CHECKING:
    from postdate.backends.azure_storage.backend import AzureStorageBackend

T = TypeVar("T")


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end on a loop of its own."""
    _spare_garbage_collection()
    return asyncio.run(work())


def iterate(make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """What an asynchronous generator yields, one by one; it is closed at the end, or when nobody asks on."""
    _spare_garbage_collection()
    with asyncio.Runner() as runner:
        source = make()

        async def following() -> T | None:
            return await anext(source, None)

        async def close() -> None:
            await source.aclose()

        try:
            while (item := runner.run(following())) is not None:
                yield item
        finally:
            runner.run(close())


def _spare_garbage_collection() -> None:
    """In a worker of Spark's, leave out of collections what it has imported: it stays anyhow.

    Spark collects after each task. With all that we import, that takes as long as 1,000 rows do.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()


@asynccontextmanager
async def opened(reference: SettingsReference) -> AsyncIterator[Endpoint]:
    """The endpoint that a reference names, opened by this process for itself."""
    async with Endpoint(reference.load()) as endpoint:
        yield endpoint


def azure_backend(endpoint: Endpoint) -> "AzureStorageBackend":
    """The endpoint's backend: `SettingsReference.load` lets no other kind through."""
    return cast("AzureStorageBackend", endpoint.parts.backend)
