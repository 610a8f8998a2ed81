"""A driver of its own: drains for each line of JSON that comes in, and prints what became of it.

A line: `reference` (of settings), `options` (of the drain). Each task has four attempts.
"""

import json
import sys
from dataclasses import asdict

from postdate.errors import PostdateError
from postdate.spark import SettingsReference, local_session
from postdate.spark.draining import DrainOptions, drain


def main() -> None:
    session = local_session("local[2,4]")
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            told = drain(session, SettingsReference(**order["reference"]), DrainOptions(**order["options"]))
            print(json.dumps(asdict(told)), flush=True)
        except PostdateError as error:
            print(json.dumps({"error": str(error)}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
