"""How a run on a GPU reads, from a file whose seconds are known: device and host beside
wall.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from paths import ROOT

from ffnbench.api.saved_runs import load_shown, recompute
from ffnbench.gate.decision import (
    Policy,
    Status,
    baseline_times,
    exact_findings,
    latency_findings,
)
from ffnbench.metrics import DEVICE_TIME, HOST_TIME, LATENCY
from ffnbench.report.shown_report import ShownReport

# three workers of six rounds of four rows, written by hand
RUN = ROOT / "tests" / "golden" / "runs" / "cuda.json"


@pytest.fixture
def run() -> ShownReport:
    return recompute(load_shown(str(RUN)))


def with_work(report: ShownReport, **changes: Any) -> ShownReport:
    cases = tuple(
        replace(case, workload=replace(case.workload, **changes))
        for case in report.plan.cases
    )
    return replace(report, plan=replace(report.plan, cases=cases))


def test_a_disturbed_row_says_so_of_all_its_times(run: ShownReport) -> None:
    """A clock that is held down disturbs the device's time as it does the latency."""
    held = [replace(s, throttled="hot") if s.case == "big" else s for s in run.samples]
    found = recompute(replace(run, samples=tuple(held)))
    for metric in (LATENCY, DEVICE_TIME, HOST_TIME):
        known = {
            case.label: found.estimate(case.label, metric) is not None
            for case in run.plan.cases
        }
        assert known == {case.label: case.label != "big" for case in run.plan.cases}


OTHERS = {
    "time": "device",
    "cache": "cold",
    "matmul_precision": "medium",
    "reduced_reductions": False,
}


@pytest.mark.parametrize("key", OTHERS)
def test_runs_of_other_conditions_are_other_rows(key: str, run: ShownReport) -> None:
    """A check refuses them, and two files beside each other say what is not the
    same.
    """
    other = with_work(run, **{key: OTHERS[key]})
    found = [
        f
        for f in exact_findings(run, other, Policy(tolerances=()))
        if f.metric == "spec"
    ]
    assert {f.status for f in found} == {Status.REGRESSED}
    assert all(key in f.reason for f in found)
    assert {
        f.status
        for f in exact_findings(run, run, Policy(tolerances=()))
        if f.metric == "spec"
    } == {Status.OK}
    policy = Policy(tolerances=())
    timed = latency_findings(baseline_times(run), other, policy)
    assert {(f.status, key in f.reason) for f in timed} == {(Status.INCOMPARABLE, True)}
    assert Status.INCOMPARABLE not in {
        f.status for f in latency_findings(baseline_times(run), run, policy)
    }
