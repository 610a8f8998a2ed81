"""A driver of its own: drains for each line of JSON that comes in, and prints what became of it.

A line: `file` (of settings), `options` (of the drain). Tasks get four attempts, and copies where they are slow.
"""

import json
import sys
from dataclasses import asdict

from postdate.errors import PostdateError
from postdate.spark import SettingsReference, local_session
from postdate.spark.draining import DrainOptions, drain


def main() -> None:
    session = local_session(
        "local[2,4]",
        spark__speculation="true",
        spark__speculation__interval="100ms",
        spark__speculation__multiplier="1.1",
        spark__speculation__quantile="0.1",
        spark__speculation__minTaskRuntime="100ms",
    )
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = drain(session, SettingsReference(file=order["file"]), DrainOptions(**order["options"]))
            print(json.dumps(asdict(told)), flush=True)
        except PostdateError as error:
            print(json.dumps({"error": str(error)}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
