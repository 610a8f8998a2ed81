"""What the delivery log adds to a dispatch: `python -m bench.delivery_log` prints microseconds of CPU.

`dispatch` is the whole engine on rows and a queue that cost nothing, so its share is as large as it can be.
"""

import asyncio
import time
from datetime import timedelta

from postdate.backends.memory.delivery_log import MemoryLog
from postdate.bench.flat import drain
from postdate.clock import SystemClock
from postdate.engine.delivery_log import DeliveryLogWriter, LogWriterSettings
from postdate.events import Events, HandedOver

RECORDS = 100_000
_RUNS = 5


async def record_us() -> float:
    """CPU of one record: heard, encoded, joined into a block and appended to memory."""
    clock = SystemClock()
    settings = LogWriterSettings("bench", "host/1/abc", timedelta(seconds=5), limit_bytes=1 << 30)
    writer = DeliveryLogWriter(MemoryLog({}), clock, Events([]), settings)
    now = clock.now()
    began = time.process_time()
    for number in range(RECORDS):
        writer.hear(HandedOver(f"0b2d7b0a-{number:08}", "invoices", now, now, 12, 3))
    await writer.write()
    return (time.process_time() - began) / RECORDS * 1e6


def main() -> None:
    """Print the least of some runs: the others were disturbed."""
    record = min(asyncio.run(record_us()) for _ in range(_RUNS))
    began = time.process_time()
    rows = asyncio.run(drain(RECORDS // 5, SystemClock()))["rows"]
    dispatch = (time.process_time() - began) / rows * 1e6
    print(f"record {record:.1f} us, dispatch {dispatch:.0f} us: {100 * record / dispatch:.1f} % more")


if __name__ == "__main__":
    main()
