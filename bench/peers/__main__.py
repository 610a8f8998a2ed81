"""The peers alone: `python -m bench.peers [--quick] [--only celery]` prints their figures as JSON."""

import argparse
import asyncio
import json
import sys

from bench.peers import PEERS, run_peers
from postdate.bench.scale import FULL, QUICK
from postdate.errors import PostdateError


def main() -> int:
    """Measure, print, and say by the exit status whether all went well."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few messages: see that it works")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=(), metavar="PEER", help=", ".join(PEERS))
    arguments = parser.parse_args()
    try:
        figures = asyncio.run(run_peers(QUICK if arguments.quick else FULL, _say, arguments.only))
    except PostdateError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps([one.as_json() for one in figures], indent=2, allow_nan=False))
    return 1 if any(one.failures for one in figures) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
