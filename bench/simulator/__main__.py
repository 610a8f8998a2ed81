"""`python -m bench.simulator`: run all experiments, print them, and write figures and plots."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.simulator import plots, report
from bench.simulator.billion import needs
from bench.simulator.experiments import EXPERIMENTS
from bench.simulator.limits import Client, Service
from bench.simulator.runs import FULL, QUICK, Setting


def run(setting: Setting) -> dict[str, Any]:
    """All experiments; the same seed gives the same figures."""
    results: dict[str, Any] = {}
    for name, experiment in EXPERIMENTS.items():
        began = time.process_time()
        results[name] = experiment(setting)
        print(f"{name}: {time.process_time() - began:.1f} s of this machine's time", file=sys.stderr)
    return {
        "seed": setting.seed,
        "assumed": asdict(setting.service),
        "sizes": asdict(setting.sizes),
        "results": {**results, "needs": needs(results, setting.service.limits)},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, and do it."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulator", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few messages: to see that all works")
    parser.add_argument("--out", type=Path, help="write all figures there, as JSON")
    parser.add_argument("--images", type=Path, help="write the plots into this directory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--cpu-us",
        type=float,
        default=Client().per_message_s * 1e6,
        help="our processor time for each message handed over, in microseconds (default: %(default)g)",
    )
    chosen = parser.parse_args(arguments)
    setting = Setting(
        seed=chosen.seed,
        sizes=QUICK if chosen.quick else FULL,
        service=Service(client=Client(chosen.cpu_us / 1e6)),
    )
    figures = run(setting)
    print(report.tables(figures))
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if chosen.images:
        plots.draw(figures, chosen.images)


if __name__ == "__main__":
    main()
