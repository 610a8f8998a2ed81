"""One machine-readable record of a run, and a table of it for people."""

import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from postdate.bench.figures import Figures, finite
from postdate.bench.ratios import faster_classic, ratios, verdicts
from postdate.bench.results import Results
from postdate.bench.scale import Scale
from postdate.clock import SystemClock

_DISTRIBUTIONS = (
    "postdate",
    "azure-core",
    "azure-data-tables",
    "azure-storage-queue",
    "azure-storage-blob",
    "aiohttp",
)


def versions() -> dict[str, str]:
    """What ran here."""
    return {"python": platform.python_version(), **{name: version(name) for name in _DISTRIBUTIONS}}


def record(
    results: Results,
    *,
    scale: Scale,
    seconds: float,
    versions: Mapping[str, str],
    machine: Mapping[str, Any],
    peers: Iterable[Figures] = (),
) -> dict[str, Any]:
    """All that was found, as JSON can hold it: what is infinite or not a number becomes null."""
    found = ratios(results)
    classic = faster_classic(results)
    peers = list(peers)
    return {
        "ratios": {name: finite(value) for name, value in found.items()},
        "goals": {name: finite(verdict) for name, verdict in verdicts(found).items()},
        "classic": None if classic is None else classic.name,
        "limit": None if results.limit is None else finite(asdict(results.limit)),
        "rounds": results.rounds,
        "contenders": [one.as_json() for one in (*results.figures.values(), *peers)],
        "details": finite(results.details),
        "scale": asdict(scale),
        "versions": dict(versions),
        "machine": dict(machine),
        "date": SystemClock().now().isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "failures": [
            *results.failed,
            *(f"{one.name}: {failure}" for one in peers for failure in one.failures),
        ],
    }


def contender_rows(contenders: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each contender, as `CONTENDER_COLUMNS`; from the record, so that it may be an old one."""
    return [
        [
            one["name"],
            _of(one["drain"], "per_s", "{:,.0f}"),
            _of(one["drain"], "requests_per_message", "{:.2f}"),
            _of(one["drain"], "client_cpu_us", "{:,.0f}"),
            _late(one["trickle"]),
            _late(one["burst"]),
            _late(one["after_idle"]),
            _of(one["idle_hour"], "requests", "{:,.0f}"),
            _of(one["memory"], "client_mb", "{:,.0f}"),
            _kill(one["kill"]),
        ]
        for one in contenders
    ]


CONTENDER_COLUMNS = [
    "contender",
    "drained a second",
    "requests a message",
    "CPU a message, µs",
    "trickle: late p50 / p99, s",
    "burst: late p50 / p99, s",
    "after quiet: late p50 / p99, s",
    "requests in an idle hour",
    "memory, MB",
    "killed: lost / doubled / gap",
]


def ratio_rows(goals: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A row for each goal: name, what was reached, what should be, and whether it is met."""
    words = {True: "met", False: "not met", None: "not measured"}
    return [
        [
            name,
            _number(verdict["ratio"]),
            str(verdict["goal"]),
            words[verdict["met"]],
            str(verdict["meaning"]),
        ]
        for name, verdict in goals.items()
    ]


RATIO_COLUMNS = ["ratio", "reached", "goal", "", "what it is"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _of(figures: Mapping[str, Any] | None, name: str, shape: str) -> str:
    value = None if figures is None else figures[name]
    return "-" if value is None else shape.format(value)


def _late(lateness: Mapping[str, Any] | None) -> str:
    if lateness is None:
        return "-"
    ends = (lateness["p50_s"], lateness["p99_s"])
    return " / ".join("never" if end is None else f"{end:.2f}" for end in ends)


def _kill(kill: Mapping[str, Any] | None) -> str:
    if kill is None:
        return "-"
    kept = f" ({kill['outstanding']} outstanding)" if kill["outstanding"] else ""
    return f"{kill['lost']}{kept} / {kill['duplicated']} / {kill['longest_gap_s']:.1f} s"
