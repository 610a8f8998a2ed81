"""The figures as pictures: `python -m bench.plots` draws those of bench/results.json anew."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.canvas import pyplot, save

Axes = Any
Found = Mapping[str, Any]

_ROOT = Path(__file__).parents[1]
#: Lateness below this is drawn as this: the axis is logarithmic, and bounds are no better known.
_LEAST_SECONDS = 1e-3
_COLOURS = {
    "postdate": "tab:blue",
    "postdate_lookahead_0": "tab:cyan",
    "classic": "tab:red",
    "limit": "grey",
    "celery": "tab:green",
    "dramatiq": "tab:orange",
    "procrastinate": "tab:purple",
    "apscheduler": "tab:brown",
}
_LABELS = {
    "postdate": "Postdate",
    "postdate_lookahead_0": "Postdate, lookahead 0",
    "classic": "classic",
    "classic_sdk": "classic on the SDK",
    "sdk_loop": "SDK loop, shared session",
    "sdk_loop_default": "SDK loop, default transport",
}


def draw(found: Found, folder: Path) -> list[str]:
    """Write all pictures for which there are figures; their names. Existing ones are replaced."""
    plt = pyplot()

    pictures: dict[str, Callable[[Axes, Found], bool]] = {
        "bench-drain": _drain,
        "bench-trickle": lambda axes, found: _lateness(axes, found, "trickle"),
        "bench-burst": lambda axes, found: _lateness(axes, found, "burst"),
        "bench-idle": _idle,
        "bench-cpu": _cpu,
        "bench-memory": _memory,
    }
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, picture in pictures.items():
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        if picture(axes, found):
            save(figure, folder / f"{name}.png")
            drawn.append(name)
        plt.close(figure)
    return drawn


def _drain(axes: Axes, found: Found) -> bool:
    rates = _each(found, "drain", "per_s")
    if found["limit"]:
        rates.append(("limit", found["limit"]["puts_and_deletes"]["per_s"]))
    axes.set_xlabel("messages a second")
    axes.set_title(f"Draining {found['scale']['drain']:,} overdue messages (limit: raw puts with deletes)")
    return _bars(axes, rates, "{:,.0f}")


def _lateness(axes: Axes, found: Found, workload: str) -> bool:
    drawn = False
    for one in found["contenders"]:
        lateness = one[workload]
        if lateness and lateness["curve"]:
            late = [max(_LEAST_SECONDS, value) for value in lateness["curve"]]
            # The share that is later, so that the tail is what one sees.
            later = [max(0.5, 100 - percent) for percent in range(101)]
            axes.plot(late, later, label=_label(one["name"]), color=_COLOURS.get(one["name"]))
            drawn = True
    scale = found["scale"]
    what = (
        f"{scale['trickle_rate']} messages a second for {scale['trickle_seconds']} s"
        if workload == "trickle"
        else f"{scale['burst']:,} messages due at one instant"
    )
    axes.set(xscale="log", yscale="log", xlabel="seconds late", ylabel="% of the messages are later")
    axes.set_title(f"Lateness: {what}")
    axes.grid(visible=True, which="major", alpha=0.3)
    if drawn:
        axes.legend()
    return drawn


def _idle(axes: Axes, found: Found) -> bool:
    axes.set_xscale("log")
    axes.set_xlabel("requests, commands or statements in an hour without messages")
    axes.set_title("What an idle hour costs")
    return _bars(axes, _each(found, "idle_hour", "requests"), "{:,.0f}")


def _cpu(axes: Axes, found: Found) -> bool:
    axes.set_xlabel("µs of the contender's own processor time for a drained message")
    axes.set_title("Processor time")
    return _bars(axes, _each(found, "drain", "client_cpu_us"), "{:,.0f}")


def _memory(axes: Axes, found: Found) -> bool:
    axes.set_xlabel("MB of the contender's own processes")
    axes.set_title(f"Memory while {found['scale']['waiting']:,} messages wait")
    return _bars(axes, _each(found, "memory", "client_mb"), "{:,.0f}")


def _each(found: Found, workload: str, figure: str) -> list[tuple[str, float]]:
    measured = [one for one in found["contenders"] if one[workload] and one[workload][figure] is not None]
    return [(one["name"], one[workload][figure]) for one in measured]


def _bars(axes: Axes, values: Sequence[tuple[str, float]], shape: str) -> bool:
    ordered = sorted(values, key=lambda value: value[1])
    bars = axes.barh(
        [_label(name) for name, _ in ordered],
        [value for _, value in ordered],
        color=[_COLOURS.get(name, "tab:olive") for name, _ in ordered],
    )
    axes.bar_label(bars, labels=[shape.format(value) for _, value in ordered], padding=3)
    axes.margins(x=0.12)
    return bool(ordered)


def _label(name: str) -> str:
    return _LABELS.get(name, name)


def main() -> None:
    """Draw what the last whole run found."""
    found = json.loads((_ROOT / "bench" / "results.json").read_text(encoding="utf-8"))
    for name in draw(found, _ROOT / "docs" / "images"):
        sys.stdout.write(f"{name}.png\n")


if __name__ == "__main__":
    main()
