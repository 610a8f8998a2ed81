"""Several services of one endpoint, started and stopped together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from postdate.engine.tasks import to_the_end

#: Serves until the event is set.
Run = Callable[[asyncio.Event], Awaitable[None]]


async def run_together(runs: Sequence[Run], stop: asyncio.Event | None) -> None:
    """Serve until `stop` is set, the task is cancelled, or one of them ends; then all end cleanly.

    Raises:
        Exception: what the first that failed has raised.
    """
    stopping = asyncio.Event()
    watching = asyncio.ensure_future((stop or asyncio.Event()).wait())
    serving = [asyncio.ensure_future(run(stopping)) for run in runs]
    try:
        await asyncio.wait({watching, *serving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.set()
        watching.cancel()
        await to_the_end(asyncio.create_task(_all(serving)))


async def _all(serving: "Sequence[asyncio.Future[None]]") -> None:
    ended = await asyncio.gather(*serving, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome
