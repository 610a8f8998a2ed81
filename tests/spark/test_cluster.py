"""Executors of their own, one of them killed: the rows asked for, once.

Speculation is on; no copy of a task was seen to start on one host, so that is not what this shows.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

PROGRAM = Path(__file__).with_name("cluster_program.py")
ROWS = 4_000


async def count(endpoint):
    return len([row async for row in endpoint.parts.backend.store.upcoming()])


def executors(driver):
    """JVMs that run tasks for the program."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def test_an_executor_that_is_killed_loses_and_doubles_nothing(reference, on_endpoint):
    with subprocess.Popen(
        [sys.executable, PROGRAM, reference.file, str(ROWS)], stdout=subprocess.PIPE, text=True
    ) as program:
        while on_endpoint(count) < 300:
            assert program.poll() is None, "it ended before it could be disturbed"
            time.sleep(0.2)  # executors that start need the core that a look takes
        victims = executors(program.pid)
        assert len(victims) == 2
        os.kill(victims[0], signal.SIGKILL)
        printed, _ = program.communicate(timeout=240)
    told = json.loads(printed)
    assert (told["stored"], told["refused"]) == (ROWS, 0)
    assert on_endpoint(count) == ROWS
