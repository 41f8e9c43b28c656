"""A baseline of several runs: how it is made, how runs are added, and what it
refuses.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from fake_machine import FakeLaunch
from gate_world import machine

from ffnbench.api import measuring
from ffnbench.report.store import read_report

COMPARE = "--variants relu,gelu,swiglu --d-model 64 --threads 1 --metrics latency --precision 0.5"


class Restless(FakeLaunch):
    """A machine on which swiglu is off by another amount in each run; a run starts
    where a worker is asked for rounds again after `workers` of them.
    """

    def __init__(
        self,
        factors: list[float],
        interrupted_in: int | None = None,
        noisy: Iterable[int] = (),
    ) -> None:
        self.noisy = set(noisy)
        self.dice, self.factors, self.runs, self.interrupted_in = (
            random.Random(1),
            factors,
            -1,
            interrupted_in,
        )
        super().__init__(self.second)

    def second(self, label: str, worker: int, number: int) -> float:
        if self.runs == self.interrupted_in and number > 2:
            raise KeyboardInterrupt
        factor = self.factors[self.runs] if label == "swiglu" else 1.0
        return 0.01 * factor * math.exp(self.dice.gauss(0, 0.001))


@pytest.fixture
def call(on_fakes, monkeypatch: pytest.MonkeyPatch):
    """`ffnbench ...`, workers faked; gives exit code, stdout in one line, stderr."""
    real = measuring.measure_run

    def run(
        *arguments: object, launch: FakeLaunch | None = None
    ) -> tuple[int, str, str]:
        launch = launch or machine(seed=1)

        def counted(*given: object, **more: object) -> object:
            if isinstance(launch, Restless):
                launch.runs += 1
                launch.waited = 0.6 if launch.runs in launch.noisy else None
            return real(*given, **more)

        monkeypatch.setattr(measuring, "measure_run", counted)
        return on_fakes(*arguments, launch=launch)

    return run


@pytest.mark.parametrize(("noisy", "kept"), [({0, 3}, [1, 2]), ({0, 1, 2, 3}, [0])])
def test_a_run_beside_other_work_is_not_kept_and_resume_makes_up_for_it(
    tmp_path: Path, call, noisy: set[int], kept: list[int]
) -> None:
    """Of four; run k takes 1 + k / 10 times as long. Where no run is quiet the first is
    shown, as busy.
    """
    path, factors = tmp_path / "b.json", [1 + k / 10 for k in range(4)]
    quick = COMPARE.replace("--precision 0.5", "--quick")
    launch = Restless(factors, noisy=noisy)
    ended, _, err = call("compare", quick, "--runs 4 -q -o", path, launch=launch)
    assert (ended, launch.runs + 1) == (3, 4)
    assert f"error: {len(kept)} of 4 runs could be kept\nhint: " in err
    found = [
        sum(s.value for s in run.samples if s.case == "swiglu")
        / sum(s.value for s in run.samples if s.case == "relu")
        for run in read_report(path).runs
    ]
    assert found == pytest.approx([1 + k / 10 for k in kept], rel=0.01)
    assert call("report", path)[0] == 0
    rest = Restless(factors)
    again = call("compare", quick, "--runs 4 -q --resume -o", path, launch=rest)
    assert (again[0], rest.runs + 1) == (0, 4 - len(kept) if len(kept) > 1 else 4)
    assert len(read_report(path).runs) == 4


def test_a_run_is_held_against_the_mean_of_the_runs(tmp_path: Path, call) -> None:
    """Each run half a percent slower than the last: the next one is 2 % above their
    mean, and 6 % above the first.
    """
    path = tmp_path / "b.json"
    factors = [1.005**k for k in range(16)]
    assert (
        call(
            "compare",
            COMPARE,
            "--runs 16 -q -o",
            path,
            launch=Restless(factors),
        )[0]
        == 0
    )
    code, out, _ = call(
        "check", path, "-q", launch=machine({"swiglu": 1.005**12}, seed=2)
    )
    assert code == 0
    assert "REGRESSED" not in out
    code, out, _ = call(
        "check", path, "-q", launch=machine({"swiglu": 1.005**25}, seed=2)
    )
    assert code == 1
