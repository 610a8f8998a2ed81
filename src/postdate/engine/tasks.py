"""Waiting for work that cancellation must not cut."""

import asyncio
from typing import Any


async def to_the_end(task: "asyncio.Task[Any]") -> None:
    """Wait until `task` has ended by itself, although the caller may be cancelled meanwhile.

    A cancellation is kept and raised afterwards; an error of the task is raised first.
    """
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
