"""The benchmark: `python -m bench [--quick] [--skip-peers] [--only NAME ...]`."""

import argparse
import asyncio
import sys
import time

import psutil

from postdate.bench.ground import LocalGrounds
from postdate.bench.results import Results, Say
from postdate.bench.run import Bench, chosen, run_steps
from postdate.bench.scale import FULL, QUICK
from postdate.bench.steps import STEPS


def main() -> int:
    """Measure, write, and say by the exit status whether all went well."""
    arguments = _arguments()
    results = Results()
    bench = Bench(
        LocalGrounds(_cpu_of),
        QUICK if arguments.quick else FULL,
        results,
        _saying(time.monotonic()),
        _memory_of,
    )
    asyncio.run(run_steps(bench, chosen(STEPS, arguments.only)))
    for line in results.failed:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if results.failed else 0


def _arguments() -> argparse.Namespace:
    names = sorted({step.workload for step in STEPS} | {step.contender for step in STEPS})
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few messages: see that it works")
    parser.add_argument("--skip-peers", action="store_true", help="leave Celery and the others out")
    parser.add_argument("--only", nargs="+", choices=names, default=(), metavar="NAME", help=", ".join(names))
    return parser.parse_args()


def _cpu_of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _memory_of(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / (1 << 20)


def _saying(began: float) -> Say:
    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
