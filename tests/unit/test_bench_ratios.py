"""The ratios: each from the figures that its name says, and none where they are missing."""

import json
import math

import pytest

from postdate.bench.bounds import Punctuality
from postdate.bench.figures import Drain, IdleHour, Lateness
from postdate.bench.limit import Limit, Pace
from postdate.bench.memory import Flat
from postdate.bench.plan import CONTENDERS, DRAINS, LATENESS, forecast, steps_of
from postdate.bench.ratios import GOALS, faster_classic, ratios, verdicts
from postdate.bench.report import CONTENDER_COLUMNS, RATIO_COLUMNS, contender_rows, ratio_rows, record
from postdate.bench.results import CLASSIC, CLASSIC_SDK, LIMIT, POSTDATE, POSTDATE_0, SDK_LOOP, Results
from postdate.bench.run import Bench, Step, chosen, run_steps
from postdate.bench.scale import FULL, QUICK
from postdate.bench.steps import STEPS
from postdate.errors import StorageError


def drain(per_s: float, *, cpu_us: float = 100.0, requests: float = 2.0) -> Drain:
    return Drain(
        messages=1000,
        seconds=1000 / per_s,
        per_s=per_s,
        client_cpu_us=cpu_us,
        server_cpu_us=math.nan,
        requests_per_message=requests,
    )


def punctual(*late: float) -> Punctuality:
    return Punctuality(Lateness.of(late, expected=len(late)), 0.0, 0.0, 0, 0)


def pace(per_s: float, *, deletes: bool = False) -> Pace:
    return Pace(32, deletes, 1000, 1000 / per_s, per_s, 150.0)


def measured() -> Results:
    results = Results(
        limit=Limit.of([pace(1000.0), pace(2000.0), pace(1900.0, deletes=True), pace(5.0, deletes=True)])
    )
    # The middle of 0.95, 0.9 and 0.5.
    results.rounds = {POSTDATE: [1900.0, 1710.0, 900.0], LIMIT: [2000.0, 1900.0, 1800.0]}
    results.of(CLASSIC).drain = drain(500.0)
    results.of(CLASSIC_SDK).drain = drain(400.0)
    results.of(POSTDATE).drain = drain(1710.0, cpu_us=250.0, requests=1.025)
    results.of(SDK_LOOP).drain = drain(600.0, cpu_us=1000.0)
    results.of(POSTDATE).idle_hour = IdleHour(requests=138, how="")
    results.of(CLASSIC).idle_hour = IdleHour(requests=690, how="")
    results.punctual(POSTDATE, "trickle", "", punctual(0.01, 0.05, 0.3))
    results.punctual(POSTDATE, "burst", "via_queue", punctual(0.5, 0.9))
    results.punctual(POSTDATE, "burst", "via_row", punctual(0.4, 0.8))
    results.punctual(POSTDATE_0, "trickle", "", punctual(0.2, 0.3))
    results.tell(POSTDATE, "flat", Flat({"peak_mb": 80.0}, {"peak_mb": 84.0}))
    return results


def test_each_ratio_is_what_its_name_says():
    assert ratios(measured()) == pytest.approx(
        {
            "drain_vs_classic": 3.42,
            "drain_vs_limit": 0.9,
            "burst_p99_late_s": 0.9,
            "trickle_p50_late_s": 0.05,
            "trickle_p99_late_s": 0.3,
            "early": 0,
            "requests_per_message": 1.025,
            "idle_requests_vs_classic": 0.2,
            "cpu_vs_sdk_loop": 0.25,
            "memory_1m_vs_10k": 1.05,
        }
    )


def test_all_goals_have_a_ratio_and_the_measured_ones_are_judged():
    found = ratios(measured())
    assert set(found) == set(GOALS)
    assert all(verdict["met"] for verdict in verdicts(found).values())
    judged = verdicts({**found, "drain_vs_classic": 2.99, "burst_p99_late_s": 1.01, "early": 1})
    assert {name for name, verdict in judged.items() if not verdict["met"]} == {
        "drain_vs_classic",
        "burst_p99_late_s",
        "early",
    }


