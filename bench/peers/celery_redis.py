"""Celery on Redis."""

import base64
import json
from contextlib import AbstractAsyncContextManager

from bench.peers.contender import Contender
from bench.peers.servers import Redis, run_redis


class CeleryRedis(Contender):
    """One worker with its default pool: processes, one for each core."""

    name = "celery"
    distribution = "celery"
    app = "celery_app"
    worker_arguments = ("-m", "celery", "-A", "bench.peers.apps.celery_app", "worker")
    notes = (
        Redis.NOTE,
        "one worker, pool and concurrency by default (prefork, one process for each core)",
        "scheduled by apply_async with an ETA, one call for each message",
        "task_acks_late and task_reject_on_worker_lost on, results ignored, the rest by default",
    )
    recovery_s = 3600.0
    recovery = "Redis's visibility timeout, 1 h by default"

    def serve(self) -> AbstractAsyncContextManager[Redis]:
        """Redis; Celery calls no scripts."""
        return run_redis()

    def held(self, server: Redis) -> set[int]:
        """What is queued, and what workers took and did not acknowledge."""
        waiting = [json.loads(message) for message in server.client.lrange("celery", 0, -1)]
        taken = [json.loads(entry)[0] for entry in server.client.hvals("unacked")]
        return {json.loads(base64.b64decode(message["body"]))[0][0] for message in waiting + taken}
