"""The figures as tables that people read."""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.simulator.experiments import SQUEEZE, TIGHT_S

TABLES: dict[str, tuple[str, Sequence[str]]] = {
    "one_leader": (
        "One leader, everything due already: handed over and removed per second",
        ("case", "per_s", "requests_per_message", "most_in_flight", "processor", "refused_by"),
    ),
    "knobs": (
        "One setting after the other, without the limit per partition",
        ("knob", "value", "per_s", "requests_per_message", "most_in_flight", "processor"),
    ),
    "intake_beside": (
        "The same leader while others schedule messages",
        ("rows_go_to", "intake_per_s", "accepted_per_s", "per_s", "intake_refused"),
    ),
    "steady": (
        "Lateness in seconds against the rate, with as many scheduled as become due",
        ("rate", "seconds", "rows_go_to", "late_p50_s", "late_p99_s", "late_max_s", "requests_per_message"),
    ),
    "bursts": (
        "Many messages at one instant: lateness in seconds",
        ("at_once", "queues", "lookahead_s", "late_p50_s", "late_p99_s", "late_max_s", "per_s"),
    ),
    "tight": (
        f"A partition that takes less: what is left over after {TIGHT_S:g} seconds",
        ("partition_entities_s", "reads_count", "messages", "per_s", "waiting", "requests_per_message"),
    ),
    "squeezed": (
        SQUEEZE,
        ("second", "sends", "sends_refused", "most_in_flight", "gate_lowered_to"),
    ),
    "shards": (
        "Several leaders on one account",
        ("layout", "shards", "per_s", "consumed_per_s", "account_requests_per_s", "refused_by"),
    ),
    "idle": (
        "An hour without messages, for each shard",
        ("followers", "requests_per_hour", "cost_per_month", "currency"),
    ),
    "classic_model": (
        "The classic algorithm, as a model: pages of 50, waiting for the slowest",
        ("latency", "per_s", "requests_per_message", "slowest_row_s", "page_s"),
    ),
    "needs": (
        "What so many messages a day need",
        (
            "rows_go_to",
            "per_shard_s",
            "per_day",
            "peak_factor",
            "filled",
            "peak_per_s",
            "shards",
            "queues",
            "account_requests_per_s",
            "accounts",
        ),
    ),
}


def tables(figures: Mapping[str, Any]) -> str:
    """All of them, and how many messages came early, twice or not within their run."""
    results = figures["results"]
    texts = [table(title, names, results[key]) for key, (title, names) in TABLES.items()]
    runs = [record for records in results.values() for record in records if "messages" in record]
    counted = [
        f"{name} {sum(run[name] for run in runs):,}"
        for name in ("messages", "lost", "early", "duplicated", "waiting")
    ]
    texts.append(f"{len(runs)} runs: {', '.join(counted)} (when their run was ended)")
    return "\n\n".join(texts)


def table(title: str, names: Sequence[str], records: Sequence[Mapping[str, Any]]) -> str:
    """One table in plain text."""
    cells = [list(names), *([_shown(record[name]) for name in names] for record in records)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
