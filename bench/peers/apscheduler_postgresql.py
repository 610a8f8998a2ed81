"""APScheduler with its jobs on PostgreSQL."""

from contextlib import AbstractAsyncContextManager

from bench.peers.contender import Contender
from bench.peers.servers import PostgreSQL, Server, run_postgresql


class APSchedulerPostgreSQL(Contender):
    """One process with the scheduler, which runs the jobs in its default pool of threads."""

    name = "apscheduler"
    distribution = "apscheduler"
    app = "apscheduler_app"
    worker_arguments = ("-m", "bench.peers.apps.apscheduler_worker")
    notes = (
        PostgreSQL.NOTE,
        "BackgroundScheduler with SQLAlchemyJobStore, pool by default (10 threads)",
        "misfire_grace_time None: by default a job that is more than a second late is not run",
        "scheduled by add_job, one call for each message, in the process that runs the scheduler",
        "what is due or waits before it starts was added by another: that could not wake it later",
    )
    several = False
    worker_schedules = True
    recovery_s = 0.0
    recovery = "none: a job is removed when it is handed to the pool"

    def serve(self) -> AbstractAsyncContextManager[PostgreSQL]:
        """PostgreSQL."""
        return run_postgresql()

    def url(self, server: Server) -> str:
        """As SQLAlchemy spells it, with the driver."""
        return server.url.replace("postgresql:", "postgresql+psycopg:")

    def held(self, server: PostgreSQL) -> set[int]:
        """Jobs that are stored."""
        return {int(number) for (number,) in server.rows("SELECT id FROM apscheduler_jobs")}
