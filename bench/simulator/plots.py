"""The figures as pictures."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.canvas import pyplot, save
from bench.simulator.experiments import SQUEEZE

Axes = Any


def draw(figures: Mapping[str, Any], directory: Path) -> None:
    """Write all pictures; an existing one is replaced."""
    plt = pyplot()

    pictures: dict[str, Callable[[Axes, Mapping[str, Any]], None]] = {
        "scale-one-leader": _one_leader,
        "scale-intake": _intake,
        "scale-bursts": _bursts,
        "scale-squeezed": _squeezed,
        "scale-shards": _shards,
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        picture(axes, figures["results"])
        save(figure, directory / f"{name}.png")


def _one_leader(axes: Axes, results: Mapping[str, Any]) -> None:
    records = [*reversed(results["one_leader"])]
    bars = axes.barh([r["case"] for r in records], [r["per_s"] for r in records])
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    [classic] = [r for r in results["classic_model"] if r["latency"] == 1.0]
    axes.axvline(classic["per_s"], linestyle="--", color="grey")
    axes.margins(x=0.12)
    axes.set_xlabel("handed over per second (dashed: classic, a model)")
    axes.set_title("One leader, and one limit after the other gone")


def _intake(axes: Axes, results: Mapping[str, Any]) -> None:
    records = results["intake_beside"]
    for where in dict.fromkeys(r["rows_go_to"] for r in records):
        mine = [r for r in records if r["rows_go_to"] == where]
        axes.plot(
            [r["intake_per_s"] for r in mine], [r["per_s"] for r in mine], "o-", label=f"rows go: {where}"
        )
    most = max(r["intake_per_s"] for r in records)
    axes.plot([0, most], [0, most], ":", color="grey", label="as many handed over as scheduled")
    axes.set(xlabel="scheduled per second", ylabel="handed over per second", ylim=(0, None))
    axes.set_title("One leader, while others schedule into its table")
    axes.legend()


def _bursts(axes: Axes, results: Mapping[str, Any]) -> None:
    records = results["bursts"]
    for at_once in dict.fromkeys(r["at_once"] for r in records):
        mine = [r for r in records if r["at_once"] == at_once and r["queues"] > 1]
        label = f"{at_once:,} messages"
        axes.plot([r["lookahead_s"] for r in mine], [r["late_max_s"] for r in mine], "o-", label=label)
    axes.set_yscale("symlog", linthresh=1)
    axes.set(xlabel="lookahead, seconds", ylabel="lateness of the last, seconds", ylim=(0, None))
    axes.set_title("A burst at one instant, handed over by one leader")
    axes.legend()


def _squeezed(axes: Axes, results: Mapping[str, Any]) -> None:
    records = results["squeezed"]
    seconds = [r["second"] for r in records]
    for name, label in (("sends", "sends accepted"), ("sends_refused", "sends refused")):
        axes.plot(seconds, [r[name] for r in records], "o-", label=label)
    axes.set(xlabel="seconds", ylabel="per second", ylim=(0, None))
    right = axes.twinx()
    right.step(seconds, [r["most_in_flight"] for r in records], "--", color="grey", where="mid")
    right.set(ylabel="most sends under way at once (dashed)", ylim=(0, None))
    axes.set_title(SQUEEZE)
    axes.legend()


def _shards(axes: Axes, results: Mapping[str, Any]) -> None:
    records = results["shards"]
    for layout in dict.fromkeys(r["layout"] for r in records):
        mine = [r for r in records if r["layout"] == layout]
        axes.plot([r["shards"] for r in mine], [r["per_s"] for r in mine], "o-", label=layout)
    axes.axhline(1e9 / 86_400, linestyle=":", color="grey", label="a billion a day, mean")
    axes.axhline(3e9 / 86_400, linestyle="--", color="grey", label="a billion a day, peak of 3")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted({r["shards"] for r in records}))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="shards on one account", ylabel="handed over per second")
    axes.set_title("Several leaders on one account")
    axes.legend()
