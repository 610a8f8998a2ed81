"""A cluster of two hosts: a task runs on both at once, an executor is killed; the rows asked for, once each."""

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Timer

import psutil
import pytest

from postdate.settings import child_environment

PROGRAM = Path(__file__).with_name("cluster_program.py")
FIRST = datetime(2040, 1, 1, 7, tzinfo=UTC)
ENDS_AFTER = 300


class Cluster:
    """The program, and the processes that it starts."""

    def __init__(self, program, folder):
        self.program = program
        self.folder = folder

    def schedule(self, **order):
        print(json.dumps(order), file=self.program.stdin, flush=True)

    def told(self):
        return json.loads(self.program.stdout.readline())

    async def until(self, look):
        """Look often: what is waited for soon is over."""
        while not await look():
            assert self.program.poll() is None, "it ended before it could be disturbed"
            await asyncio.sleep(0.05)  # a look takes of a core, which what is looked at needs too

    def executors(self):
        """JVMs that run tasks, one on each host."""
        found = []
        for process in psutil.Process(self.program.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                    found.append(process)
        return found

    def events(self, name):
        """What Spark's event log tells of this name; each answer comes when all before it is there."""
        (log,) = (path for path in self.folder.iterdir() if path.is_file())
        told = [json.loads(line) for line in log.read_text().splitlines()]
        return [event for event in told if event["Event"] == name]

    def written(self):
        """Texts of Spark's: the event log, and logs of the executors."""
        return [path.read_text(errors="replace") for path in self.folder.rglob("*") if path.is_file()]

    def kill(self):
        for process in psutil.Process(self.program.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.program.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with subprocess.Popen(
        [sys.executable, PROGRAM, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(SPARK_LOCAL_IP="127.0.0.1"),  # where all of it listens
    ) as program:
        made = Cluster(program, folder)
        too_late = Timer(ENDS_AFTER, made.kill)
        too_late.start()
        try:
            assert program.stdout.readline() == "ready\n"
            yield made
            program.stdin.close()
            assert program.wait() == 0
        finally:
            too_late.cancel()
            if program.poll() is None:
                made.kill()


async def waiting(endpoint, hour=0, start=0, end=24 * 60, limit=None):
    """Due times of the messages that wait: all, or those from one minute of an hour to another."""
    first = FIRST + timedelta(hours=hour)
    bounds = {"start": first + timedelta(minutes=start), "end": first + timedelta(minutes=end)}
    return [message.due_at async for message in endpoint.upcoming(**bounds, limit=limit)]


@contextmanager
def halted(executor):
    """The Python processes in which its tasks run stand still."""
    processes = executor.children(recursive=True)
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(processes):  # a parent may have been told to end its child
            with suppress(psutil.NoSuchProcess):
                process.resume()


async def by_both(cluster, endpoint):
    """Stalls the host that writes one of the first two hours, then the one that writes a copy of it."""
    stalled, other = cluster.executors()
    await cluster.until(lambda: waiting(endpoint, limit=1))
    with ExitStack() as copy:
        with halted(stalled):
            # By the other, whose first task has ended by then.
            await cluster.until(lambda: waiting(endpoint, 2, 59, 60))
            (amid,) = [hour for hour in (0, 1) if not await waiting(endpoint, hour, 59, 60)]
            stored = Counter(due.minute for due in await waiting(endpoint, amid, 0, 60))
            behind = next(minute for minute in range(60) if stored[minute] < 100)

            async def copied():
                return len(await waiting(endpoint, amid, behind, behind + 1)) > stored[behind]

            await cluster.until(copied)
            copy.enter_context(halted(other))
        # What the copy has written, its late original writes too.
        return cluster.told()


def test_a_task_that_two_hosts_run_at_once_writes_nothing_twice(
    cluster, reference, on_endpoint, azurite_connection
):
    hours = [6_000, 6_000, 200]  # a task each, for two cores; chunks: three, three, one
    cluster.schedule(settings=reference.file, run="copied", hours=hours, rows_per_bucket=6_000)
    told = on_endpoint(partial(by_both, cluster))
    assert (told["stored"], told["refused"]) == (sum(hours), 0)
    assert told["already_there"] > 0, "written by both"
    assert len(on_endpoint(waiting)) == sum(hours)
    started = cluster.events("SparkListenerTaskStart")
    storing = max(event["Stage ID"] for event in started)
    assert any(event["Task Info"]["Speculative"] for event in started if event["Stage ID"] == storing)
    key = re.search("AccountKey=([^;]+)", azurite_connection)[1]
    assert not any(key in text for text in cluster.written()), "secrets don't travel in plans and logs"


def test_an_executor_that_is_killed_loses_and_doubles_nothing(cluster, reference, on_endpoint):
    async def begun(endpoint):
        return len(await waiting(endpoint)) >= 300

    victim, _ = cluster.executors()
    cluster.schedule(settings=reference.file, run="killed", hours=[4_000], rows_per_bucket=500)
    on_endpoint(lambda endpoint: cluster.until(partial(begun, endpoint)))
    victim.kill()
    told = cluster.told()
    assert (told["stored"], told["refused"]) == (4_000, 0)
    assert len(on_endpoint(waiting)) == 4_000
