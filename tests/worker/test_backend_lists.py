"""Lists of backends: what can't be is a row, and which row is the fastest."""

from __future__ import annotations

import math
import random

import pytest
from fake_machine import FakeLaunch, KnownProber, measure, planned, prepare
from made_up_runs import run_of

from ffnbench.compare.table import compare_table
from ffnbench.gate.interim import latency_report
from ffnbench.plan.plan import Plan
from ffnbench.record.result import Report, Verdict
from ffnbench.report.terminal import plain
from ffnbench.stats.fastest import Fastest, fastest
from ffnbench.stats.figures import with_figures


def plan_of(variants: str = "relu,swiglu", **flags: object) -> Plan:
    return planned(
        variants=variants,
        **{"device": "cpu", "threads": 1} | flags,
        probe=KnownProber(1.0),
    )


def measured(launch: FakeLaunch, variants: str = "swiglu", **flags: object) -> Report:
    asked = dict(
        variants=variants,
        **{"workers": 5, "rounds": 6, "device": "cpu", "threads": 1} | flags,
    )
    return measure(prepare(**asked), launch=launch)


def words_of(report: Report, width: int = 80) -> str:
    return " ".join(plain([compare_table(report)], width).split())


# The fastest


def found_by(report: Report) -> Fastest:
    (one,) = fastest(report)
    return one


def test_rows_within_two_percent_are_the_same_and_others_can_not_be_told() -> None:
    def near(gap: float, noise: float) -> FakeLaunch:
        def at(label: str, worker: int, number: int) -> float:
            drawn = random.Random(f"{label} {worker}").gauss(0, noise)
            return (
                (10.0 if label == "swiglu" else 4.0 * (1 + gap * ("compile" in label)))
                * 1e-3
                * math.exp(drawn)
            )

        return FakeLaunch(at)

    same = measured(launch=near(0.005, 0.001), backend="eager,onednn,compile")
    assert found_by(same).verdict is Verdict.SAME
    assert "fastest of swiglu: onednn and compile, 0.3998 [" in words_of(same, 200)
    unclear = measured(launch=near(0.0, 0.05), backend="eager,onednn,compile")
    assert found_by(unclear).verdict is Verdict.UNCLEAR
    assert "can't tell which is fastest of swiglu: " in words_of(unclear)
    busy = near(0.5, 0.001)
    busy.waited = 0.5
    assert (
        fastest(measured(launch=busy, backend="eager,onednn,compile")) == []
    )  # busy rows have no figure


def simulated(
    true: dict[str, float], seed: int, plan: Plan, scatter: float = 0.01
) -> Report:
    """Workers that each have their own luck with a case, rounds that have theirs."""
    dice, protocol = random.Random(seed), plan.protocol

    def rounds(log: float) -> list[float]:
        here = log + dice.gauss(0, scatter)
        return [
            1e-3 * math.exp(here + dice.gauss(0, 2 * scatter))
            for _ in range(protocol.rounds)
        ]

    values = {
        label: [rounds(log) for _ in range(protocol.workers)]
        for label, log in true.items()
    }
    return with_figures(latency_report(run_of(plan, values)))


def test_the_wrong_one_is_called_the_fastest_in_a_twentieth_at_worst() -> None:
    """Where the best are equal every claim is false. Worst are two of them far ahead:
    nothing else has to be beaten.
    """
    plan = plan_of("swiglu", backend="eager,packed,onednn", workers=4, rounds=20)
    true, runs = (
        dict(zip([case.label for case in plan.cases], (0.0, 0.0, 0.5), strict=True)),
        250,
    )
    claims = [found_by(simulated(true, seed, plan)) for seed in range(runs)]
    wrong = sum(claim.verdict is Verdict.FASTER for claim in claims)
    assert wrong <= 0.05 * runs + 2 * math.sqrt(0.05 * 0.95 * runs)


@pytest.mark.parametrize(
    ("backends", "verdict"),
    [("eager,onednn", Verdict.FASTER), ("all", Verdict.UNCLEAR)],
)
def test_chance_is_corrected_for_the_number_of_rows(
    backends: str, verdict: Verdict
) -> None:
    """Student's t of 3.9 with 3 degrees of freedom, p = 0.03: enough for one row, and
    not where four are as near.
    """
    plan = plan_of("swiglu", backend=backends, workers=4, rounds=6)
    ahead = [-0.05 + 0.03 * by for by in (1, -1, 0.3, -0.3)]
    rounds = {
        True: [[1e-3 * math.exp(log)] * 6 for log in ahead],
        False: [[1e-3] * 6] * 4,
    }
    values = {
        case.label: rounds[case.workload.backend == "onednn"] for case in plan.cases
    }
    report = with_figures(latency_report(run_of(plan, values)))
    assert found_by(report).verdict is verdict
