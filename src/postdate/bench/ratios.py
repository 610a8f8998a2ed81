"""The figures that are compared with their goals: one number each, from one run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from postdate.bench.figures import Drain, Figures
from postdate.bench.results import CLASSIC, CLASSIC_SDK, LIMIT, POSTDATE, POSTDATE_0, SDK_LOOP, Results

Number = float | int


@dataclass(frozen=True, slots=True)
class Goal:
    """What a ratio should be."""

    #: At least (True) or at most.
    at_least: bool
    value: Number
    meaning: str

    def met(self, ratio: Number) -> bool:
        """Whether it is."""
        return ratio >= self.value if self.at_least else ratio <= self.value

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.value:g}"


GOALS: dict[str, Goal] = {
    "drain_vs_classic": Goal(True, 3, "messages a second, against the faster form of classic"),
    "drain_vs_limit": Goal(True, 0.8, "messages a second, against raw puts with deletes"),
    "burst_p99_late_s": Goal(False, 1.0, "seconds late, 99th percentile, of a burst at one instant"),
    "trickle_p50_late_s": Goal(False, 0.1, "seconds late, median, of a trickle"),
    "trickle_p99_late_s": Goal(False, 0.5, "seconds late, 99th percentile, of a trickle"),
    "early": Goal(False, 0, "messages before their due time, in all workloads, lookahead on and off"),
    "requests_per_message": Goal(False, 1.03, "requests of the waiting side for each message drained"),
    "idle_requests_vs_classic": Goal(False, 0.2, "requests of a leader's first idle hour, against classic's"),
    "cpu_vs_sdk_loop": Goal(False, 0.5, "processor time a message, against one SDK send and one SDK delete"),
    "memory_1m_vs_10k": Goal(False, 1.1, "peak memory over a million due rows, against ten thousand"),
}

_PUNCTUAL = ("trickle", "burst", "after_idle")


def faster_classic(results: Results) -> Figures | None:
    """The form of classic that drained faster: the one that ratios are against."""
    drained = [
        figures for name in (CLASSIC, CLASSIC_SDK) if (figures := results.figures.get(name)) and figures.drain
    ]
    return max(drained, key=_rate, default=None)


def ratios(results: Results) -> dict[str, Number]:
    """Those whose figures were measured, by name."""
    found = {name: ratio(results) for name, ratio in _RATIOS.items()}
    return {name: value for name, value in found.items() if value is not None}


def verdicts(found: Mapping[str, Number]) -> dict[str, dict[str, Any]]:
    """For each goal: the ratio, None if it was not measured, and whether it is met."""
    return {
        name: {
            "ratio": found.get(name),
            "goal": str(goal),
            "met": goal.met(found[name]) if name in found else None,
            "meaning": goal.meaning,
        }
        for name, goal in GOALS.items()
    }


def _rate(figures: Figures) -> float:
    return figures.drain["per_s"] if figures.drain else 0.0


def _drain(results: Results, contender: str) -> Drain | None:
    figures = results.figures.get(contender)
    return figures.drain if figures else None


def _vs_classic(results: Results) -> Number | None:
    ours, classic = _drain(results, POSTDATE), faster_classic(results)
    return ours["per_s"] / _rate(classic) if ours and classic else None


def _vs_limit(results: Results) -> Number | None:
    """The middle of the rounds' ratios."""
    rounds = zip(results.rounds.get(POSTDATE, ()), results.rounds.get(LIMIT, ()), strict=False)
    shares = sorted(ours / limit for ours, limit in rounds)
    return shares[len(shares) // 2] if shares else None


def _late(workload: str, percentile: str) -> Callable[[Results], Number | None]:
    def ratio(results: Results) -> Number | None:
        figures = results.figures.get(POSTDATE)
        lateness = getattr(figures, workload, None)
        return None if lateness is None else float(getattr(lateness, percentile))

    return ratio


def _early(results: Results) -> Number | None:
    measured = [
        told["lateness"]["early"]
        for contender in (POSTDATE, POSTDATE_0)
        for name, told in results.details.get(contender, {}).items()
        if name.startswith(_PUNCTUAL)
    ]
    return sum(measured) if measured else None


def _requests(results: Results) -> Number | None:
    ours = _drain(results, POSTDATE)
    return ours["requests_per_message"] if ours else None


def _idle(results: Results) -> Number | None:
    hours = [
        figures.idle_hour["requests"]
        for name in (POSTDATE, CLASSIC)
        if (figures := results.figures.get(name)) is not None and figures.idle_hour is not None
    ]
    return hours[0] / hours[1] if len(hours) == 2 and hours[1] else None


def _cpu(results: Results) -> Number | None:
    ours, loop = _drain(results, POSTDATE), _drain(results, SDK_LOOP)
    return ours["client_cpu_us"] / loop["client_cpu_us"] if ours and loop else None


def _memory(results: Results) -> Number | None:
    flat = results.details.get(POSTDATE, {}).get("flat")
    return flat["many"]["peak_mb"] / flat["few"]["peak_mb"] if flat else None


_RATIOS: dict[str, Callable[[Results], Number | None]] = {
    "drain_vs_classic": _vs_classic,
    "drain_vs_limit": _vs_limit,
    "burst_p99_late_s": _late("burst", "p99_s"),
    "trickle_p50_late_s": _late("trickle", "p50_s"),
    "trickle_p99_late_s": _late("trickle", "p99_s"),
    "early": _early,
    "requests_per_message": _requests,
    "idle_requests_vs_classic": _idle,
    "cpu_vs_sdk_loop": _cpu,
    "memory_1m_vs_10k": _memory,
}
