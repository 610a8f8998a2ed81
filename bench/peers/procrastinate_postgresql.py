"""Procrastinate on PostgreSQL."""

from contextlib import AbstractAsyncContextManager

from bench.peers.contender import Contender
from bench.peers.servers import PostgreSQL, run_postgresql

_CONCURRENCY = 10


class ProcrastinatePostgreSQL(Contender):
    """One worker, asyncio."""

    name = "procrastinate"
    distribution = "procrastinate"
    app = "procrastinate_app"
    worker_arguments = (
        *("-m", "procrastinate", "--log-level=warning", "--app=bench.peers.apps.procrastinate_app.app"),
        *("worker", f"--concurrency={_CONCURRENCY}"),
    )
    notes = (
        PostgreSQL.NOTE,
        f"one worker, asyncio, concurrency {_CONCURRENCY} (default: 1), logs warnings only, else defaults",
        "delayed jobs are found by polling, every 5 s by default: one burst meets one phase of it, by chance",
        "scheduled by batch_defer, up to 1,000 messages with the same due time in one call",
        "with the manual's periodic task that retries stalled jobs, every 10 minutes",
    )
    recovery_s = 600.0
    recovery = "the manual's periodic task, every 10 minutes"

    def serve(self) -> AbstractAsyncContextManager[PostgreSQL]:
        """PostgreSQL."""
        return run_postgresql()

    def held(self, server: PostgreSQL) -> set[int]:
        """Jobs that wait or were begun."""
        query = (
            "SELECT (args->>'number')::int FROM procrastinate_jobs"
            " WHERE task_name = 'note' AND status IN ('todo', 'doing')"
        )
        return {number for (number,) in server.rows(query)}
