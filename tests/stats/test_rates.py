"""Checks on simulated machines, and rows that are slowed down on purpose: what exams of
error rates rest on.
"""

from __future__ import annotations

from statistics import median
from time import process_time

import pytest
from exam.alarms import check_plan, counts
from exam.machine import WORLDS
from exam.simulated import simulate_checks

from ffnbench.messages import Open, TakeSample
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.worker import meters, subject
from ffnbench.worker.jobs import Jobs


def test_checks_go_through_the_real_loop() -> None:
    """Two baselines of three runs on a quiet machine: none accused of nothing, a fifth
    is found.
    """
    quiet = next(world for world in WORLDS if world.name == "quiet")
    alarms = simulate_checks(check_plan(precision=None), 0.05, (0.0, 0.2), 2, [quiet])
    unchanged, slowed = counts(alarms, "quiet", 0.0), counts(alarms, "quiet", 0.2)
    assert (unchanged.checks, unchanged.false_alarms, unchanged.unclear) == (2, 0, 0)
    assert (slowed.found, slowed.false_alarms) == (2, 0)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "mode",
    [
        "forward",
        pytest.param("train", marks=SLOW),
        pytest.param("backward", marks=SLOW),
    ],
)
def test_a_slow_down_is_exactly_what_was_asked_for(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real modules, one process: the spin is a share of the call's own time, forward,
    backward and both.

    By the time that the process works, for another one may take the CPU meanwhile.
    """
    for module in (meters, subject):
        monkeypatch.setattr(module, "perf_counter", process_time)
    text = f"a=relu@mode={mode},b=relu@mode={mode}@slowdown=1.0"
    asked = {
        "variants": text,
        "d_model": 128,
        "seq_len": 64,
        "workers": 3,
        "rounds": 9,
        "metrics": "latency",
    }
    jobs = Jobs(plan_compare(CompareRequest(**asked, threads=1)).with_device("cpu"))
    calls = jobs.open(Open(label="a", calls=None)).calls
    jobs.open(Open(label="b", calls=calls))

    def seconds(label: str) -> float:
        return jobs.take_sample(TakeSample(label=label, calls=calls)).value

    ratios = (median(seconds("b") / seconds("a") for _ in range(15)) for _ in range(5))
    assert any(
        ratio == pytest.approx(2.0, rel=0.25) for ratio in ratios
    )  # a wrong share spoils all of them
