"""Working on many things at once, but not on all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def for_each(items: Iterable[Item], at_once: int, work: Callable[[Item], Awaitable[object]]) -> None:
    """Work on all items, `at_once` at a time, each taken from `items` when there is a turn for it.

    All are tried; then the first error is raised.
    """
    turns = asyncio.Semaphore(at_once)
    errors: list[Exception] = []

    async def one(item: Item) -> None:
        try:
            await work(item)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
        finally:
            turns.release()

    async with asyncio.TaskGroup() as tasks:
        for item in items:
            await turns.acquire()
            tasks.create_task(one(item))
    if errors:
        raise errors[0]
