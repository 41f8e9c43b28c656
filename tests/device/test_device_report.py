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
from ffnbench.plan.metrics import DEVICE_TIME, HOST_TIME, LATENCY
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
        for case in run.plan.cases:
            estimate = found.estimate(case.label, metric)
            has_interval = estimate is not None and estimate.low is not None
            assert has_interval == (case.label != "big"), (case.label, metric)


CONDITIONS = {
    "time": "device",
    "cache": "cold",
    "matmul_precision": "medium",
    "reduced_reductions": False,
}
OTHERS = CONDITIONS | {"compile": "max-autotune", "freeze": True}


@pytest.mark.parametrize("key", OTHERS)
def test_a_row_of_another_workload_is_another_row(key: str, run: ShownReport) -> None:
    now = exact_findings(run, with_work(run, **{key: OTHERS[key]}), Policy())
    found = [one for one in now if one.metric == "spec"]
    assert {one.status for one in found} == {Status.REGRESSED}
    assert all(key in one.reason for one in found)


@pytest.mark.parametrize("key", CONDITIONS)
def test_times_of_other_conditions_are_not_compared(key: str, run: ShownReport) -> None:
    other = with_work(run, **{key: CONDITIONS[key]})
    found = latency_findings(other, Policy(), baseline_times(run))
    assert {(one.status, key in one.reason) for one in found} == {
        (Status.INCOMPARABLE, True)
    }


def test_a_run_is_comparable_with_itself(run: ShownReport) -> None:
    found = exact_findings(run, run, Policy())
    found += latency_findings(run, Policy(), baseline_times(run))
    assert {one.status for one in found if one.metric == "spec"} == {Status.OK}
    assert Status.INCOMPARABLE not in {one.status for one in found}
