"""A process that schedules: it takes batches on standard input, and answers when each is durable."""

import importlib
import json
import sys

from bench.peers.wiring import Schedule

#: The answer once the app is ready, and after each batch.
READY = "ready"
DONE = "scheduled"


def serve(schedule: Schedule) -> None:
    """Schedule each line's batch, a JSON list of messages, until the end of the input."""
    print(READY, flush=True)
    for line in sys.stdin:
        schedule([(number, due_ms) for number, due_ms in json.loads(line)])
        print(DONE, flush=True)


def main() -> None:
    """Schedule with the app that the command line names."""
    app = importlib.import_module(sys.argv[1])
    app.prepare()
    serve(app.schedule)


if __name__ == "__main__":
    main()
