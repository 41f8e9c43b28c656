"""The simulated selftest: that its counts are right, that it is deterministic, and that it can fail."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import median

import pytest
from test_cli import call  # noqa: F401 - a fixture

from ffnbench import jsonable
from ffnbench.bench import probe_jobs as probing
from ffnbench.bench.jobs import Jobs
from ffnbench.bench.rivals import METHODS
from ffnbench.bench.runner import run
from ffnbench.planning.compare import plan_compare
from ffnbench.report.selftest import rates_table
from ffnbench.report.text import plain
from ffnbench.request import CompareRequest
from ffnbench.selftest.alarms import check_plan, counts
from ffnbench.selftest.checks import simulate_checks
from ffnbench.selftest.machine import STATES, WORLDS, Machine, World
from ffnbench.selftest.rates import SLOWER, Share, comparison_plan, failures, simulate, total


def test_simulated_error_rates_hold() -> None:
    """135 runs over all worlds, most of which scatter as a shared machine does; `ffnbench selftest` makes 900."""
    rates = simulate(135)
    assert [r.world for r in rates] == [w.name for w in WORLDS]
    whole = total(rates)
    assert whole.runs == 135
    assert 0.9 * 135 * 5 <= whole.covered.of <= 135 * 5  # a busy row claims no interval
    assert failures(whole) == []
    assert 0.93 <= whole.covered.value <= 0.98
    assert whole.false_difference.value <= 0.05
    assert whole.wrong_way.value <= 0.01  # +3% is called the same where an interval misses by chance
    assert whole.found["+5%"].value >= 0.75
    assert whole.found["+10%"].value >= 0.95
    quiet = next(of for of in rates if of.world == "quiet")
    assert {name: share.value for name, share in quiet.found.items()} == dict.fromkeys(SLOWER, 1.0)


def test_a_state_that_outlasts_a_run_is_covered_by_no_run() -> None:
    """The exam sets worlds in which the code must fail."""
    rates = simulate(12, worlds=STATES[-1:])
    assert total(rates).covered.value < 0.8


def test_checks_go_through_the_real_loop() -> None:
    """Two baselines of three runs on a quiet machine: none accused of nothing, a fifth is found."""
    quiet = next(world for world in WORLDS if world.name == "quiet")
    alarms = simulate_checks(check_plan(precision=None), 0.05, (0.0, 0.2), 2, [quiet])
    unchanged, slowed = counts(alarms, "quiet", 0.0), counts(alarms, "quiet", 0.2)
    assert (unchanged.checks, unchanged.asked, unchanged.false_alarms, unchanged.unclear) == (2, 2, 0, 0)
    assert (slowed.found, slowed.false_alarms) == (2, 0)


def test_the_same_seed_gives_the_same_counts() -> None:
    alone = simulate(12, worlds=WORLDS[:2], processes=1)
    assert alone == simulate(12, worlds=WORLDS[:2], processes=2)


def test_a_broken_promise_is_noticed() -> None:
    good = total(simulate(12, processes=1))
    bad = replace(good, runs=1000, false_difference=Share(hits=300, of=1000), covered=Share(hits=4000, of=5000))
    assert failures(bad) == ["false differences in 30.0% of the runs", "the 95% intervals cover 80.0%"]
    always = replace(good, runs=1000, covered=Share(hits=5000, of=5000))
    assert failures(always) == ["the 95% intervals cover 100.0%"]


def test_samples_taken_for_independent_would_be_caught() -> None:
    """What pooling the rounds of all workers would do: its intervals are far too narrow for these worlds."""
    covered = runs = 0
    plan = plan_compare(
        CompareRequest(variants="a=relu,b=relu", d_model=64, device="cpu", workers=5, metrics="latency")
    )
    world = World(name="layouts", layout=0.02, sample=0.01)
    for seed in range(40):
        done = Machine(world, plan, seed).run(run)
        by = {(s.case, s.worker, s.round): s.value for s in done.samples if s.metric == "latency"}
        logs = [math.log(by["b", w, r] / value) for (case, w, r), value in by.items() if case == "a"]
        mean = sum(logs) / len(logs)
        error = math.sqrt(sum((v - mean) ** 2 for v in logs) / (len(logs) - 1) / len(logs))
        covered += abs(mean) < 1.96 * error
        runs += 1
    assert covered / runs < 0.6


@pytest.mark.parametrize("mode", ["forward", "train", "backward"])
def test_a_slow_down_is_exactly_what_was_asked_for(mode: str) -> None:
    """Real modules, one process: the spin is a share of the call's own time, forward, backward and both."""
    text = f"a=relu@mode={mode},b=relu@mode={mode}@slowdown=1.0"
    plan = plan_compare(CompareRequest(variants=text, d_model=128, seq_len=64, workers=3, rounds=9, metrics="latency"))
    jobs = Jobs(plan.with_device("cpu"))
    calls = jobs.open("a", None)["calls"]
    jobs.open("b", calls)

    def ratio() -> float:
        return median(jobs.sample("b", calls)["value"] / jobs.sample("a", calls)["value"] for _ in range(15))

    tries = (ratio() for _ in range(5))  # other work on the machine may spoil one; a wrong share spoils all
    assert any(found == pytest.approx(2.0, rel=0.25) for found in tries)


@pytest.mark.parametrize("method", METHODS)
def test_rivals_measure_every_case(method: str) -> None:
    plan = comparison_plan(d_model=32, seq_len=8, budget=5.0)
    answer = probing.JOBS["rival"](plan=jsonable.encode(plan), method=method, seconds=0.3)
    assert set(answer["seconds"]) == {"base", "same1", "same2", *SLOWER}
    assert all(0 < seconds < 1 for seconds in answer["seconds"].values())


def test_the_command(call, tmp_path) -> None:  # noqa: F811
    code, out, err = call("selftest", "--runs", "28", "-q", "-o", str(tmp_path / "rates.json"))
    assert code == 0, err
    assert "all worlds" in out
    rates = json.loads((tmp_path / "rates.json").read_text())
    assert [r["world"] for r in rates] == [*(w.name for w in WORLDS), "all worlds", *(w.name for w in STATES)]
    by = {r["world"]: r for r in rates}
    assert by["all worlds"]["runs"] == sum(by[w.name]["runs"] for w in WORLDS) == 28


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["--runs", "3"], "--runs 3 is too few", "at least 14"),
        (["--runs", "1" + "0" * 30], "--runs is more than anybody can wait for", "at most 10,000,000"),
        (["--live", "--world", "spiner"], "unknown world 'spiner'", "did you mean 'spinner' or 'spinners'?"),
        (["--live", "--gate", "--world", "moon"], "unknown world 'moon'", "worlds: quiet, spinner, spinners, bursts"),
        (["--live", "--repeats", "0"], "repeats must be a positive integer", ""),
        (["--live", "--threads", "0"], "threads must be a positive integer", ""),
        (["--live", "--d-model", "0"], "d_model must be a positive integer", ""),
        (["--live", "--budget", "1"], "--budget 1 is too short", "at least 5"),
        (["-o", "x.png"], "unknown suffix '.png'", ".json"),
    ],
)
def test_mistakes(call, arguments, error, hint) -> None:  # noqa: F811
    code, out, err = call("selftest", *arguments)
    assert (code, out) == (2, "")
    assert error in err.splitlines()[0]
    assert hint in err.splitlines()[1]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits(width: int) -> None:
    assert max(map(len, plain(rates_table(simulate(12, processes=1)), width).splitlines())) <= width
