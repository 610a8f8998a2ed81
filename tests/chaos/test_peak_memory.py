"""The leader's memory does not depend on how many rows wait."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from bulk_rows import insert_waiting
from chaos_cases import SECOND, Stage, stage_for

from postdate.local import Azurite

DUE = 10
MEGABYTE = 1024.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")


def peak_megabytes(pid: int | str) -> float:
    """The most memory that a process ever had resident."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found is not None
    return int(found[1]) / MEGABYTE


async def peak_of_a_leader(stage: Stage, waiting: int) -> float:
    """Of a process that delivered ten messages and looked at the table some twenty times."""
    await insert_waiting(stage, waiting)
    await stage.schedule([stage.now() + 2 * SECOND] * DUE)
    server = await stage.start()
    await server.wait("handed_over", count=DUE)
    await server.wait("pass_finished", count=20, since=len(server.told))
    return peak_megabytes(server.process.pid)


async def test_the_same_at_a_thousand_and_at_a_hundred_thousand_waiting_rows(azurite_settings, tmp_path):
    # An Azurite of its own: so many rows would slow the others down. In memory, because nothing is deleted
    # from its queues, and saving a hundred thousand rows takes it half a second every five.
    peaks = {}
    with Azurite(in_memory=True) as apart:
        settings = azurite_settings.model_copy(
            update={
                "connection": type(azurite_settings.connection)(apart.connection_string),
                "lookahead": timedelta(0),
                "idle_interval": SECOND / 4,
            }
        )
        for waiting in (1_000, 100_000):
            async with stage_for(settings, endpoint=f"waiting-{waiting}") as stage:
                peaks[waiting] = await peak_of_a_leader(stage, waiting)
    print(", ".join(f"{waiting:,} rows: {peak:.1f} MB" for waiting, peak in peaks.items()))
    assert max(peaks.values()) < 150
    assert abs(peaks[100_000] - peaks[1_000]) <= 0.1 * peaks[1_000]
