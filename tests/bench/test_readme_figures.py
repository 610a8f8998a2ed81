"""What the README says of speed is what the benchmark found last."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readmes_table_is_that_of_the_last_benchmark():
    found = json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))
    ours, classic = (
        next(one for one in found["contenders"] if one["name"] == name) for name in ("postdate", "classic")
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for workload, figure, form in (
        ("burst", "p99_s", lambda value: f"{value:.{1 if value >= 10 else 2}f} s"),
        ("trickle", "p99_s", lambda value: f"{value:.2f} s"),
        ("after_idle", "max_s", lambda value: f"{value:.{1 if value >= 10 else 2}f} s"),
        ("drain", "requests_per_message", lambda value: f"{value:.2f}"),
        ("idle_hour", "requests", str),
        ("drain", "per_s", lambda value: f"{value:.0f}"),
        ("kill", "longest_gap_s", lambda value: f"{value:.1f} s"),
    ):
        row = f"| {form(ours[workload][figure])} | {form(classic[workload][figure])} |"
        assert row in readme, f"{workload}: the README lacks {row}"
    assert f"and {found['ratios']['drain_vs_classic']:.1f} is what we reached" in readme
