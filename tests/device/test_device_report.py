"""How a run on a GPU reads, from a file whose seconds are known: device and host beside
wall.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from paths import ROOT

from ffnbench.api.saved_runs import as_shown, load_shown
from ffnbench.plan.metrics import DEVICE_TIME, HOST_TIME, LATENCY
from ffnbench.report.shown_report import ShownReport

# three workers of six rounds of four rows, written by hand
RUN = ROOT / "tests" / "golden" / "runs" / "cuda.json"


@pytest.fixture
def run() -> ShownReport:
    return load_shown(str(RUN))


def test_a_disturbed_row_says_so_of_all_its_times(run: ShownReport) -> None:
    """A clock that is held down disturbs the device's time as it does the latency."""
    held = [replace(s, throttled="hot") if s.case == "big" else s for s in run.samples]
    found = as_shown(replace(run, samples=tuple(held)))
    for metric in (LATENCY, DEVICE_TIME, HOST_TIME):
        for case in run.plan.cases:
            estimate = found.estimate(case.label, metric)
            has_interval = estimate is not None and estimate.low is not None
            assert has_interval == (case.label != "big"), (case.label, metric)
