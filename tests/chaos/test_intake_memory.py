"""The memory of a process that schedules does not depend on how much it schedules."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

MESSAGES = (20_000, 200_000)

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")


async def schedule(count: int) -> float:
    """Schedule so many messages, made one by one; the most megabytes that this process ever had resident."""
    from test_peak_memory import peak_megabytes

    from postdate import Endpoint, Outgoing
    from postdate.model.added import AddResult

    async with Endpoint("Memory.Tests", backend="memory", direct_within=0, lookahead=0) as endpoint:
        await endpoint.setup("orders")

        async def discard(messages):
            return [AddResult(message.key, "etag", created=True) for message in messages]

        endpoint.parts.backend.store.add = discard
        accepted = 0
        messages = (
            Outgoing("orders", {"order": n, "text": "x" * 500}, delay=60 + n % 86_400) for n in range(count)
        )
        async for outcome in endpoint.schedule_each(messages):
            accepted += outcome.handle is not None
        assert accepted == count
    return peak_megabytes("self")


def test_the_same_for_twenty_thousand_messages_and_for_two_hundred_thousand():
    peaks = {}
    for count in MESSAGES:
        done = subprocess.run(
            [sys.executable, __file__, str(count)], capture_output=True, text=True, check=True, timeout=300
        )
        peaks[count] = float(done.stdout)
    print(", ".join(f"{count:,} messages: {peak:.1f} MB" for count, peak in peaks.items()))
    assert peaks[MESSAGES[1]] <= 1.1 * peaks[MESSAGES[0]]


if __name__ == "__main__":
    print(asyncio.run(schedule(int(sys.argv[1]))))
