"""Reading ahead: one page, while the caller works on the one before."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from postdate.model.delayed import Row


async def read_ahead(pages: AsyncIterator[Sequence[Row]]) -> AsyncGenerator[Sequence[Row]]:
    """The same pages, the next one being read while the caller works on this one."""

    async def read() -> Sequence[Row] | None:
        return await anext(pages, None)

    coming = asyncio.ensure_future(read())
    try:
        while (page := await coming) is not None:
            coming = asyncio.ensure_future(read())
            yield page
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
