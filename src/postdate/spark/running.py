"""Running one of Spark's actions so that people see how far it is, and can stop it."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from postdate.spark.failures import told_in_one_line

T = TypeVar("T")
#: Tasks that ended, of how many.
Progress = Callable[[int, int], object]
_EVERY_SECONDS = 0.25


def run_action(session: SparkSession, action: Callable[[], T], progress: Progress | None = None) -> T:
    """The result of an action, which runs in a thread of its own.

    Ctrl-C cancels its tasks; a task that is not between two of its steps may still end the one it is at.

    Raises:
        PostdateError: what went wrong in a task, in one line.
    """
    context, group = session.sparkContext, f"postdate-{uuid.uuid4().hex[:8]}"

    def act() -> T:
        context.setJobGroup(group, "postdate", interruptOnCancel=True)
        return action()

    with told_in_one_line(), ThreadPoolExecutor(1, "postdate-spark") as threads:
        running = threads.submit(inheritable_thread_target(session)(act))
        try:
            while not wait([running], timeout=_EVERY_SECONDS).done:
                if progress is not None:
                    progress(*_ended(session, group))
        except BaseException:
            context.cancelJobGroup(group)
            raise
        result: T = running.result()
        return result


def _ended(session: SparkSession, group: str) -> tuple[int, int]:
    """Tasks of the action's jobs so far: ended, and all."""
    tracker = session.sparkContext.statusTracker()
    stages = [
        stage
        for job_id in tracker.getJobIdsForGroup(group)
        if (job := tracker.getJobInfo(job_id)) is not None
        for stage_id in job.stageIds
        if (stage := tracker.getStageInfo(stage_id)) is not None
    ]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
