"""The simulator runs the real engine: nothing lost, never early, the same figures for the same seed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.simulator import __main__ as program
from bench.simulator import plots, report
from bench.simulator.billion import need, sustained_per_s
from bench.simulator.classic import classic
from bench.simulator.experiments import idle
from bench.simulator.limits import Latencies, Limits, Spread
from bench.simulator.runs import Setting, Sizes, burst, drain, flow, in_this_hour

TINY = Sizes(
    drain=300,
    per_shard=100,
    shards=(1, 2),
    consumed_shards=(2,),
    wide_shards=(1,),
    steady_s=2.0,
    overload_s=2.0,
    rates=(20,),
    overload=50,
    burst=200,
    large_burst=300,
    concurrency=(8,),
    unremoved=(50,),
    latency_factors=(1.0,),
    cpu_us=(350,),
    intake=(0, 100),
    tight=(2_000,),
    tight_messages=300,
    idle_s=600.0,
)


def squeezed(seed):
    """A run in which the service refuses much, so that every kind of back-off takes part."""
    setting = Setting(seed=seed)
    limits = {"queue_messages_s": 300.0, "partition_entities_s": 900.0}
    return drain(setting, setting.limited(**limits), messages=1_200, queues=2)


# --- the engine -----------------------------------------------------------------------------------


def test_a_flow_loses_nothing_doubles_nothing_and_is_never_early():
    world, figures = flow(Setting(seed=2), 50, 20.0, due=in_this_hour)
    assert (figures.messages, figures.lost, figures.duplicated, figures.early) == (1_000, 0, 0, 0)
    assert figures.late_max_s < 1.1
    assert len(world.arrivals) == 1_000


def test_a_burst_within_the_lookahead_is_late_by_less_than_a_second():
    figures = burst(Setting(seed=2), 2_000, 30.0, queues=1)
    assert (figures.lost, figures.waiting, figures.early) == (0, 0, 0)
    assert figures.late_max_s < 1.1


def test_without_lookahead_a_burst_takes_the_time_that_it_takes():
    figures = burst(Setting(seed=2), 4_000, 0.0, queues=1)
    assert (figures.lost, figures.waiting, figures.early) == (0, 0, 0)
    assert figures.late_max_s == pytest.approx(4_000 / figures.per_s, rel=0.25)


def test_a_refusing_service_loses_nothing_and_makes_the_gate_halve():
    world, figures, _ = squeezed(seed=2)
    assert (figures.lost, figures.waiting, figures.early) == (0, 0, 0)
    assert figures.heard["throttled"] == len(world.heard.gate) > 0
    before = 16
    for _, limit in world.heard.gate:
        # One more for each window in which latency held, then the half.
        assert limit >= before // 2 or limit == 1
        before = limit
    assert world.heard.gate[0][1] < 16
    assert min(limit for _, limit in world.heard.gate) <= 8


def test_what_is_left_when_a_run_is_ended_is_waiting_and_not_lost():
    _, figures, _ = drain(Setting(seed=2), messages=3_000, at_most_s=1.0)
    assert figures.waiting > 0
    assert figures.lost == 0


def test_two_shards_share_the_messages_and_hand_over_twice_as_many():
    setting = Setting(seed=2)
    one = drain(setting, messages=3_000)[1]
    world, two, _ = drain(setting, messages=6_000, shards=2)
    parts = [len(shard.backend.arrivals) for shard in world.shards]
    assert sum(parts) == 6_000
    assert min(parts) > 2_800
    assert (two.lost, two.waiting) == (0, 0)
    assert two.per_s == pytest.approx(2 * one.per_s, rel=0.15)


# --- the same again -------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_figures():
    first, again, other = squeezed(seed=2)[1], squeezed(seed=2)[1], squeezed(seed=3)[1]
    assert first.refused > 0
    assert first == again
    assert first != other


def test_followers_follow_the_seed_too():
    setting = Setting(seed=2, sizes=TINY)
    assert idle(setting) == idle(setting)


def test_another_process_with_other_hashes_gives_the_same_figures():
    code = (
        "import json; from bench.simulator.runs import Setting, drain;"
        "s = Setting(seed=2); w = s.limited(queue_messages_s=300.0, partition_entities_s=900.0);"
        "print(json.dumps(drain(s, w, messages=600, queues=2)[1].record()))"
    )
    root = Path(__file__).parents[2]
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


# --- the program ----------------------------------------------------------------------------------


def test_the_program_prints_tables_and_writes_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "QUICK", TINY)
    program.main(["--quick", "--seed", "4", "--cpu-us", "500", "--out", str(tmp_path / "scale.json")])
    figures = json.loads((tmp_path / "scale.json").read_text())
    assert figures["seed"] == 4
    assert figures["assumed"]["client"]["per_message_s"] == pytest.approx(0.0005)
    assert figures["assumed"]["limits"]["queue_messages_s"] == 2000.0
    runs = [r for records in figures["results"].values() for r in records if "messages" in r]
    assert {(r["lost"], r["waiting"], r["early"]) for r in runs} == {(0, 0, 0)}
    told = capsys.readouterr().out
    assert report.tables(figures) in told
    assert f"{len(runs)} runs" in told
    plots.draw(figures, tmp_path)
    assert len(list(tmp_path.glob("scale-*.png"))) == 5


# --- models ---------------------------------------------------------------------------------------


def test_classic_waits_for_each_page():
    exact = Spread(0.01, 0.01)
    latencies = Latencies(put_message=exact, entity=exact, lease=exact, query=exact)
    model = classic(latencies, seed=1)
    assert model.page_s == pytest.approx(0.05)  # lease, query, lease, send, delete
    assert model.per_s == pytest.approx(1000)
    assert classic(replace(latencies, factor=2.0), seed=1).per_s == pytest.approx(500)


def test_what_a_billion_a_day_needs():
    needed = need(1e9, 3.0, per_shard_s=1000.0, leader_requests=1.03, limits=Limits(), filled=1.0)
    assert needed.peak_per_s == pytest.approx(34_722.2)
    assert (needed.shards, needed.queues) == (35, 53)
    assert needed.account_requests_per_s == pytest.approx(34_722.2 * 3.06125, rel=1e-4)
    assert needed.accounts == 6


def test_what_is_sustained_is_where_intake_and_hand_over_meet():
    records = [
        {"rows_go_to": "here", "intake_per_s": intake, "per_s": per_s}
        for intake, per_s in ((0, 1000.0), (500, 750.0), (1000, 500.0))
    ]
    assert sustained_per_s(records, "here") == pytest.approx(666.67, abs=0.1)
    assert sustained_per_s(records[:2], "here") == 750.0
