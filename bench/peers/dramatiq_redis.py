"""Dramatiq on Redis."""

import json
from contextlib import AbstractAsyncContextManager

from bench.peers.contender import Contender
from bench.peers.servers import Redis, run_redis


class DramatiqRedis(Contender):
    """One worker with its default pool: processes, one for each core, of eight threads each."""

    name = "dramatiq"
    distribution = "dramatiq"
    app = "dramatiq_app"
    worker_arguments = ("-m", "dramatiq", "bench.peers.apps.dramatiq_app")
    notes = (
        Redis.NOTE,
        "one worker, processes and threads by default (one process for each core, 8 threads in each)",
        "scheduled by send_with_options with a delay in whole milliseconds, one call for each message",
        "a request is a call of its script, whatever that does inside Redis",
    )
    recovery_s = 60.0
    recovery = "a heartbeat that is 60 s old, seen by one request in 1,000 that looks"

    def serve(self) -> AbstractAsyncContextManager[Redis]:
        """Redis, called through scripts."""
        return run_redis(scripted=True)

    def held(self, server: Redis) -> set[int]:
        """What is queued or taken, due or delayed."""
        queues = ("dramatiq:default.msgs", "dramatiq:default.DQ.msgs")
        messages = [json.loads(message) for queue in queues for message in server.client.hvals(queue)]
        return {message["args"][0] for message in messages}
