"""Python workers that are killed while they migrate: each timeout is a row in the end, and once."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from migrate_cases import SqlStore, ids, waiting
from postgres_cases import running_postgres
from test_schedule_killed import wait_for_rows, workers

from postdate.spark.migrating import SqlSource, migrate, status

COUNT = 3_000


@pytest.fixture
def store(postdate_settings):
    with running_postgres() as text:
        made = SqlStore(SqlSource("postgresql", text), postdate_settings.endpoint)
        made.create()
        made.fill(COUNT)
        yield made


def test_tasks_that_are_killed_run_again_and_move_each_timeout_once(spark, reference, on_endpoint, store):
    def run():
        return migrate(spark, reference, store.source, run="killed", rows_per_part=1_000)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        wait_for_rows(on_endpoint, 300, running)
        victims = workers()
        assert not running.done()
        assert victims
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        told = running.result()
    assert (told.staged, told.moved, told.found, told.verified) == (COUNT, COUNT, COUNT, True)
    assert told.checksum_found == told.checksum_staged
    assert on_endpoint(waiting) == ids(COUNT)
    assert (store.rows(), store.tables()) == ([], [])
    assert status(reference, run="killed").phase == "completed"
