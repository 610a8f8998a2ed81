"""SIGTERM and SIGINT as an event: the first asks to stop, a second ends the process at once."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set. Use it inside a running loop."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    watched = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in watched}

    def asked(number: int, _frame: object = None) -> None:
        signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(stop.set)

    for number in watched:
        signal.signal(number, asked)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
