"""The benchmark: all contenders under the same workloads, in one run on this machine."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from bench.machine import cpu_seconds, machine, memory_mb, servers
from bench.peers import PEERS, run_peers
from bench.plots import draw
from postdate.bench.figures import Figures
from postdate.bench.ground import LocalGrounds
from postdate.bench.report import (
    CONTENDER_COLUMNS,
    RATIO_COLUMNS,
    contender_rows,
    ratio_rows,
    record,
    versions,
)
from postdate.bench.results import Results, Say
from postdate.bench.run import Bench, chosen, run_steps
from postdate.bench.scale import FULL, QUICK
from postdate.bench.steps import STEPS
from postdate.clock import SystemClock
from postdate.errors import PostdateError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results.json"
IMAGES = ROOT / "docs" / "images"


def main() -> int:
    """Measure, write, and say by the exit status whether all went well."""
    arguments = _arguments()
    whole = not (arguments.quick or arguments.only or arguments.skip_peers)
    out = arguments.out or (RESULTS if whole else None)
    found = asyncio.run(_measure(arguments, out))
    _print(RATIO_COLUMNS, ratio_rows(found["goals"]))
    _print(CONTENDER_COLUMNS, contender_rows(found["contenders"]))
    if out:
        _write(found, out)
        print(f"written: {out.name}")
    images = arguments.images or (IMAGES if whole else None)
    if images:
        draw(found, images)
    for line in found["failures"]:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if found["failures"] else 0


def _arguments() -> argparse.Namespace:
    names = sorted({step.workload for step in STEPS} | {step.contender for step in STEPS})
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog="A whole run writes bench/results.json and docs/images/bench-*.png.",
    )
    parser.add_argument("--quick", action="store_true", help="few messages: see that it works")
    parser.add_argument("--skip-peers", action="store_true", help="leave Celery and the others out")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*names, *PEERS],
        default=(),
        metavar="NAME",
        help=f"workloads and contenders: {', '.join(names)}; {', '.join(PEERS)}",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the figures as JSON")
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="where to draw the plots")
    return parser.parse_args()


def _write(found: dict[str, Any], out: Path) -> None:
    out.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")


async def _measure(arguments: argparse.Namespace, out: Path | None) -> dict[str, Any]:
    clock = SystemClock()
    began = clock.monotonic()
    scale = QUICK if arguments.quick else FULL

    def say(text: str) -> None:
        print(f"{clock.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    results = Results()
    ours = [name for name in arguments.only if name not in PEERS]
    if ours or not arguments.only:
        bench = Bench(LocalGrounds(cpu_seconds), scale, results, say, memory_mb)
        await run_steps(bench, chosen(STEPS, ours))
    peers: list[Figures] = []

    def so_far() -> dict[str, Any]:
        return record(
            results,
            scale=scale,
            seconds=clock.monotonic() - began,
            versions=versions() | servers(),
            machine=machine(),
            peers=peers,
        )

    theirs = [name for name in arguments.only if name in PEERS]
    if not arguments.skip_peers and (theirs or not arguments.only):
        if out:
            _write(so_far(), out)  # the peers take as long again, and may be interrupted
        peers = await _peers(arguments.quick, say, theirs, results)
    return so_far()


async def _peers(quick: bool, say: Say, only: list[str], results: Results) -> list[Figures]:
    try:
        return await run_peers(QUICK if quick else FULL, say, only)
    except PostdateError as error:
        results.failures.append(f"peers: {error}")
        return []


def _print(columns: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    print()
    for row in (columns, *rows):
        print("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
