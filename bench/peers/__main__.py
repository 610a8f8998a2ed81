"""The peers alone: `python -m bench.peers [--quick] [--only celery]` prints their figures as JSON."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Collection

from bench.peers import PEERS, run_peers
from postdate.bench.figures import Figures
from postdate.bench.scale import FULL, QUICK, Scale
from postdate.errors import PostdateError


def main() -> int:
    """Measure, print, and say by the exit status whether all went well."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few messages: see that it works")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=(), metavar="PEER", help=", ".join(PEERS))
    arguments = parser.parse_args()
    try:
        figures = asyncio.run(_measure(QUICK if arguments.quick else FULL, arguments.only))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped", file=sys.stderr)
        return 130
    except PostdateError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps([one.as_json() for one in figures], indent=2, allow_nan=False))
    return 1 if any(one.failures for one in figures) else 0


async def _measure(scale: Scale, only: Collection[str]) -> list[Figures]:
    measuring = asyncio.current_task()
    assert measuring is not None
    # As Ctrl-C does: else servers and workers would be left behind.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, measuring.cancel)
    return await run_peers(scale, _say, only)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