def test_what_was_not_measured_has_no_ratio_and_no_verdict():
    assert ratios(Results()) == {}
    assert {verdict["met"] for verdict in verdicts({}).values()} == {None}


def test_the_faster_form_of_classic_is_the_one_that_counts():
    results = measured()
    results.of(CLASSIC_SDK).drain = drain(600.0)
    assert faster_classic(results) is results.of(CLASSIC_SDK)
    assert ratios(results)["drain_vs_classic"] == pytest.approx(2.85)


@pytest.mark.parametrize("contender", [POSTDATE, POSTDATE_0])
def test_one_early_message_of_any_workload_shows(contender):
    results = measured()
    results.punctual(contender, "burst", "early_one", punctual(-0.5, 0.1))
    assert ratios(results)["early"] == 1


def test_of_two_bursts_the_later_one_counts_in_either_order():
    results = Results()
    for variant, late in (("a", 0.4), ("b", 0.9), ("c", 0.5)):
        results.punctual(POSTDATE, "burst", variant, punctual(late))
    assert ratios(results)["burst_p99_late_s"] == 0.9


def test_a_record_is_plain_json_and_its_tables_have_all_columns():
    found = record(measured(), scale=FULL, seconds=1.0, versions={"python": "3"}, machine={"cores": 2})
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    assert found["contenders"][0]["drain"]["server_cpu_us"] is None
    assert all(len(row) == len(CONTENDER_COLUMNS) for row in contender_rows(found["contenders"]))
    rows = ratio_rows(found["goals"])
    assert [row[0] for row in rows] == list(GOALS)
    assert all(len(row) == len(RATIO_COLUMNS) for row in rows)


def test_steps_are_chosen_by_workload_by_contender_or_by_both():
    def names(only):
        return [(step.workload, step.contender) for step in chosen(STEPS, only)]

    assert len(names(())) == len(STEPS)
    assert {workload for workload, _ in names(["trickle"])} == {"trickle"}
    assert {contender for _, contender in names([CLASSIC])} == {CLASSIC}
    assert set(names(["drain", POSTDATE])) == {("drain", POSTDATE)}
    assert ("limit", "limit") in names(["drain", "limit", CLASSIC])


@pytest.mark.parametrize(
    "error", [StorageError("it broke"), ExceptionGroup("two tasks", [StorageError("it broke")])]
)
async def test_a_step_that_fails_is_named_and_the_others_still_run(error):
    ran = []

    async def fail(bench: Bench) -> None:
        raise error

    async def work(bench: Bench) -> None:
        ran.append(bench)

    results, said = Results(), []
    steps = [Step("drain", CLASSIC, fail), Step("limit", "limit", fail), Step("drain", POSTDATE, work)]
    await run_steps(Bench(None, QUICK, results, said.append), steps)
    assert len(ran) == 1
    assert results.failed == ["limit: StorageError: it broke", "classic: drain: StorageError: it broke"]
    assert any("FAILED" in line for line in said)


def test_a_user_is_told_of_all_requests_and_of_more_with_lateness():
    without, with_lateness = forecast(FULL, lateness=False), forecast(FULL, lateness=True)
    assert {str(kind) for kind in without} == {
        "queue put message",
        "table delete",
        "table batch",
        "table query",
        "blob renew lease",
    }
    assert all(with_lateness[kind] >= count for kind, count in without.items())
    assert sum(with_lateness.values()) > sum(without.values())


def test_what_a_user_runs_are_steps_that_exist():
    workloads, contenders = {step.workload for step in STEPS}, {step.contender for step in STEPS}
    assert {*DRAINS, *LATENESS} <= workloads
    assert set(CONTENDERS) <= contenders
    picked = {(step.workload, step.contender) for step in chosen(STEPS, steps_of(lateness=False))}
    assert picked == {
        ("limit", "limit"),
        ("drain", CLASSIC),
        ("drain", SDK_LOOP),
        ("drain", POSTDATE),
    }
