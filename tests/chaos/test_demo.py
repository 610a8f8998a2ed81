"""The main job as users run it: `postdate demo`."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import psutil
import pytest

from postdate.settings import child_environment

COMMAND = [sys.executable, "-m", "postdate", "demo"]


async def started(tmp_path: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *options,
        cwd=tmp_path,
        env=child_environment(TMPDIR=str(tmp_path), POSTDATE_LOOKAHEAD=None),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def test_a_killed_leader_loses_nothing_and_nothing_is_early(tmp_path):
    demo = await started(tmp_path, "--json", "--messages", "300", "--seconds", "20")
    output, progress = await asyncio.wait_for(demo.communicate(), 85)
    summary = json.loads(output)
    print(summary)
    assert (summary["problems"], summary["lost"], summary["early"]) == ([], 0, 0)
    assert demo.returncode == 0
    assert summary["duplicates"] <= 100
    assert summary["scheduled"] == 300
    assert summary["delivered"] + summary["cancelled"] + summary["to_error_queue"] == 300
    assert summary["to_error_queue"] == 1
    assert summary["takeover_s"] <= 20
    # Each part of the show took place.
    for part in ("cancelled", "moved", "via_row", "via_queue", "handed_over_at_kill", "killed_pid"):
        assert summary[part] > 0, part
    assert summary["lateness_p50_s"] <= summary["lateness_p99_s"] <= summary["lateness_max_s"]
    assert b"leader" in progress
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_stopped_in_the_middle_it_leaves_no_process_and_no_folder(tmp_path, number):
    demo = await started(tmp_path, "--messages", "50")
    assert demo.stdout is not None
    while b"scheduling" not in (line := await asyncio.wait_for(demo.stdout.readline(), 60)):
        assert line, "it ended by itself"
    children = psutil.Process(demo.pid).children(recursive=True)
    assert len(children) == 4  # Azurite and three `postdate run`
    demo.send_signal(number)
    _, said = await asyncio.wait_for(demo.communicate(), 30)
    assert demo.returncode == 130, said
    assert not [child for child in children if child.is_running()]
    assert list(tmp_path.iterdir()) == []
