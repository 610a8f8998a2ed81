"""The classic algorithm as a process: `python -m postdate.bench.classic_process`, set up by the environment.

Prints a line after each row: how many it has handed over.
"""

import asyncio
import sys

from postdate.bench.account import Account
from postdate.bench.classic import Classic
from postdate.bench.classic_storage import LeanStorage
from postdate.clock import SystemClock
from postdate.settings import load_settings


async def poll() -> None:
    """Until it is killed."""
    async with Account(load_settings()) as account:
        await Classic(LeanStorage(account), SystemClock(), tell=_tell).run(asyncio.Event())


def _tell(handed_over: int) -> None:
    sys.stdout.write(f"{handed_over}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(poll())
